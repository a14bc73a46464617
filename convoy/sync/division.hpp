#pragma once
// How the grains of a batch fall to the workers and their lanes. Shares may change between steps,
// while parts of the last step are still under way, so every step keeps the division it began with.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "convoy/sync/gradient_tree.hpp"
#include "convoy/sync/team.hpp"

namespace convoy::sync {

/// The lanes of a host, worker by worker, and the grains of each.
struct LaneTable {
  std::vector<GrainRange> ranges;  ///< by lane of the host
  std::vector<int> first;          ///< by local worker: its first lane
  int active = 0;                  ///< lanes that have grains

  int lanes() const { return static_cast<int>(ranges.size()); }
};

struct Division {
  std::vector<GrainRange> ranges;  ///< by rank
  std::vector<GrainRange> hosts;   ///< by host
  LaneTable lanes;                 ///< of this host
  int here = 0;                    ///< lanes of this worker that have grains
  /// What the lanes of this host hold when their grains are done; filled in by whoever knows where.
  std::vector<HeldSum> held;

  /// The grains of this worker.
  const GrainRange& own(const Team& team) const { return ranges[static_cast<size_t>(team.rank())]; }
  /// The grains of lane `lane` of this worker.
  const GrainRange& of_lane(const Team& team, int lane) const {
    const int index = lanes.first[static_cast<size_t>(team.local())] + lane;
    return lanes.ranges[static_cast<size_t>(index)];
  }
};

/// Part `part` of `parts` of a range: a contiguous run.
GrainRange part_of(const GrainRange& range, int64_t part, int64_t parts);

/// `shares`: grains of each worker; empty: equal. `lanes`: how many each worker has.
Division divide(const Team& team, int64_t grains, std::span<const int64_t> shares,
                std::span<const int64_t> lanes);

}  // namespace convoy::sync
