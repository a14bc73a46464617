// Several workers through the command line, as real processes: the bits of one, the faults a user
// will meet, and what is said of them.

#include "tests/app/workers.hpp"

#include <chrono>

#include <gmock/gmock.h>

namespace convoy::app {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(Workers, GiveTheBitsOfOneOnAnyNumberOfThem) {
  ASSERT_EQ(train_on(1, "one").code, 0);
  for (const int workers : {2, 3, 4, 7}) {
    const std::string run = std::to_string(workers);
    const Outcome outcome = train_on(workers, run);
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_TRUE(tensors(run) == tensors("one")) << workers << " workers give other weights";
    EXPECT_THAT(outcome.out, HasSubstr(run + " workers of 1 lane"));
  }
}

TEST_F(Workers, GiveTheBitsOfOneWithUnequalShares) {
  ASSERT_EQ(train_on(1, "one").code, 0);
  for (const std::string shares : {"[5, 3]", "[0, 8]", "[7, 1]"}) {
    const Outcome outcome = train_on(2, shares, {"sync.shares=" + shares});
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_TRUE(tensors(shares) == tensors("one")) << shares;
  }
}

TEST_F(Workers, GoOnOnAnotherNumberOfThem) {
  ASSERT_EQ(train_on(1, "one").code, 0);
  ASSERT_EQ(train_on(4, "run", {"train.max_steps=10"}).code, 0);
  const Outcome two = resume_on(2, "run", "train.max_steps=17");
  ASSERT_EQ(two.code, 0) << two.all();
  const Outcome alone = resume_on(1, "run", "train.max_steps=off");
  ASSERT_EQ(alone.code, 0) << alone.all();
  EXPECT_TRUE(tensors("run") == tensors("one"));
}

TEST_F(Workers, EvaluateTogetherAsOneDoes) {
  ASSERT_EQ(train_on(1, "one").code, 0);
  ASSERT_EQ(train_on(3, "three").code, 0);
  const auto one = events("one", "eval");
  const auto three = events("three", "eval");
  ASSERT_EQ(one.size(), three.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].at("loss"), three[i].at("loss"));
    EXPECT_EQ(one[i].at("accuracy"), three[i].at("accuracy"));
    EXPECT_EQ(one[i].at("samples"), three[i].at("samples"));
  }
}

TEST_F(Workers, WriteALogEach) {
  ASSERT_EQ(train_on(3, "run").code, 0);
  for (const int worker : {1, 2}) {
    EXPECT_THAT(
        content(folder_ / "run/logs" / ("worker-" + std::to_string(worker) + ".log")),
        AllOf(HasSubstr("this is worker " + std::to_string(worker)), HasSubstr("step 24/24")));
  }
}

TEST_F(Workers, WithoutAGrainAreLegalAndSaid) {
  const Outcome outcome = train_on(10, "run");
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, HasSubstr("2 of 10 workers have nothing to do"));
}

TEST_F(Workers, RefuseSharesThatAreNotAllGrains) {
  const Outcome outcome = train_on(2, "run", {"sync.shares=[5, 4]"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("sync.shares: [5, 4]"), HasSubstr("8 grains")));
}

TEST_F(Workers, SayWhatDiffersBetweenTheirJobs) {
  put(folder_ / "other.yaml", std::string(kJob) + "sync: {deadline: 20s}\n");
  const Outcome outcome =
      two("job.yaml --run run --set train.seed=3", "other.yaml --run run --set train.batch=64");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.all(),
              AllOf(HasSubstr("train.batch"), HasSubstr("train.seed"), HasSubstr("sync.deadline"),
                    HasSubstr("worker 1"), Not(HasSubstr("train.epochs"))));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(Workers, SayWhatDiffersBetweenTheirData) {
  const Outcome outcome = two("job.yaml --run run", "job.yaml --run run --set data.size=300");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.all(), AllOf(HasSubstr("fingerprint of the data"), HasSubstr("data.size")));
}

TEST_F(Workers, SayOnceWhatIsWrongForAll) {
  const Outcome outcome = train_on(3, "run", {"train.bacth=3"});
  EXPECT_EQ(outcome.code, 2);
  const size_t first = outcome.err.find("did you mean train.batch");
  ASSERT_NE(first, std::string::npos) << outcome.all();
  EXPECT_EQ(outcome.err.find("did you mean train.batch", first + 1), std::string::npos);
}

TEST_F(Workers, NameTheOneWhoseDataIsMissing) {
  const Outcome outcome =
      two("job.yaml --run run", "job.yaml --run run --set data.kind=cifar10 --set data.path=gone");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.all(), AllOf(HasSubstr("worker 1"), HasSubstr("gone")));
}

TEST_F(HurtWorkers, EndWhenOneOfThemIsKilled) {
  const Outcome outcome = hurt("run", SIGKILL);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("worker 1"), HasSubstr("SIGKILL"))) << outcome.all();
  EXPECT_FALSE(tensors("run").empty());
}

TEST_F(HurtWorkers, EndAfterTheDeadlineWhenOneOfThemIsStopped) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = hurt("run", SIGSTOP);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("worker 0"), HasSubstr("step "),
                                 AnyOf(HasSubstr("worker 1"), HasSubstr("rank 1"))));
  EXPECT_LT(took.count(), 60);
  EXPECT_FALSE(tensors("run").empty());
}

}  // namespace
}  // namespace convoy::app
