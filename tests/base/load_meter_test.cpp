// The formulas of the header, on written files.

#include "convoy/base/load_meter.hpp"

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace convoy {
namespace {

namespace fs = std::filesystem;

// A made-up machine, with clocks that tests set.
class LoadFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(testing::TempDir()) / (std::string("convoy_load_") + test->name());
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  /// Seconds that each CPU was busy so far, stolen ones, and the threads that are runnable.
  void put_stat(const std::vector<double>& busy, int runnable, double steal = 0) const {
    std::string text = "cpu  1 2 3 4 5 6 7 8 0 0\n";
    for (size_t i = 0; i < busy.size(); ++i) {
      const double idle = std::round(100 * (1000 + time_ - busy[i] - steal));
      const double for_disks = std::round(0.3 * idle);
      text += fmt::format("cpu{} 5 0 0 {:.0f} {:.0f} 0 0 {:.0f} 0 0\n", i, idle - for_disks,
                          for_disks, 100 * steal);
    }
    // On real machines the line of interrupts is longer than a page.
    text += "intr 9" + std::string(9000, ' ') + "0\nctxt 5\n";
    put("proc/stat", text + fmt::format("procs_running {}\nprocs_blocked 0\n", runnable));
  }
  /// A thread of ours: seconds that it ran and waited, and whether it wants to run.
  void put_thread(int id, double run, double waited, char state = 'S') const {
    const std::string folder = fmt::format("proc/self/task/{}/", id);
    put(folder + "schedstat", fmt::format("{:.0f} {:.0f} 5\n", 1e9 * run, 1e9 * waited));
    put(folder + "stat", fmt::format("{} (a ) name) {} 1 1 0\n", id, state));
  }
  LoadMeter meter(std::vector<int> cores) const {
    return LoadMeter(std::move(cores),
                     {root_, [this] { return Seconds{time_}; }, [this] { return Seconds{own_}; }});
  }

  fs::path root_;
  double time_ = 100;
  double own_ = 5;
};

TEST_F(LoadFiles, NothingKnownIsNothingInTheWay) {
  LoadMeter meter = this->meter({0});
  time_ += 1;
  const LoadReading reading = meter.read();
  EXPECT_EQ(reading.cpu, 1);
  EXPECT_EQ(reading.memory, 1);
  EXPECT_EQ(reading.throttled, 0);
  EXPECT_EQ(reading.others, 0);
  EXPECT_EQ(reading.quota, 1);
}

TEST_F(LoadFiles, NonsenseIsNothingInTheWay) {
  put("proc/stat", "cpu0 a b c\ncpu1\nprocs_running many\n");
  put("proc/meminfo", "MemTotal: none\nMemAvailable:\n");
  put("proc/self/cgroup", "0:\n::\n1:cpu:/../../..\n0::/x\n");
  put("proc/self/mountinfo", "1 2 3\n - \n1 2 3:4 / /sys/fs/cgroup rw - cgroup2 none rw\n");
  put("sys/fs/cgroup/x/cpu.max", "\n");
  put("proc/self/task/17/schedstat", "x");
  LoadMeter meter = this->meter({0});
  time_ += 1;
  EXPECT_EQ(meter.read().cpu, 1);
}

TEST_F(LoadFiles, OthersAreWhatIsBusyOnOurCoresAndNotOurs) {
  put_stat({10, 10, 10}, 1);
  LoadMeter meter = this->meter({0, 2});
  time_ += 1;
  own_ += 1.2;
  put_stat({10.9, 11, 10.7}, 1);
  const LoadReading reading = meter.read();
  EXPECT_NEAR(reading.others, 0.4 / 2, 1e-9) << "0.9 + 0.7 busy less 1.2 of our own";
  EXPECT_NEAR(reading.cpu, 0.8, 1e-9);
}

TEST_F(LoadFiles, NoCoresMeanAllOfTheMachine) {
  put_stat({10, 10}, 1);
  LoadMeter meter = this->meter({});
  time_ += 1;
  put_stat({10.2, 10.4}, 1);
  EXPECT_NEAR(meter.read().cpu, 0.7, 1e-9);
}

TEST_F(LoadFiles, StolenTimeIsLost) {
  put_stat({10}, 1, 3);
  LoadMeter meter = this->meter({0});
  time_ += 1;
  own_ += 0.7;
  put_stat({10.7}, 1, 3.3);
  const LoadReading reading = meter.read();
  EXPECT_NEAR(reading.steal, 0.3, 1e-9);
  EXPECT_NEAR(reading.cpu, 0.7, 1e-9);
}

TEST_F(LoadFiles, WhoTakesAllWhileWeSleepGivesHalfBack) {
  put_stat({10}, 2);
  LoadMeter meter = this->meter({0});
  time_ += 1;
  put_stat({11}, 2);
  const LoadReading reading = meter.read();
  EXPECT_NEAR(reading.others, 1, 1e-9);
  EXPECT_NEAR(reading.cpu, 0.5, 1e-9);
  time_ += 1;
  put_stat({12}, 4);
  EXPECT_NEAR(meter.read().cpu, (0.25 + 0.25 * 0.5) / 2, 1e-9) << "three, two of them new";
  time_ += 1;
  put_stat({13}, 4);
  EXPECT_NEAR(meter.read().cpu, 0.25, 1e-9) << "none of them is new";
}

TEST_F(LoadFiles, WhatTheyTakeOfOneCoreTheyDoNotTakeOfAnother) {
  put_stat({10, 10}, 1);
  LoadMeter meter = this->meter({0, 1});
  time_ += 1;
  put_stat({11, 10}, 1);
  EXPECT_NEAR(meter.read().cpu, 0.75, 1e-9) << "half of one core of two";
  time_ += 1;
  put_stat({11.5, 10.5}, 1);
  EXPECT_NEAR(meter.read().cpu, 0.5, 1e-9);
}

TEST_F(LoadFiles, WhatOurThreadsGotWhenTheyWantedIsOurs) {
  put_stat({10}, 1);
  put_thread(7, 3, 1);
  put_thread(8, 9, 9);
  LoadMeter meter = this->meter({0});
  time_ += 1;
  // They wanted 0.4 s and got 0.3; the other one used what we left while we slept.
  own_ += 0.3;
  put_stat({11}, 1);
  put_thread(7, 3.2, 1.1);
  put_thread(8, 9.1, 9);
  const LoadReading reading = meter.read();
  EXPECT_NEAR(reading.others, 0.7, 1e-9);
  EXPECT_NEAR(reading.waited, 0.25, 1e-9);
  EXPECT_NEAR(reading.cpu, 0.75, 1e-9);
}

TEST_F(LoadFiles, OurThreadsWaitingForEachOtherIsNobodyElsesFault) {
  put_stat({10}, 1);
  put_thread(7, 3, 1);
  put_thread(8, 3, 1);
  LoadMeter meter = this->meter({0});
  time_ += 1;
  own_ += 1;
  put_stat({11}, 1);
  put_thread(7, 3.5, 1.5);
  put_thread(8, 3.5, 1.5);
  const LoadReading reading = meter.read();
  EXPECT_NEAR(reading.waited, 0.5, 1e-9);
  EXPECT_NEAR(reading.cpu, 1, 1e-9);
}

TEST_F(LoadFiles, ThreadsComeAndGoBetweenReadings) {
  put_stat({10}, 1);
  put_thread(7, 3, 1);
  LoadMeter meter = this->meter({0});
  fs::remove_all(root_ / "proc/self/task/7");
  put_thread(9, 50, 50);
  for (const double more : {1.0, 2.0}) {
    time_ += 1;
    put_stat({10 + more}, 1);
    put_thread(9, 50 + 0.2 * more, 50 + 0.05 * more);
    EXPECT_NEAR(meter.read().cpu, more == 1 ? 0.5 : 0.8, 1e-9)
        << "what it did before it was seen does not count";
  }
}

TEST_F(LoadFiles, ALoadThatHasJustBegunIsSeenBeforeItHasUsedAnything) {
  put_stat({10, 10}, 1);
  put_thread(7, 1, 0, 'R');
  put_thread(8, 1, 0, 'S');
  LoadMeter meter = this->meter({0, 1});
  time_ += 1;
  put_stat({10, 10}, 2);
  EXPECT_NEAR(meter.read().cpu, (1 + 0.75) / 2, 1e-9) << "it would take half of one of two cores";
}

TEST_F(LoadFiles, OurOwnRunnableThreadsAreNoCompetitors) {
  put_stat({10, 10}, 1);
  put_thread(7, 1, 0, 'R');
  put_thread(8, 1, 0, 'R');
  LoadMeter meter = this->meter({0, 1});
  time_ += 1;
  put_stat({10, 10}, 2);
  EXPECT_NEAR(meter.read().cpu, 1, 1e-9);
  time_ += 1;
  put_stat({10, 10}, 4);
  EXPECT_NEAR(meter.read().cpu, (1 + 0.5) / 2, 1e-9);
}

TEST_F(LoadFiles, ThoseWhoHaveRoomElsewhereAreNoCompetitors) {
  put_stat({10, 10, 10}, 1);
  LoadMeter meter = this->meter({1});
  time_ += 1;
  put_stat({10, 10, 10}, 3);
  EXPECT_NEAR(meter.read().cpu, 1, 1e-9);
  time_ += 1;
  put_stat({11, 10, 11}, 4);
  EXPECT_NEAR(meter.read().cpu, (1 + 5.0 / 6) / 2, 1e-9)
      << "one of four shares with another on three CPUs";
}

TEST_F(LoadFiles, ASurplusThatStaysButUsesNothingOfOursIsElsewhere) {
  put_stat({10, 10}, 1);
  LoadMeter meter = this->meter({0});
  for (const double expected : {0.875, 1.0, 1.0}) {
    time_ += 0.5;
    put_stat({10, 10 + time_ - 100}, 3);
    EXPECT_NEAR(meter.read().cpu, expected, 1e-9);
  }
}

TEST_F(LoadFiles, ReadingsInShortOrderLookBackATenthOfASecond) {
  put_stat({10}, 1);
  LoadMeter meter = this->meter({0});
  double busy = 10;
  LoadReading reading;
  for (int i = 1; i <= 40; ++i) {
    time_ += 0.01;
    if (i % 10 == 0) busy += 0.04;  // all at once, as counters with a coarse clock may
    put_stat({busy}, 1);
    reading = meter.read();
    if (i >= 10) {
      EXPECT_NEAR(reading.others, 0.4, 0.05) << i;
    }
  }
}

TEST_F(LoadFiles, AskedAgainAtOnceItAnswersTheSame) {
  put_stat({10}, 1);
  LoadMeter meter = this->meter({0});
  time_ += 1;
  put_stat({10.3}, 1);
  EXPECT_NEAR(meter.read().cpu, 0.7, 1e-9);
  time_ += 0.001;
  put_stat({99}, 9);
  EXPECT_NEAR(meter.read().cpu, 0.7, 1e-9);
}

TEST_F(LoadFiles, TheTightestQuotaOfVersion1IsReadAnewEachTime) {
  put_stat({10, 10}, 1);
  put("proc/self/cgroup", "3:memory:/\n1:cpu,cpuacct:/outer/inner\n");
  put("proc/self/mountinfo",
      "30 24 0:27 / /groups/memory rw - cgroup none rw,memory\n"
      "31 24 0:28 / /groups/cpu rw,relatime shared:9 - cgroup none rw,cpu,cpuacct\n");
  put("groups/cpu/cpu.cfs_quota_us", "-1\n");
  put("groups/cpu/cpu.cfs_period_us", "100000\n");
  put("groups/cpu/outer/cpu.cfs_quota_us", "15000\n");
  put("groups/cpu/outer/cpu.cfs_period_us", "10000\n");
  put("groups/cpu/outer/cpu.stat", "nr_periods 1\nnr_throttled 1\nthrottled_time 5000000000\n");
  put("groups/cpu/outer/inner/cpu.cfs_quota_us", "-1\n");
  put("groups/cpu/outer/inner/cpu.cfs_period_us", "10000\n");
  put("groups/cpu/outer/inner/cpu.stat", "throttled_time 0\n");
  LoadMeter meter = this->meter({0, 1});
  time_ += 0.1;
  put_stat({10, 10}, 1);
  put("groups/cpu/outer/cpu.stat", "nr_periods 1\nnr_throttled 1\nthrottled_time 5050000000\n");
  LoadReading reading = meter.read();
  EXPECT_NEAR(reading.quota, 0.75, 1e-9);
  EXPECT_NEAR(reading.cpu, 0.75, 1e-9);
  EXPECT_NEAR(reading.throttled, 0.05 / 0.2, 1e-9);
  time_ += 0.1;
  put_stat({10, 10}, 1);
  put("groups/cpu/outer/inner/cpu.cfs_quota_us", "5000\n");
  reading = meter.read();
  EXPECT_NEAR(reading.cpu, 0.25, 1e-9);
  EXPECT_EQ(reading.throttled, 0);
  time_ += 0.1;
  put_stat({10, 10}, 1);
  put("groups/cpu/outer/cpu.cfs_quota_us", "-1\n");
  put("groups/cpu/outer/inner/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(meter.read().cpu, 1);
}

TEST_F(LoadFiles, Version2IsUnderstoodInAContainerThatSeesOnlyItsOwnPart) {
  put_stat({10}, 1);
  put("proc/self/cgroup", "0::/machine/box/job\n");
  put("proc/self/mountinfo", "31 24 0:28 /machine/box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put("sys/fs/cgroup/cpu.max", "max 100000\n");
  put("sys/fs/cgroup/job/cpu.max", "4000 10000\n");
  put("sys/fs/cgroup/job/cpu.stat", "usage_usec 7\nthrottled_usec 1000000\n");
  LoadMeter meter = this->meter({0});
  time_ += 0.5;
  put_stat({10}, 1);
  put("sys/fs/cgroup/job/cpu.stat", "usage_usec 7\nthrottled_usec 1200000\n");
  const LoadReading reading = meter.read();
  EXPECT_NEAR(reading.cpu, 0.4, 1e-9);
  EXPECT_NEAR(reading.throttled, 0.4, 1e-9);
}

TEST_F(LoadFiles, AProcessThatIsMovedToAnotherGroupIsFoundThere) {
  put_stat({10}, 1);
  put("proc/self/cgroup", "0::/a\n");
  put("sys/fs/cgroup/a/cpu.max", "max 10000\n");
  LoadMeter meter = this->meter({0});
  put("proc/self/cgroup", "0::/b\n");
  put("sys/fs/cgroup/b/cpu.max", "3000 10000\n");
  time_ += 1;
  put_stat({10}, 1);
  EXPECT_NEAR(meter.read().cpu, 0.3, 1e-9);
}

TEST_F(LoadFiles, WhoeverTakesLessWinsOfQuotaAndOthers) {
  put_stat({10}, 1);
  put("proc/self/cgroup", "0::/a\n");
  put("sys/fs/cgroup/a/cpu.max", "8000 10000\n");
  LoadMeter meter = this->meter({0});
  time_ += 1;
  put_stat({10.4}, 1);
  EXPECT_NEAR(meter.read().cpu, 0.6, 1e-9);
  time_ += 1;
  put_stat({10.4}, 1);
  EXPECT_NEAR(meter.read().cpu, 0.8, 1e-9);
}

TEST_F(LoadFiles, MemoryIsThatOfTheMachineOrOfTheGroup) {
  put("proc/meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\n");
  LoadMeter meter = this->meter({0});
  EXPECT_NEAR(meter.read().memory, 0.6, 1e-9);
  EXPECT_EQ(meter.read().memory_available.value, 600 * 1024);
  put("proc/self/cgroup", "0::/a\n");
  put("sys/fs/cgroup/a/memory.max", fmt::format("{}\n", 400 * 1024));
  put("sys/fs/cgroup/a/memory.current", fmt::format("{}\n", 300 * 1024));
  time_ += 1;
  EXPECT_NEAR(meter.read().memory, 0.25, 1e-9);
  EXPECT_EQ(meter.read().memory_available.value, 100 * 1024);
}

}  // namespace
}  // namespace convoy
