// The load meter on the machine that these tests run on, with real processes and a real quota.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convoy/base/cgroup.hpp"
#include "convoy/base/load_meter.hpp"
#include "convoy/base/threads.hpp"

namespace convoy {
namespace {

namespace fs = std::filesystem;

void spin(Seconds span) {
  const double end = now().value + span.value;
  while (now().value < end) {
  }
}

/// A process that computes on one core until it is ended, or for 20 s.
class Competitor {
 public:
  explicit Competitor(int core) : id_(::fork()) {
    if (id_ != 0) return;
    pin_this_thread(core);
    spin({20});
    ::_exit(0);
  }
  ~Competitor() {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  Competitor(const Competitor&) = delete;
  Competitor& operator=(const Competitor&) = delete;

 private:
  pid_t id_;
};

/// What the meter says after each of some spans of computing.
std::vector<double> cpu_while_computing(LoadMeter& meter, int readings) {
  std::vector<double> cpu;
  for (int i = 0; i < readings; ++i) {
    spin({0.06});
    cpu.push_back(meter.read().cpu);
  }
  return cpu;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

TEST(LoadMeter, ReadsThisMachineWithinBounds) {
  LoadMeter meter(usable_cores().cores);
  for (int i = 0; i < 5; ++i) {
    spin({0.005});
    const LoadReading reading = meter.read();
    EXPECT_GT(reading.cpu, 0);
    for (const double part : {reading.cpu, reading.memory, reading.throttled, reading.steal,
                              reading.others, reading.waited, reading.quota}) {
      EXPECT_GE(part, 0);
      EXPECT_LE(part, 1);
    }
    EXPECT_GT(reading.memory_available.value, 1 << 20);
  }
}

TEST(LoadMeter, ReadsInMicroseconds) {
  double time = now().value;
  LoadSources sources;
  sources.clock = [&time] { return Seconds{time += 0.003}; };  // never the same reading
  LoadMeter meter(usable_cores().cores, sources);
  std::vector<double> costs;
  for (int i = 0; i < 300; ++i) {
    const double begin = now().value;
    meter.read();
    costs.push_back(1e6 * (now().value - begin));
  }
  RecordProperty("microseconds", fmt::format("{:.1f}", median(costs)));
  std::cout << "median " << median(costs) << " µs, most "
            << *std::max_element(costs.begin(), costs.end()) << " µs\n";
  EXPECT_LT(median(costs), 500) << "60 are usual; sanitizers and busy machines take longer";
}

TEST(LoadMeter, SeesABusyProcessOnOurCore) {
  std::thread([] {
    const int core = usable_cores().cores.back();
    ASSERT_TRUE(pin_this_thread(core));
    LoadMeter meter({core});
    const double before = median(cpu_while_computing(meter, 7));
    const Competitor one(core);
    const Competitor two(core);
    const double beside_two = median(cpu_while_computing(meter, 9));
    // Others may use this core too: then it was less before, and is less now.
    EXPECT_LT(beside_two, 0.75 * before);
    EXPECT_LT(beside_two, 0.5) << "a third is fair";
    EXPECT_GT(beside_two, 0.05);
  }).join();
}

/// A control group with a quota, made for a test; none if the system does not let us.
class TestGroup {
 public:
  TestGroup() {
    for (const cgroup::Level& level : cgroup::levels("cpu")) {
      const fs::path folder =
          level.folder / fmt::format("convoy-test-{}", static_cast<int>(::getpid()));
      std::error_code failed;
      fs::create_directory(folder, failed);
      const fs::path quota = folder / (level.unified ? "cpu.max" : "cpu.cfs_quota_us");
      if (!failed && ::access(quota.c_str(), W_OK) == 0) {
        folder_ = folder;
        unified_ = level.unified;
        return;
      }
      fs::remove(folder, failed);
    }
  }
  ~TestGroup() {
    if (made()) ::rmdir(folder_.c_str());
  }
  TestGroup(const TestGroup&) = delete;
  TestGroup& operator=(const TestGroup&) = delete;

  bool made() const { return !folder_.empty(); }
  void limit(int percent) const {
    if (unified_) {
      std::ofstream(folder_ / "cpu.max") << 100 * percent << " 10000";
    } else {
      std::ofstream(folder_ / "cpu.cfs_period_us") << 10000;
      std::ofstream(folder_ / "cpu.cfs_quota_us") << 100 * percent;
    }
  }
  bool enter() const {
    return static_cast<bool>(std::ofstream(folder_ / "cgroup.procs") << ::getpid() << std::flush);
  }

 private:
  fs::path folder_;
  bool unified_ = false;
};

/// In a process of its own, so that this one is never held back: 0 if the quota was seen.
int see_a_quota(const TestGroup& group) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!group.enter()) ::_exit(77);
    const int core = usable_cores().cores.back();
    pin_this_thread(core);
    LoadMeter meter({core});
    spin({0.05});
    if (meter.read().quota != 1) ::_exit(1);
    group.limit(30);
    // On a busy machine it may take a while until the quota is what holds us back.
    LoadReading reading;
    for (int i = 0; i < 30 && reading.throttled < 0.1; ++i) {
      spin({0.1});
      reading = meter.read();
      std::cout << fmt::format("cpu {:.3f}, quota {:.3f}, throttled {:.3f}, others {:.3f}\n",
                               reading.cpu, reading.quota, reading.throttled, reading.others)
                << std::flush;
      if (std::abs(reading.quota - 0.3) > 1e-6 || reading.cpu > 0.3 + 1e-6) ::_exit(2);
    }
    ::_exit(reading.throttled < 0.1 ? 3 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

TEST(LoadMeter, SeesARealQuotaThatIsSetWhileItRuns) {
  const TestGroup group;
  const int code = group.made() ? see_a_quota(group) : 77;
  if (code == 77) {
    GTEST_SKIP() << "NO QUOTA WAS TRIED: this user may make no control group with a CPU quota "
                    "(needs root and a writable cpu controller of version 1 or 2)";
  }
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace convoy
