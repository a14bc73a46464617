#pragma once
// How one bucket goes between hosts: the sum of its gradients to the owners of its strips, the new
// weights from them to all. Used again and again, step by step, by the communication thread.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "convoy/comm/algorithm.hpp"
#include "convoy/comm/gate.hpp"
#include "convoy/comm/task.hpp"
#include "convoy/sync/gradient_tree.hpp"

namespace convoy::sync {

/// What the hosts bring to a sum: the grains of each, and what this one holds of them.
struct HostSums {
  // Not an aggregate: see comm::Until.
  HostSums(std::vector<GrainRange> by_rank, std::vector<HeldSum> held_here)
      : ranges(std::move(by_rank)), held(std::move(held_here)) {}
  std::vector<GrainRange> ranges;  ///< by rank of the communicator; together all grains of a batch
  std::vector<HeldSum> held;       ///< covers this rank's grains
};

class BucketExchange {
 public:
  virtual ~BucketExchange() = default;

  /// Sums over the ranks, which all bring the same ranges. What is held stays as it is until the
  /// task has ended. Sends may pass through `gate`.
  virtual comm::Task part_reduce(HostSums sums, comm::Gate& gate, int priority) = 0;
  /// After part_reduce: the sum over all ranks of floats [begin, end) of the own strip.
  virtual const float* sum(int64_t begin, int64_t end, std::span<float> workspace) const = 0;

  /// Part-broadcast, in two halves that run side by side: the own strip of `arena` goes to the
  /// others, and theirs come here. The second one should start as soon as the arena may be written
  /// to, whatever else is still missing: others' gates may be waiting for it.
  virtual comm::Task give_strip(std::span<float> arena, comm::Gate& gate, int priority) = 0;
  virtual comm::Task take_strips(std::span<float> arena, const comm::Gate& gate) = 0;
};

/// By any of the collectives (convoy/comm): each host's gradients are added up first, so the order
/// of the sum, and with it the last bits, depends on who ran which grains.
class FastExchange final : public BucketExchange {
 public:
  /// `grains`: those of a batch. `strips`: the arena floats that each rank owns, as the way has
  /// them (comm::strips_for).
  FastExchange(comm::Communicator& c, int64_t grains, comm::Strips strips, const comm::Way& way,
               int tag);

  comm::Task part_reduce(HostSums sums, comm::Gate& gate, int priority) override;
  const float* sum(int64_t begin, int64_t end, std::span<float> workspace) const override;
  comm::Task give_strip(std::span<float> arena, comm::Gate& gate, int priority) override;
  comm::Task take_strips(std::span<float> arena, const comm::Gate& gate) override;

 private:
  comm::Communicator& c_;
  int64_t grains_;
  int64_t begin_;        // of the bucket
  comm::Strips strips_;  // counted from there
  comm::Way way_;
  int tag_;
  AlignedBuffer values_;
};

}  // namespace convoy::sync
