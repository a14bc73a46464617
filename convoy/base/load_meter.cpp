#include "convoy/base/load_meter.hpp"

#include <algorithm>
#include <ctime>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <dirent.h>
#include <unistd.h>

#include "convoy/base/cgroup.hpp"
#include "convoy/base/kept_file.hpp"
#include "convoy/base/memory.hpp"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using std::string_view;

constexpr double kSameReading = 0.002;
// /proc/stat counts in hundredths of a second: over less than this, an error of one is too much.
constexpr double kInterval = 0.1;
constexpr double kLookAround = 1;
constexpr double kLeastCpu = 0.01;
// Who wanted less of a core than this has not learned what it would have got.
constexpr double kLeastWanted = 0.1;

double part(double amount, double whole) {
  return whole > 0 ? std::clamp(amount / whole, 0.0, 1.0) : 0.0;
}

/// What a thread on each of `cpus` CPUs has if `more` are spread over them.
double fair_part(int more, int cpus) {
  if (cpus <= 0) return 1;
  const int everywhere = more / cpus;
  const int crowded = more % cpus;
  return (static_cast<double>(crowded) / (everywhere + 2) +
          static_cast<double>(cpus - crowded) / (everywhere + 1)) /
         cpus;
}

/// /proc/stat, as far as it concerns us; times in seconds. The kernel measures how long a CPU is
/// idle, but of who is busy there it often only takes samples, by a clock that quotas and sleepers
/// keep in step with: a process that is throttled for half of the time looked busy for three
/// quarters. So busy is what is not idle.
struct CpuTimes {
  int cpus = 0;              ///< of the machine
  std::vector<double> away;  ///< idle or stolen, by core of ours
  double steal = 0;          ///< of all cores of ours
  int runnable = 0;          ///< threads, on the whole machine

  int ours() const { return static_cast<int>(away.size()); }
};

CpuTimes parse_cpu_times(string_view text, const std::vector<int>& cores) {
  static const double tick = 1.0 / static_cast<double>(std::max(1L, ::sysconf(_SC_CLK_TCK)));
  CpuTimes times;
  while (!text.empty()) {
    string_view line = next_line(text);
    const string_view name = next_word(line);
    if (name == "procs_running") {
      times.runnable = static_cast<int>(to_number(next_word(line), 0));
      break;
    }
    if (!name.starts_with("cpu") || name.size() == 3) continue;
    ++times.cpus;
    const int cpu = static_cast<int>(to_number(name.substr(3), -1));
    if (!cores.empty() && std::find(cores.begin(), cores.end(), cpu) == cores.end()) continue;
    // user nice system idle iowait irq softirq steal …
    for (int skipped = 0; skipped < 3; ++skipped) next_word(line);
    const double idle = to_number(next_word(line), -1);
    const double waits_for_disks = to_number(next_word(line), 0);
    for (int skipped = 0; skipped < 2; ++skipped) next_word(line);
    const double steal = to_number(next_word(line), 0);
    if (idle < 0) continue;
    times.away.push_back(tick * (idle + waits_for_disks + steal));
    times.steal += tick * steal;
  }
  return times;
}

/// The threads of this process: how long they ran and waited for a CPU, since they were first seen.
class OwnThreads {
 public:
  explicit OwnThreads(fs::path folder)
      : path_(std::move(folder)), folder_(::opendir(path_.c_str()), ::closedir) {}

  struct Times {
    double run = 0;
    double waited = 0;
  };
  Times times(std::string& buffer) {
    list();
    for (auto at = threads_.begin(); at != threads_.end();) {
      string_view text = at->second.schedstat.text(buffer);
      if (text.empty()) {  // it has ended
        at = threads_.erase(at);
        continue;
      }
      constexpr double kNanosecond = 1e-9;
      const Times now{kNanosecond * to_number(next_word(text), 0),
                      kNanosecond * to_number(next_word(text), 0)};
      if (Thread& thread = at->second; std::exchange(thread.seen, true)) {
        sum_.run += now.run - thread.last.run;
        sum_.waited += now.waited - thread.last.waited;
      }
      at->second.last = now;
      ++at;
    }
    return sum_;
  }

  /// How many of them run or want to at this moment: the one that asks, at least.
  int runnable(std::string& buffer) const {
    int count = 0;
    for (const auto& [id, thread] : threads_) {
      // "7 (name) R …", where a name may hold anything.
      const string_view text = thread.stat.text(buffer);
      const size_t name_end = text.rfind(") ");
      if (name_end != string_view::npos && text.substr(name_end + 2).starts_with('R')) ++count;
    }
    return std::max(1, count);
  }

 private:
  struct Thread {
    KeptFile schedstat;
    KeptFile stat;
    bool seen = false;
    Times last;
  };

  void list() {
    if (folder_ == nullptr) return;
    ::rewinddir(folder_.get());
    while (const dirent* entry = ::readdir(folder_.get())) {
      const int id = static_cast<int>(to_number(entry->d_name, -1));
      if (id < 0 || threads_.contains(id)) continue;
      const fs::path files = path_ / entry->d_name;
      threads_.emplace(id, Thread{KeptFile(files / "schedstat"), KeptFile(files / "stat"), {}, {}});
    }
  }

  fs::path path_;
  std::unique_ptr<DIR, int (*)(DIR*)> folder_;
  std::map<int, Thread> threads_;
  Times sum_;
};

/// The control groups that may hold back our CPU time.
class Quotas {
 public:
  explicit Quotas(fs::path root) : root_(std::move(root)) {}

  /// Finds the groups that we are in now.
  void look_around(std::string& buffer) {
    std::vector<cgroup::Level> levels = cgroup::levels("cpu", root_);
    if (levels != levels_) {
      groups_.clear();
      for (const cgroup::Level& level : levels) {
        const fs::path& f = level.folder;
        groups_.push_back({level.unified,
                           KeptFile(f / (level.unified ? "cpu.max" : "cpu.cfs_quota_us")),
                           KeptFile(f / (level.unified ? "cpu.max" : "cpu.cfs_period_us")),
                           KeptFile(f / "cpu.stat"), 0});
      }
      levels_ = std::move(levels);
      for (Group& group : groups_) group.throttled = throttled(group, buffer);
    }
    for (Group& group : groups_) {
      group.quota.reopen();
      group.period.reopen();
      group.stat.reopen();
    }
  }

  struct Reading {
    std::optional<double> cpus;  ///< the tightest quota
    double throttled = 0;        ///< since the last time, in seconds, summed over CPUs
  };
  Reading read(std::string& buffer) {
    Reading reading;
    for (Group& group : groups_) {
      const auto cpus = quota(group, buffer);
      if (!cpus) continue;  // nor does its throttled time grow
      reading.cpus = std::min(*cpus, reading.cpus.value_or(*cpus));
      const double total = throttled(group, buffer);
      reading.throttled =
          std::max(reading.throttled, total - std::exchange(group.throttled, total));
    }
    return reading;
  }

 private:
  struct Group {
    bool unified = false;
    KeptFile quota;
    KeptFile period;
    KeptFile stat;
    double throttled = 0;  // in all, when it was last limited
  };

  static std::optional<double> quota(const Group& group, std::string& buffer) {
    string_view text = group.quota.text(buffer);
    const double quota = to_number(next_word(text), -1);  // "max" or −1: none
    if (quota <= 0) return std::nullopt;
    if (!group.unified) text = group.period.text(buffer);
    const double period = to_number(next_word(text), -1);
    return period > 0 ? std::optional(quota / period) : std::nullopt;
  }

  static double throttled(const Group& group, std::string& buffer) {
    const string_view text = group.stat.text(buffer);
    return group.unified ? 1e-6 * number_after(text, "throttled_usec", 0)
                         : 1e-9 * number_after(text, "throttled_time", 0);
  }

  fs::path root_;
  std::vector<cgroup::Level> levels_;
  std::vector<Group> groups_;
};

Bytes total_memory(const KeptFile& meminfo, std::string& buffer, const fs::path& root) {
  constexpr double kUnknown = -1;
  const double machine = 1024 * number_after(meminfo.text(buffer), "MemTotal:", kUnknown);
  const auto limit = cgroup::memory_limit(root);
  if (machine < 0) return limit.value_or(Bytes{0});
  const Bytes all{static_cast<int64_t>(machine)};
  return std::min(all, limit.value_or(all));
}

}  // namespace

Seconds process_time() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return {static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec)};
}

Seconds thread_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return {static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec)};
}

class LoadMeter::Reader {
 public:
  Reader(std::vector<int> cores, LoadSources sources)
      : cores_(std::move(cores)),
        sources_(std::move(sources)),
        stat_(sources_.root / "proc/stat"),
        meminfo_(sources_.root / "proc/meminfo"),
        threads_(sources_.root / "proc/self/task"),
        quotas_(sources_.root) {
    const double time = sources_.clock().value;
    look_around(time);
    snapshots_.push_back(look(time));
  }

  LoadReading read() {
    const double time = sources_.clock().value;
    if (last_ && time - snapshots_.back().time < kSameReading) return *last_;
    if (time - looked_around_ >= kLookAround) look_around(time);
    const Snapshot now = look(time);
    while (snapshots_.size() > 1 && time - snapshots_[1].time >= kInterval) snapshots_.pop_front();

    LoadReading reading;
    const double was = over_interval(now, reading);
    const double soon = std::min(was, was * beside_newcomers(now));
    read_quota(time - snapshots_.back().time, now.times.ours(), reading);
    reading.cpu = std::max(kLeastCpu, std::min(reading.quota, (was + soon) / 2));
    reading.memory = memory_;
    reading.memory_available = memory_available_;
    snapshots_.push_back(now);
    last_ = reading;
    return reading;
  }

 private:
  /// All that only ever grows, and who is there at this moment.
  struct Snapshot {
    double time = 0;
    double own = 0;
    CpuTimes times;
    OwnThreads::Times threads;
    int competitors = 0;  ///< k of the header
    int surplus = 0;      ///< s
  };

  Snapshot look(double time) {
    Snapshot now;
    now.time = time;
    now.own = sources_.process_time().value;
    now.times = parse_cpu_times(stat_.text(buffer_), cores_);
    now.threads = threads_.times(buffer_);
    // Which of our threads are runnable takes long to find out, and one is.
    const int foreign =
        now.times.runnable > 1 ? now.times.runnable - threads_.runnable(buffer_) : 0;
    now.competitors = std::max(0, foreign);
    now.surplus = std::max(0, now.times.ours() + now.competitors - now.times.cpus);
    return now;
  }

  /// What is free by the time since the first snapshot: `was` of the header.
  double over_interval(const Snapshot& now, LoadReading& reading) const {
    const Snapshot& then = snapshots_.front();
    const double time = now.time - then.time;
    const double waited = now.threads.waited - then.threads.waited;
    const double wanted = now.threads.run - then.threads.run + waited;
    reading.steal = part(now.times.steal - then.times.steal, time * now.times.ours());
    reading.waited = part(waited, wanted);
    const double left = left_by_others(now, then, reading.others);
    const double got = wanted >= kLeastWanted * time ? 1 - reading.waited : 0;
    return std::max(left, got) - reading.steal;
  }

  static double left_by_others(const Snapshot& now, const Snapshot& then, double& others) {
    // Cores come and go with the machine's settings: such an interval says nothing.
    const int n = now.times.ours();
    if (n == 0 || n != then.times.ours()) return 1;
    const double time = now.time - then.time;
    const double own = (now.own - then.own) / n;
    const double fair = 1.0 / (1 + std::max(1, (now.competitors + n - 1) / n));
    double used = 0;
    double left = 0;
    for (size_t i = 0; i < now.times.away.size(); ++i) {
      const double here = time - (now.times.away[i] - then.times.away[i]) - own;
      used += here;
      left += std::max(1 - part(here, time), fair);
    }
    others = part(used, time * n);
    return left / n;
  }

  /// What those who were not there at the beginning of the interval leave us.
  double beside_newcomers(const Snapshot& now) const {
    const auto least = std::min_element(
        snapshots_.begin(), snapshots_.end(),
        [](const Snapshot& a, const Snapshot& b) { return a.surplus < b.surplus; });
    const int m = now.times.cpus;
    return fair_part(now.surplus, m) / fair_part(least->surplus, m);
  }

  void read_quota(double since_last, int cores, LoadReading& reading) {
    const int n = std::max(1, cores);
    const Quotas::Reading quota = quotas_.read(buffer_);
    if (quota.cpus) reading.quota = std::min(1.0, *quota.cpus / n);
    reading.throttled = part(quota.throttled, since_last * n);
  }

  void look_around(double time) {
    looked_around_ = time;
    stat_.reopen();
    meminfo_.reopen();
    quotas_.look_around(buffer_);
    memory_available_ = available_memory(sources_.root);
    const Bytes total = total_memory(meminfo_, buffer_, sources_.root);
    memory_ = total.value > 0 ? part(static_cast<double>(memory_available_.value),
                                     static_cast<double>(total.value))
                              : 1.0;
  }

  std::vector<int> cores_;
  LoadSources sources_;
  std::string buffer_;
  KeptFile stat_;
  KeptFile meminfo_;
  OwnThreads threads_;
  Quotas quotas_;
  double looked_around_ = 0;
  double memory_ = 1;
  Bytes memory_available_;
  std::deque<Snapshot> snapshots_;  // the first is where the interval begins
  std::optional<LoadReading> last_;
};

LoadMeter::LoadMeter(std::vector<int> cores, LoadSources sources)
    : reader_(std::make_unique<Reader>(std::move(cores), std::move(sources))) {}
LoadMeter::~LoadMeter() = default;
LoadMeter::LoadMeter(LoadMeter&&) noexcept = default;
LoadMeter& LoadMeter::operator=(LoadMeter&&) noexcept = default;

LoadReading LoadMeter::read() {
  return reader_->read();
}

}  // namespace convoy
