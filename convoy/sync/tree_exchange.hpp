#pragma once
// The gradients of many workers, summed in the one order of the tree: bit for bit what one worker
// would get. A worker holds whole subtrees of its run of grains; for each strip, its owner gets all
// subtrees' values and adds them up as the tree says.
//
//   6 grains, shares 3 and 3      rank 0 holds (1,0) and (0,2), rank 1 holds (0,3) and (1,2)
//   strip of rank 0               rank 1 sends its two subtrees' values of that strip to rank 0
//
// A rank with h subtrees sends h·S·(N − 1)/N: as much as a ring where shares are whole subtrees
// (h = 1), which equal shares of a power of two are.

#include <cstdint>
#include <span>
#include <vector>

#include "convoy/comm/collectives.hpp"
#include "convoy/sync/gradient_tree.hpp"

namespace convoy::sync {

/// Grains [first, last) of a batch: what a worker or a lane runs. May be empty.
struct GrainRange {
  int64_t first = 0;
  int64_t last = 0;
  int64_t size() const { return last - first; }
  bool operator==(const GrainRange&) const = default;
};

/// The runs of grains that workers with these shares get, in the order of their ranks.
std::vector<GrainRange> ranges_of(std::span<const int64_t> shares);

/// The subtrees that make up a run of grains: as few as possible, left to right.
std::vector<TreeNode> subtrees(const GrainRange& range);

/// The sum over all workers of values [begin, end), a bucket, for this rank's strip of it.
/// `ranges` has every rank's grains; `held` this rank's subtrees, whole arenas. `sum` takes the
/// strip comm::strip_of(end − begin, rank, ranks). Everything must stay until the task has ended.
comm::Task tree_part_reduce(comm::Communicator& c, const std::vector<GrainRange>& ranges,
                            const std::vector<HeldSum>& held, int64_t begin, int64_t end,
                            std::span<float> sum, int tag);

/// What rank `rank` sends for a bucket of `count` values.
comm::Traffic tree_traffic(int rank, const std::vector<GrainRange>& ranges, int64_t count);

}  // namespace convoy::sync
