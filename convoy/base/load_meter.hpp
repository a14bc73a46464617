#pragma once
// What a worker could have of its machine now: asked before a step, answered from /proc and from
// the control group in some tens of microseconds.
//
// A process has n cores, and its threads run there; the machine has m CPUs; k threads of others are
// runnable at this moment. Since the last reading that is 0.1 s old or older:
//
//   others_c = time in which core c was neither idle nor stolen (/proc/stat), less our own CPU
//   time,
//              taken to be spread evenly over our cores; interrupts are among the others
//   left  = mean over our cores of max(1 − others_c, 1 / (1 + max(1, ⌈k/n⌉)))
//   got   = run / (run + waited) of our threads (schedstat): what they had when they wanted to run
//   was   = max(left, got) − steal
//
// Who uses a whole core while we sleep gives half of it back when we wake, hence the fair part in
// `left`; how many they are is a guess if they sleep at this moment. Otherwise both are lower
// bounds of what we could have had: others may do with less when we want more, and our threads may
// have waited for each other.
//
// Those are of the past. A load that has just begun shows first in how many threads are runnable.
// Those that outnumber the CPUs, s = max(0, n + k − m), have to share somewhere. If they are more
// than the least of the readings since then (s₀), the interval does not know them yet, and
//
//   now   = was · A(s, m) / A(s₀, m)
//   cpu   = min(quota, (was + now) / 2)
//
// where A(s, m) is what a thread on each of m CPUs has if s more are spread over them: the mean of
// 1 / (1 + how many more are there). Half, because who is runnable at one moment may be asleep in
// the next. A surplus that stays is in `was` from then on if it is on our cores, and nowhere if it
// is on others. So a load that is pinned to one of our cores is seen at once if all CPUs are in
// use, else by the next reading; one that is pinned elsewhere lowers our `cpu` a little, for one
// reading. A load that has ended is forgotten at the pace of the interval.
//
// `quota` is the tightest of our control groups', in parts of our cores, as if we were alone in
// them; it is read anew each time, and so is `throttled`.

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy {

/// All but memory_available are parts of the whole, 0 … 1.
struct LoadReading {
  double cpu = 1;        ///< of our cores' time that this process could use; more than 0
  double memory = 1;     ///< available / total, of the machine or of the tightest control group
  double throttled = 0;  ///< of the time since the last reading, by a quota
  double steal = 0;      ///< of our cores' time, taken by other virtual machines
  double others = 0;     ///< of our cores' time, used by other processes and by interrupts
  double waited = 0;     ///< of the time our threads wanted to run, spent waiting for a core
  double quota = 1;      ///< of our cores' time, granted by control groups
  Bytes memory_available;
};

/// CPU time of this process, all threads together.
Seconds process_time();
/// CPU time of the calling thread.
Seconds thread_time();

/// Where a meter looks; tests hand in made-up files and clocks.
struct LoadSources {
  std::filesystem::path root = "/";  ///< of the file system
  std::function<Seconds()> clock = now;
  std::function<Seconds()> process_time = convoy::process_time;
};

/// Keeps its files open and reads them again and again. What is missing or cannot be read counts as
/// "nothing is in the way"; nothing is thrown. Not for several threads at once.
class LoadMeter {
 public:
  /// Of a process on these logical CPUs; none: on all of the machine. The first interval begins
  /// here.
  explicit LoadMeter(std::vector<int> cores, LoadSources sources = {});
  ~LoadMeter();
  LoadMeter(LoadMeter&&) noexcept;
  LoadMeter& operator=(LoadMeter&&) noexcept;

  /// Within 2 ms of the last time, the last reading again. Memory, and which groups we are in, are
  /// looked up once a second: that takes longer, and neither changes fast.
  LoadReading read();

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
};

}  // namespace convoy
