#pragma once
// The gradients of many workers, summed in the one order of the tree: bit for bit what one worker
// would get. A rank holds whole subtrees of its run of grains; for each strip, its owner gets all
// subtrees' values and adds them up as the tree says.
//
//   6 grains, shares 3 and 3      rank 0 holds (1,0) and (0,2), rank 1 holds (0,3) and (1,2)
//   strip of rank 0               rank 1 sends its two subtrees' values of that strip to rank 0
//
// A rank with h subtrees sends h·S·(N − 1)/N: as much as a ring where shares are whole subtrees
// (h = 1), which equal shares of a power of two are; and in one step instead of N − 1.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "convoy/base/memory.hpp"
#include "convoy/comm/collectives.hpp"
#include "convoy/comm/gate.hpp"
#include "convoy/sync/bucket_exchange.hpp"
#include "convoy/sync/gradient_tree.hpp"

namespace convoy::sync {

/// One bucket, exchanged between the ranks of a communicator again and again, step by step.
class TreeExchange final : public BucketExchange {
 public:
  /// `grains`: those of a batch; `strips`: the arena floats that each rank owns. A collective with
  /// this tag must not be under way twice.
  TreeExchange(comm::Communicator& c, int64_t grains, std::vector<comm::Strip> strips, int tag);

  comm::Task part_reduce(HostSums sums, comm::Gate& gate, int priority) override;
  const float* sum(int64_t begin, int64_t end, std::span<float> workspace) const override {
    return total_->sum(begin, end, workspace);
  }
  comm::Task give_strip(std::span<float> arena, comm::Gate& gate, int priority) override;
  comm::Task take_strips(std::span<float> arena, const comm::Gate& gate) override;

  const comm::Strip& own() const { return strips_[static_cast<size_t>(c_.rank())]; }

  /// What rank `rank` sends in a part-reduce and a part-broadcast.
  static comm::Traffic traffic(int rank, const std::vector<GrainRange>& ranges,
                               const std::vector<comm::Strip>& strips, const comm::Gate& gate);
  /// How long both take where every rank holds at most `held` subtrees, in slices of the gate that
  /// the link asks for.
  static Seconds time(int ranks, int64_t held, int64_t count, const comm::LinkSpeed& link);

 private:
  comm::Communicator& c_;
  int64_t grains_;
  std::vector<comm::Strip> strips_;
  int64_t longest_ = 0;  // strip
  int tag_;
  std::vector<AlignedBuffer> arrived_;  // by subtree of the others
  std::vector<AlignedBuffer> given_;    // sums that had to be made before they could be sent
  std::unique_ptr<TreeTotal> total_;
};

}  // namespace convoy::sync
