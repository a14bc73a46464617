// Slow-down on purpose: from traces, by constants and at random, and lanes that really take longer.

#include "convoy/sync/replay.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/base/load_meter.hpp"

namespace convoy::sync {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string refusal(const std::string& what, int workers = 4) {
  try {
    Replay::read(what, workers);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

/// A file with this text that is gone after the test.
class TraceFile {
 public:
  explicit TraceFile(const std::string& text)
      : path_(std::filesystem::path(testing::TempDir()) /
              (std::string("convoy_replay_") +
               testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv")) {
    std::ofstream(path_) << text;
  }
  ~TraceFile() { std::filesystem::remove(path_); }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  std::string name() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(Replay, ConstantSpeedsAreThoseOfTheWorkersInTurn) {
  const Replay replay = Replay::read("constant:1,0.5,0.25", 4);
  EXPECT_EQ(replay.speed(0, 0), 1);
  EXPECT_EQ(replay.speed(1, 0), 0.5);
  EXPECT_EQ(replay.speed(2, 1000000), 0.25);
  EXPECT_EQ(replay.speed(3, 7), 1);
  EXPECT_EQ(replay.load(1, 7).cpu, 1) << "a slow machine need not be a busy one";
  EXPECT_EQ(replay.describe(), "emulated: workers at 1, 0.5, 0.25 of full speed");
  EXPECT_EQ(Replay::read("constant:0.5", 1).speed(0, 0), 0.5);
}

TEST(Replay, SpeedsChangeEveryFewStepsAndLoadTells) {
  const Replay replay = Replay::read("steps:20-60", 3);
  std::set<double> seen;
  for (int worker = 0; worker < 3; ++worker) {
    int64_t since = -1;
    for (int64_t step = 1; step < 4000; ++step) {
      const double speed = replay.speed(worker, step);
      seen.insert(speed);
      EXPECT_EQ(replay.load(worker, step).cpu, speed);
      if (speed == replay.speed(worker, step - 1)) continue;
      if (since >= 0) {
        EXPECT_GE(step - since, 20);
        EXPECT_LE(step - since, 60);
      }
      since = step;
    }
    EXPECT_GT(since, 3900) << "it changes to the end";
  }
  EXPECT_THAT(seen, testing::ElementsAre(0.25, 0.5, 0.75, 1));
  EXPECT_THAT(replay.describe(),
              AllOf(StartsWith("emulated: "), HasSubstr("20 to 60 steps"), HasSubstr("seed 1")));
}

TEST(Replay, ChangesAreTheSameForASeedAndOtherwiseNot) {
  const Replay one = Replay::read("steps:2-5:0.3,0.6,1:7", 4);
  const Replay more = Replay::read("steps:2-5:0.3,0.6,1:7", 8);
  const Replay other = Replay::read("steps:2-5:0.3,0.6,1:8", 4);
  int differ = 0;
  int workers_differ = 0;
  for (int64_t step = 0; step < 500; ++step) {
    EXPECT_EQ(one.speed(3, step), more.speed(3, step)) << "however many workers there are";
    differ += one.speed(3, step) != other.speed(3, step);
    workers_differ += one.speed(3, step) != one.speed(2, step);
  }
  EXPECT_GT(differ, 100);
  EXPECT_GT(workers_differ, 100);
}

TEST(Replay, StepsWithoutMemoryTakeAsLongOnAverageAsSaid) {
  const Replay replay = Replay::read("memoryless:8:3", 2);
  double sum = 0;
  int longer = 0;
  int much_longer = 0;
  constexpr int kSteps = 8000;
  for (int64_t step = 0; step < kSteps; ++step) {
    const double times = 1 / replay.speed(1, step);
    ASSERT_GE(times, 1);
    sum += times;
    longer += times > 8;
    much_longer += times > 15;
  }
  EXPECT_NEAR(sum / kSteps, 8, 0.3);
  // Whatever it has taken so far, what is still to come is as long: of those that took 1 + 7 times
  // as long, as many take 7 more as of all.
  const double of_all = static_cast<double>(longer) / kSteps;
  EXPECT_NEAR(of_all, std::exp(-1), 0.02);
  EXPECT_NEAR(static_cast<double>(much_longer) / longer, of_all, 0.03);
  EXPECT_NE(replay.speed(0, 5), replay.speed(1, 5));
  EXPECT_NE(replay.speed(0, 5), Replay::read("memoryless:8:4", 2).speed(0, 5));
  EXPECT_THAT(replay.describe(), AllOf(StartsWith("emulated: "), HasSubstr("without memory")));
}

TEST(Replay, ATraceIsRelativeToItsFastestStepAndWrapsAround) {
  const TraceFile file(
      "m_1,10,20,50,,,1,2,3\nm_1,20,60,70,,,1,2,3\nm_1,30,20,10,,,1,2,3\n"
      "m_2,10,10,50,,,1,2,3\nm_2,20,100,70,,,1,2,3\nm_2,30,84,70,,,1,2,3\n");
  const Replay replay = Replay::read(file.name(), 5);
  EXPECT_DOUBLE_EQ(replay.speed(0, 0), 0.4 / 0.8);
  EXPECT_DOUBLE_EQ(replay.speed(0, 1), 1);
  EXPECT_DOUBLE_EQ(replay.speed(0, 2), 0.5) << "from the start";
  EXPECT_DOUBLE_EQ(replay.speed(1, 0), kLeastFree / 0.8);
  EXPECT_DOUBLE_EQ(replay.speed(3, 1), 0.16 / 0.8) << "the second one's";
  EXPECT_DOUBLE_EQ(replay.load(0, 0).cpu, 0.8) << "as it was before the step";
  EXPECT_DOUBLE_EQ(replay.load(0, 0).memory, 0.5);
  EXPECT_THAT(replay.describe(), AllOf(StartsWith("emulated: replays convoy_replay_"),
                                       HasSubstr("stands in"), HasSubstr("2 workers")));
}

TEST(Replay, MadeUpTracesHaveTheirNames) {
  for (const char* name : {"load-ahead", "noise"}) {
    const Replay replay = Replay::read(name, 3);
    double fastest = 0;
    for (int worker = 0; worker < 3; ++worker) {
      for (int64_t step = 0; step < 1000; ++step) {
        ASSERT_GT(replay.speed(worker, step), 0);
        fastest = std::max(fastest, replay.speed(worker, step));
      }
    }
    EXPECT_EQ(fastest, 1);
    EXPECT_THAT(replay.describe(), AllOf(StartsWith("emulated: "), HasSubstr(name)));
  }
}

TEST(Replay, RefusesWithWhatWouldBeRight) {
  EXPECT_THAT(refusal(""), HasSubstr("expected constant:1,0.5"));
  EXPECT_THAT(refusal("nowhere.csv"),
              AllOf(HasSubstr("nowhere.csv"), HasSubstr("no such file"), HasSubstr("steps:20-60")));
  EXPECT_THAT(refusal("constnt:1,2"), HasSubstr("did you mean constant?"));
  EXPECT_THAT(refusal("memoryless:1"), HasSubstr("above 1"));
  EXPECT_THAT(refusal("memoryless:8:x"), HasSubstr("found 'x'"));
  EXPECT_THAT(refusal("constant:1,0"), AllOf(HasSubstr("above 0"), HasSubstr("found '0'")));
  EXPECT_THAT(refusal("constant:1,-0.5"), HasSubstr("found '-0.5'"));
  EXPECT_THAT(refusal("constant:2,1"), HasSubstr("up to 1"));
  EXPECT_THAT(refusal("constant:nan"), HasSubstr("found 'nan'"));
  EXPECT_THAT(refusal("constant:1,,0.5"), HasSubstr("found ''"));
  EXPECT_THAT(refusal("constant:"), HasSubstr("found ''"));
  EXPECT_THAT(refusal("constant:1,0.5,0.25", 2),
              AllOf(HasSubstr("3 speeds"), HasSubstr("are 2 workers")));
  EXPECT_THAT(refusal("steps:60-20"), HasSubstr("such as 20-60"));
  EXPECT_THAT(refusal("steps:0-20"), HasSubstr("found '0-20'"));
  EXPECT_THAT(refusal("steps:1-2-3"), HasSubstr("found '1-2-3'"));
  EXPECT_THAT(refusal("steps:"), HasSubstr("such as 20-60"));
  EXPECT_THAT(refusal("steps:20-60:0.5"), HasSubstr("constant:0.5"));
  EXPECT_THAT(refusal("steps:20-60:0.5,1:x"), HasSubstr("found 'x'"));
  EXPECT_THAT(refusal("steps:20-60:0.5,1:1:2"), HasSubstr(":SEED"));
  const TraceFile wrong("some,other,table\n1,2,3\n");
  EXPECT_THAT(refusal(wrong.name()), AllOf(HasSubstr(wrong.name()), HasSubstr("Bitbrains")));
}

TEST(Replay, APauseMakesComputingAsLongAsAtThatSpeed) {
  EXPECT_DOUBLE_EQ(pause({0.1}, {0.1}, 0.25).value, 0.3);
  EXPECT_DOUBLE_EQ(pause({0.1}, {0.1}, 1).value, 0);
  EXPECT_DOUBLE_EQ(pause({0.1}, {0.25}, 0.25).value, 0.15) << "it had to wait for the core";
}

TEST(Brake, ManyPausesTakeTheirSumAndNoCpuTime) {
  double late = 1;
  // Late by one wake-up, not by two hundred; on a busy machine not at the first attempt.
  for (int attempt = 0; attempt < 10 && late > 4e-3; ++attempt) {
    Brake brake;
    const Seconds begin = now();
    const Seconds used = process_time();
    double sum = 0;
    for (int i = 0; i < 200; ++i) {
      const double length = 1e-6 * (10 + 7 * (i % 100));  // many too short to sleep for
      brake.hold_back({length});
      sum += length;
    }
    late = (now() - begin).value - sum;
    EXPECT_GT(late, -100e-6);
    EXPECT_LT((process_time() - used).value, 0.5 * sum);
  }
  EXPECT_LT(late, 4e-3);
}

TEST(Brake, WhatIsNoTimeIsNoPause) {
  Brake brake;
  const Seconds begin = now();
  brake.hold_back({0});
  brake.hold_back({-3});
  brake.hold_back({std::nan("")});
  brake.hold_back({INFINITY});
  EXPECT_LT((now() - begin).value, 1);
}

}  // namespace
}  // namespace convoy::sync
