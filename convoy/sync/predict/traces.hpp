#pragma once
// Records of how fast workers were, and what their machines had free, to try predictors on.
//
// Three public kinds are read, recognised by their content, plain or gzipped:
//   mini-batch times   Alibaba PAI 2020: measured time of each worker's mini-batches, nothing on
//   load machine usage      Alibaba 2018: CPU and memory in use per machine, without a header
//   Bitbrains          GWA-T-12: one `;`-separated file per virtual machine, alone or in a tar
//
// The last two know load only, and load is not speed. Their stand-in for the speed of a step is the
// part of the CPU that was free in it, (100 − cpu %) / 100, at least kLeastFree; the load that was
// visible before it is that of the sample before, so that nothing is known ahead of its time.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "convoy/sync/predict/predictor.hpp"

namespace convoy::sync {

struct WorkerTrace {
  std::string name;
  /// One per step. `load` is what was visible before the step.
  std::vector<Observation> steps;
};

struct Trace {
  std::string name;
  /// Speeds are the stand-in above, not measured.
  bool stand_in = false;
  /// Where a made-up trace comes from no machine at all.
  bool made_up = false;
  std::vector<WorkerTrace> workers;
};

/// A machine in full use still gives a worker something.
inline constexpr double kLeastFree = 0.05;

/// The trace in a file. Throws InputError with file, line and what was expected there.
Trace read_trace(const std::filesystem::path& path);
/// The same from bytes that were read; `name` is for messages.
Trace parse_trace(const std::string& name, std::vector<uint8_t> bytes);

/// Another job comes and goes on each worker's machine: free CPU drops to a level between a quarter
/// and three quarters for 20 to 60 steps, and speed follows one step later, with 3 % of noise on
/// both. Memory in use follows the CPU half of the time. Made up to see who notices.
Trace load_ahead_trace(int workers, int steps, uint64_t seed);
/// A constant speed per worker with 5 % of noise, and load that means nothing: there is nothing to
/// learn, and the best prediction is the mean.
Trace noise_trace(int workers, int steps, uint64_t seed);

}  // namespace convoy::sync
