#pragma once
// The linear layers at the end of a network, merged on one rank (Omnivore): it has their weights
// and computes them for all groups, one batch after the other, updating in place. Groups send it
// what comes out of the rest of the network and get its gradient back, so these weights never
// travel, and gradients are never computed from old ones.
//
//   workers of a group    rows of a round, labels ──►  classifier's rank: forward, loss, backward;
//                         ◄── loss, rows' gradient     with the batch's last round: update
//
// While a batch has further rounds, other groups' batches wait.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "convoy/base/memory.hpp"
#include "convoy/base/units.hpp"
#include "convoy/comm/comm_thread.hpp"
#include "convoy/comm/communicator.hpp"
#include "convoy/sync/split_tail.hpp"
#include "convoy/sync/tail_part.hpp"
#include "convoy/sync/team.hpp"

namespace convoy::sync {

struct MergedTailOptions {
  int rank = 0;                          ///< of the world: who computes
  std::vector<std::vector<int>> groups;  ///< ranks of the world
  SplitTailOptions tail;
};

class MergedTail final : public TailPart {
 public:
  /// Collective over the world. `group`: this rank's; none: it only computes for others. All must
  /// outlive it; `weights` and `states` are the arenas that this rank sees, and `writes` says
  /// whether it is the one of those who see them that may write to them.
  MergedTail(const Team& world, std::optional<int> group, const engine::Program& program,
             const optim::Optimizer& optimizer, const MergedTailOptions& options,
             std::span<float> weights, std::vector<std::span<float>> states, bool writes);
  ~MergedTail() override;

  /// Collective over the world, before the first step: rank 0's arenas have the tail.
  void load();

  void update(const optim::StepContext& /*context*/) override {}  // was made where it is computed
  bool meets_after_update() const override { return false; }
  void settle() override;
  /// Collective over the world: weights to all, states to rank 0.
  void collect(bool states) override;

  /// Batches that were not finite and did not become updates; where they are computed.
  int64_t refused() const;

 private:
  class Server;
  struct Header;

  void begin_step() override { first_ = true; }
  void run_round(const std::vector<Place>& places) override;
  comm::Task exchange(const Header& header);
  void compute_here(const Header& header);
  comm::Task move_to_server();
  comm::Task move_from_server(bool states);
  std::span<float> tail_of(std::span<float> arena) const {
    return arena.first(static_cast<size_t>(tail_.floats));
  }

  const Team& world_;
  const engine::Program& program_;
  MergedTailOptions options_;
  engine::Tail tail_;
  std::span<float> weights_;
  std::vector<std::span<float>> states_;
  std::vector<int64_t> takers_;                 // by rank: 1 for those that write
  std::unique_ptr<comm::Communicator> comm_;    // of lanes; on the classifier's rank of its thread
  std::unique_ptr<comm::Communicator> models_;  // for whole weights
  std::optional<int> group_;
  bool first_ = true;  // round of a batch

  // Of a round.
  std::vector<int64_t> samples_;
  std::vector<int32_t> labels_;
  std::vector<float> rows_;  // then their gradients
  std::vector<engine::GrainResult> results_;

  std::unique_ptr<Server> server_;
};

}  // namespace convoy::sync
