#include "convoy/sync/division.hpp"

namespace convoy::sync {

GrainRange part_of(const GrainRange& range, int64_t part, int64_t parts) {
  return {range.first + range.size() * part / parts,
          range.first + range.size() * (part + 1) / parts};
}

Division divide(const Team& team, int64_t grains, std::span<const int64_t> shares,
                std::span<const int64_t> lanes) {
  Division d;
  d.ranges = team.ranges(grains, shares);
  for (int n = 0; n < team.nodes(); ++n) d.hosts.push_back(team.node_range(d.ranges, n));
  for (const int rank : team.members(team.node())) {
    d.lanes.first.push_back(d.lanes.lanes());
    const int64_t count = lanes[static_cast<size_t>(rank)];
    for (int64_t lane = 0; lane < count; ++lane) {
      d.lanes.ranges.push_back(part_of(d.ranges[static_cast<size_t>(rank)], lane, count));
      if (d.lanes.ranges.back().size() == 0) continue;
      ++d.lanes.active;
      if (rank == team.rank()) ++d.here;
    }
  }
  return d;
}

}  // namespace convoy::sync
