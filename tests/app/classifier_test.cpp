// A classifier that is split over workers, through the command line, as real processes.

#include <gmock/gmock.h>

#include "tests/app/workers.hpp"

namespace convoy::app {
namespace {

using testing::HasSubstr;

class Classifier : public Workers {};

TEST_F(Classifier, IsSplitAndTrainsToTheSameLoss) {
  ASSERT_EQ(train_on(1, "one").code, 0);
  const double expected = events("one", "eval").back().at("loss").get<double>();
  for (const std::string how : {"model", "hybrid", "merged"}) {
    const Outcome outcome = train_on(2, how, {"parallel.classifier=" + how});
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_NEAR(events(how, "eval").back().at("loss").get<double>(), expected, 1e-3 * expected);
    // What was split is whole in a checkpoint.
    const Outcome again = convoy({"eval", how}, {kNoLeaks});
    EXPECT_EQ(again.code, 0) << again.all();
  }
}

TEST_F(Classifier, IsMergedForGroups) {
  for (const std::string own : {"false", "true"}) {
    const Outcome outcome = train_on(own == "true" ? 3 : 2, own,
                                     {"parallel.classifier=merged", "cluster.groups=2",
                                      "cluster.servers=1", "cluster.own_servers=" + own});
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_THAT(outcome.out, HasSubstr("finished: 3.00 epochs, 24 steps"));
    const auto& evals = events(own, "eval");
    EXPECT_LT(evals.back().at("loss").get<double>(), 1.05 * evals.front().at("loss").get<double>());
  }
}

TEST_F(Classifier, IsSplitAmongTheWorkersOfAGroup) {
  ASSERT_EQ(train_on(1, "one").code, 0);
  const double expected = events("one", "eval").back().at("loss").get<double>();
  for (const std::string how : {"model", "hybrid"}) {
    // One group against servers is synchronous.
    const std::string one = how + "-one";
    Outcome outcome =
        train_on(2, one, {"parallel.classifier=" + how, "cluster.groups=1", "cluster.servers=1"});
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_NEAR(events(one, "eval").back().at("loss").get<double>(), expected, 1e-3 * expected);
    outcome = train_on(4, how, {"parallel.classifier=" + how, "cluster.groups=2"});
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_THAT(outcome.out, HasSubstr("finished: 3.00 epochs, 24 steps"));
    const auto& evals = events(how, "eval");
    EXPECT_LT(evals.back().at("loss").get<double>(), 1.05 * evals.front().at("loss").get<double>());
  }
}

TEST_F(Classifier, OfACopyWithoutGrainsWaitsForNobody) {
  // Two grains for four workers: those of the second copy have nothing to do.
  const Outcome outcome =
      train_on(4, "run",
               {"engine.grain=16", "sync.mode=bsp", "parallel.classifier=hybrid",
                "cluster.groups=1", "cluster.servers=1"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, HasSubstr("finished: 3.00 epochs, 24 steps"));
}

TEST_F(Classifier, LeftOpenWithGroupsAllWorkersPlanAlike) {
  // The grain is open, too, and follows from how many share a batch.
  std::vector<std::string> all =
      train_arguments("run", {"engine.lanes=1", "sync.deadline=20s", "cluster.groups=2",
                              "sync.reproducible=false", "parallel.classifier=auto"});
  all.insert(all.end(), {"--workers", "4"});
  const Outcome outcome = convoy(all, {kNoLeaks});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, HasSubstr("2 groups of 2 workers"));
}

TEST_F(Classifier, IsWhereTheMeasurementsSayIfLeftOpen) {
  const Outcome outcome =
      train_on(2, "run", {"parallel.classifier=auto", "sync.reproducible=false"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, HasSubstr("classifier "));
  const Outcome exact = train_on(2, "exact", {"parallel.classifier=auto"});
  ASSERT_EQ(exact.code, 0) << exact.all();
  EXPECT_THAT(exact.out, HasSubstr("classifier data: sync.reproducible asks for"));
}

TEST_F(Classifier, IsRefusedWhereItCannotBeSplit) {
  Outcome outcome = train_on(3, "run", {"parallel.classifier=hybrid"});
  EXPECT_EQ(outcome.code, 2) << outcome.all();
  EXPECT_THAT(outcome.err, HasSubstr("parallel.copies"));
  outcome = train_on(2, "run", {"parallel.classifier=model", "train.clip_norm=1"});
  EXPECT_EQ(outcome.code, 2) << outcome.all();
  EXPECT_THAT(outcome.err, HasSubstr("clip_norm"));
  outcome = train_on(2, "run", {"parallel.classifier=model", "parallel.layers=9"});
  EXPECT_EQ(outcome.code, 2) << outcome.all();
  EXPECT_THAT(outcome.err, HasSubstr("parallel.layers"));
}

}  // namespace
}  // namespace convoy::app
