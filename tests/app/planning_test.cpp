// plan, simulate and tune through the command line.

#include <gmock/gmock.h>

#include "tests/app/workers.hpp"

namespace convoy::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Planning : public Workers {
 protected:
  void SetUp() override {
    Workers::SetUp();
    put(folder_ / "cluster.yaml",
        "name: lab\nnodes:\n- {name: node, count: 4, cores: 4, memory: 4GiB, link: {bandwidth: "
        "1Gbit/s}}\n");
  }
};

TEST_F(Planning, IsForAClusterThatIsOnlyDescribed) {
  const Outcome outcome = convoy({"plan", "job.yaml", "--cluster", "cluster.yaml", "--report",
                                  "report.html", "--out", "plan.yaml"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("plan    small on lab"), HasSubstr("limit   "),
                                 HasSubstr("workers 1: 1.00×"), HasSubstr("written report.html")));
  EXPECT_THAT(content(folder_ / "report.html"), HasSubstr("<svg"));
  EXPECT_THAT(content(folder_ / "plan.yaml"),
              AllOf(HasSubstr("predicted_step_seconds"), HasSubstr("cluster.groups: 1")));
}

TEST_F(Planning, IsForWorkersThatAreMeasured) {
  const Outcome outcome =
      convoy({"plan", "job.yaml", "--workers", "2", "--write-cluster", "here.yaml"}, {kNoLeaks});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, HasSubstr("plan    small on this cluster"));
  EXPECT_THAT(content(folder_ / "here.yaml"), AllOf(HasSubstr("workers: 2"), HasSubstr("link")));
  const Outcome again = convoy({"plan", "job.yaml", "--cluster", "here.yaml"});
  EXPECT_EQ(again.code, 0) << again.all();
}

TEST_F(Planning, ACompleteClusterIsMeasuredByInfo) {
  const Outcome outcome =
      convoy({"info", "--cluster", "--net", "lenet", "--workers", "2"}, {kNoLeaks});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("nodes:"), HasSubstr("bandwidth"), HasSubstr("lenet")));
  put(folder_ / "found.yaml", outcome.out);
  EXPECT_EQ(convoy({"plan", "job.yaml", "--cluster", "found.yaml"}).code, 0);
  EXPECT_EQ(convoy({"info", "--workers", "2"}).code, 2);
}

TEST_F(Planning, SaysWhatIsWrongWithACluster) {
  put(folder_ / "bad.yaml", "nodes:\n- {name: a, cuont: 3}\n");
  Outcome outcome = convoy({"plan", "job.yaml", "--cluster", "bad.yaml"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("bad.yaml:2"), HasSubstr("cuont")));
  outcome = convoy({"plan", "job.yaml", "--cluster", "cluster.yaml", "--nodes", "9"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("lab has 4 nodes"));
}

TEST_F(Planning, SimulatesPublishedTrainings) {
  Outcome outcome = convoy({"simulate", "--presets"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("das16-cori"), HasSubstr("zou17")));
  outcome = convoy({"simulate", "--preset", "das16-aws"});
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("vgg-a"), HasSubstr("14×")));
  outcome = convoy({"simulate", "--preset", "nothing"});
  EXPECT_EQ(outcome.code, 2);
  outcome = convoy({"simulate"});
  EXPECT_EQ(outcome.code, 2);
}

TEST_F(Planning, SimulatesWorkersThatAreNotThere) {
  const std::vector<std::string> words = {"simulate", "job.yaml", "--workers",    "8",
                                          "--groups", "1,4",      "--stragglers", "0.2",
                                          "--train",  "30"};
  const Outcome outcome = convoy(words);
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("8 workers"), HasSubstr("(simulated)"),
                                 HasSubstr("training in virtual time"), Not(HasSubstr("nan"))));
  EXPECT_EQ(convoy({"simulate", "job.yaml", "--workers", "8", "--groups", "3"}).code, 2);
  EXPECT_EQ(convoy({"simulate", "job.yaml", "--stragglers", "many"}).code, 2);
}

TEST_F(Planning, TunesInVirtualTime) {
  const Outcome outcome = convoy(
      {"simulate", "job.yaml", "--workers", "4", "--train", "400", "--tune", "--target", "1.3"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("synchronous"), HasSubstr("asynchronous"),
                                 HasSubstr("tuned"), HasSubstr("searching")));
}

TEST_F(Planning, TuningEndsWithTheTraining) {
  const Outcome outcome =
      convoy({"tune", "job.yaml", "--run", "run", "--set", "train.target=0.9999"}, {kNoLeaks});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, HasSubstr("ended before train.target (finished)"));
}

TEST_F(Planning, TunesWhileTraining) {
  Outcome outcome = convoy({"tune", "job.yaml"}, {kNoLeaks});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("train.target"));
  outcome = convoy({"tune", "job.yaml", "--run", "run", "--minutes", "0.6", "--trial", "2", "--set",
                    "train.epochs=1000000", "--set", "train.eval_every=off"},
                   {kNoLeaks});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("trial   1 group"), HasSubstr("taken   1 group"),
                                 Not(HasSubstr("loss inf")), HasSubstr("written to run")));
  EXPECT_FALSE(tensors("run").empty());
  // Every stretch makes steps, the later ones, too.
  const auto stops = events("run", "stop");
  ASSERT_GT(stops.size(), 3U);
  for (size_t i = 1; i < stops.size(); ++i) {
    EXPECT_GT(stops[i].at("elapsed_seconds").get<double>(), 0.5);
  }
}

}  // namespace
}  // namespace convoy::app
