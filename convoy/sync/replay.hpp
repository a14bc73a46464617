#pragma once
// Slow workers on purpose: a lane computes, then sleeps for as long as a slower machine would have
// computed on. Which machine is slow when comes from a trace, so a run can be repeated. Whatever is
// measured with a replay is emulated, and says so: see describe().
//
//   constant:1,0.5,0.25        parts of full speed, by worker; nothing of it is visible as load
//   steps:20-60                each worker's speed changes at random every 20 to 60 steps, between
//   steps:20-60:0.3,1          a quarter, a half, three quarters and all of it, or between the
//   steps:20-60:0.3,1:7        levels given, by a seed (1 if none is given); load tells as of the
//                              very step
//   memoryless:8               every step of every worker takes 1 + 7·e times as long as at full
//   memoryless:8:7             speed, e drawn from the exponential distribution of mean 1, by a
//                              seed: how long it has worked says nothing about how long it still
//                              will, as theories of asynchrony have it; nothing of it is visible
//   load-ahead, noise          made up: load_ahead_trace(), noise_trace()
//   FILE                       what read_trace() reads
//
// Speeds of traces are relative to the fastest that occurs in them. Workers beyond those of a trace
// take its workers in turn, and after its last step comes its first.

#include <cstdint>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/sync/predict/predictor.hpp"
#include "convoy/sync/predict/traces.hpp"

namespace convoy::sync {

class Replay {
 public:
  /// For this many workers. Throws InputError with what would be right.
  static Replay read(const std::string& what, int workers);

  /// Of a worker in a step, as part of its full speed: 0 < speed ≤ 1.
  double speed(int worker, int64_t step) const { return at(worker, step).speed; }
  /// What is visible before that step.
  Load load(int worker, int64_t step) const { return at(worker, step).load; }
  /// "emulated: …", for wherever results appear.
  const std::string& describe() const { return description_; }

 private:
  Replay(std::vector<WorkerTrace> workers, std::string description);
  static Replay constant(const std::string& what, int workers);
  static Replay changing(const std::string& what, int workers);
  static Replay memoryless(const std::string& what, int workers);
  static Replay recorded(const std::string& what, int workers);

  const Observation& at(int worker, int64_t step) const;

  std::vector<WorkerTrace> workers_;
  std::string description_;
};

/// How long to sleep after having computed for `cpu`, which took `took` because others had the core
/// in between, to be as slow as at this speed: cpu / speed − took. Negative where it took too long.
Seconds pause(Seconds cpu, Seconds took, double speed);

/// Sleeps on behalf of one lane. The system wakes sleepers some 60 µs late, more on a busy core;
/// what one pause took too long, or was too short to sleep for, the next ones make good, so that
/// their sum is right to within a wake-up. Lateness beyond 10 ms is not made up for: a lane that
/// was stopped for a second should not run at full speed for the next one.
class Brake {
 public:
  /// Takes this long, and no CPU time worth mentioning. What is negative shortens later pauses.
  void hold_back(Seconds pause);

 private:
  Seconds owed_;  // negative after having slept too long
};

}  // namespace convoy::sync
