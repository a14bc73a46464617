// Groups that do not wait for each other, through the command line, as real processes.

#include <gmock/gmock.h>

#include "tests/app/workers.hpp"

namespace convoy::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Groups : public HurtWorkers {
 protected:
  Outcome train_in(int groups, int workers, const std::string& run,
                   std::vector<std::string> settings = {},
                   const std::vector<std::string>& words = {}) const {
    settings.push_back("cluster.groups=" + std::to_string(groups));
    std::vector<std::string> all = arguments(workers, run, settings);
    all.insert(all.end(), words.begin(), words.end());
    return convoy(all, {kNoLeaks});
  }
};

TEST_F(Groups, OneWithServersGivesTheBitsOfOneWorker) {
  ASSERT_EQ(train_on(1, "one").code, 0);
  for (const int workers : {2, 3}) {
    for (const std::string own : {"false", "true"}) {
      const std::string run = "w" + std::to_string(workers) + own;
      const Outcome outcome =
          train_in(1, workers, run, {"cluster.servers=1", "cluster.own_servers=" + own});
      ASSERT_EQ(outcome.code, 0) << outcome.all();
      EXPECT_TRUE(tensors(run) == tensors("one")) << run;
    }
  }
}

TEST_F(Groups, TrainOnEveryBatchOnce) {
  for (const std::string mode : {"bsp", "balanced"}) {
    const Outcome outcome = train_in(2, 4, mode, {"sync.mode=" + mode, "cluster.servers=2"});
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("finished: 3.00 epochs, 24 steps"),
                                   HasSubstr("2 groups of 2 workers; updates were ")));
    int64_t pieces = 0;
    for (const nlohmann::json& event : events(mode, "segment")) {
      pieces += event.at("pieces").get<int64_t>();
      EXPECT_EQ(event.at("refused").get<int64_t>(), 0);
    }
    EXPECT_GT(pieces, 0);
    EXPECT_EQ(pieces % 24, 0);
    EXPECT_EQ(events(mode, "eval").back().at("samples").get<int64_t>(), 64);
  }
}

TEST_F(Groups, ApplyLessMomentumTheMoreThereAre) {
  const auto applied = [&](int groups, const std::string& rule) {
    const std::string run = rule + std::to_string(groups);
    const Outcome outcome = train_in(groups, groups, run, {"cluster.momentum=" + rule});
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    return events(run, "segment").back().at("applied_momentum").get<double>();
  };
  EXPECT_NEAR(applied(2, "total"), 0.4, 1e-9);
  EXPECT_NEAR(applied(3, "total"), 0.9 - 2.0 / 3, 1e-9);
  EXPECT_NEAR(applied(2, "-0.25"), -0.25, 1e-9);
}

TEST_F(Groups, GoOnFromAnyLayoutInAnyOther) {
  ASSERT_EQ(train_in(2, 4, "run", {"train.max_steps=8"}).code, 0);
  Outcome rest = resume_on(1, "run", "train.max_steps=12");
  ASSERT_EQ(rest.code, 0) << rest.all();
  rest = convoy({"train", "--resume", "run", "--workers", "3", "--set", "train.max_steps=off",
                 "--set", "cluster.groups=3"},
                {kNoLeaks});
  ASSERT_EQ(rest.code, 0) << rest.all();
  EXPECT_THAT(rest.out, HasSubstr("24 steps"));
}

TEST_F(Groups, NameADeadServerAndKeepTheCheckpoint) {
  const Outcome outcome = hurt(
      "run", SIGKILL, 3, 2, {"cluster.groups=2", "cluster.servers=1", "cluster.own_servers=true"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("worker 2"), HasSubstr("SIGKILL"))) << outcome.all();
  EXPECT_FALSE(tensors("run").empty());
}

TEST_F(Groups, GoOnWithoutADeadOneIfTolerated) {
  const Outcome outcome = hurt("run", SIGKILL, 3, 1,
                               {"cluster.groups=3", "cluster.tolerate=true", "train.max_time=6s"});
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("worker 1"), HasSubstr("SIGKILL"),
                                 HasSubstr("2 groups of 1 worker go on from the last checkpoint")));
  EXPECT_THAT(outcome.out, HasSubstr("2 groups of 1 worker; updates were "));
  EXPECT_EQ(events("run", "resume").size(), 1U);
}

TEST_F(Groups, AreAsManyAsTheMeasurementsSayIfLeftOpen) {
  const Outcome outcome = train_on(2, "run", {"cluster.groups=auto", "sync.reproducible=false"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, HasSubstr("predicted time between updates by their number: 1: "));
  // What was asked stands in the job, so another number of workers may decide otherwise.
  EXPECT_THAT(content(folder_ / "run/job.yaml"), HasSubstr("groups: auto"));
  const Outcome exact = train_on(2, "exact", {"cluster.groups=auto"});
  ASSERT_EQ(exact.code, 0) << exact.all();
  EXPECT_THAT(exact.out, HasSubstr("groups 1, because sync.reproducible asks for"));
}

TEST_F(Groups, ScaleTheLearningRateIfAsked) {
  const auto first = [&](const std::string& rule) {
    const Outcome outcome = train_in(2, 2, rule, {"cluster.learning_rate=" + rule});
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    return tensors(rule);
  };
  EXPECT_FALSE(first("same") == first("scaled"));
}

TEST_F(Groups, AreRefusedWhereTheyCannotBe) {
  Outcome outcome = train_in(2, 3, "run");
  EXPECT_EQ(outcome.code, 2) << outcome.all();
  EXPECT_THAT(outcome.err, HasSubstr("3 workers cannot be 2 groups of equal size; 1 or 3 can"));
  outcome = train_in(2, 2, "run", {"sync.mode=backup"});
  EXPECT_EQ(outcome.code, 2) << outcome.all();
  EXPECT_THAT(outcome.err, HasSubstr("cluster.groups"));
  outcome = train_in(2, 2, "run", {"cluster.momentum=much"});
  EXPECT_EQ(outcome.code, 2) << outcome.all();
  EXPECT_THAT(outcome.err, HasSubstr("'much' is neither total nor measured nor a number"));
}

}  // namespace
}  // namespace convoy::app
