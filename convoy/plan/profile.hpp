#pragma once
// Measured times of convolution algorithms on this machine, kept on disk by CPU, shape and version.

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/engine/algorithm.hpp"
#include "convoy/model/graph.hpp"

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
  /// Where measurements are kept; empty: nowhere.
  std::filesystem::path cache;
  /// Called before each measurement that is not in the cache.
  std::function<void(int done, int all, const std::string& what)> progress;
  /// Gets a line when a cache is ignored.
  std::function<void(const std::string& line)> note;
};

/// The folder for caches: $XDG_CACHE_HOME/convoy or ~/.cache/convoy; empty if there is neither.
std::filesystem::path cache_folder();

/// Every convolution of the graph by every algorithm that can do it.
std::vector<ConvProfile> profile_convolutions(const model::Graph& graph,
                                              const ProfileOptions& options);

/// The table for people.
std::string describe(const std::vector<ConvProfile>& profile, const model::Graph& graph);

}  // namespace convoy::plan
