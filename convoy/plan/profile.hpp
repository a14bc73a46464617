#pragma once
// Measured times of convolution algorithms on this machine.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/engine/algorithm.hpp"
#include "convoy/model/graph.hpp"
#include "convoy/plan/measurements.hpp"

namespace convoy::plan {

/// One direction of one convolution by one algorithm.
struct ConvTiming {
  engine::Algorithm algorithm = engine::Algorithm::direct;
  Seconds time;         ///< of one grain on one lane, while all lanes work
  Seconds preparation;  ///< of its prepared weights, once per step, on one core
  Bytes workspace;      ///< of one lane
  Bytes kept;           ///< prepared weights, once for all lanes
};

/// All ways to compute one convolution of a model; the first of each direction is direct.
struct ConvProfile {
  model::LayerId layer = 0;
  engine::ConvShape shape;
  /// By Direction; empty if the layer's input needs no gradient.
  std::array<std::vector<ConvTiming>, 3> timings;

  std::vector<ConvTiming>& of(engine::Direction direction) {
    return timings[static_cast<size_t>(direction)];
  }
  const std::vector<ConvTiming>& of(engine::Direction direction) const {
    return timings[static_cast<size_t>(direction)];
  }
};

struct ProfileOptions {
  int64_t grain = 16;
  int lanes = 1;
  int threads_per_lane = 1;
  std::vector<int> cores;  ///< as StepperOptions::cores
  bool exact = false;      ///< leave out F(4×4): engine.precision
  /// What a measurement may take; algorithms that need more are left out. 0: no limit.
  Bytes memory;
  /// Measure also what cannot be the fastest: for the table.
  bool thorough = false;
  /// Called before each measurement that is not in the cache, and with done == all after the last.
  std::function<void(int done, int all, const std::string& what)> progress;
};

/// Every convolution of the graph by the algorithms that can do it: those that might be the fastest
/// or, if `thorough`, all. Takes what is known and adds to it what it measures.
std::vector<ConvProfile> profile_convolutions(const model::Graph& graph,
                                              const ProfileOptions& options, Measurements& known);

/// The table for people.
std::string describe(const std::vector<ConvProfile>& profile, const model::Graph& graph);

}  // namespace convoy::plan
