#pragma once
// A model that groups of workers train without waiting for each other (group_layout.hpp). Within a
// group everything is as without groups: an Exchange sums gradients bucket by bucket as the
// backward pass completes them. But where each worker would update its strips of the model, it
// pushes their gradients to the servers, which own the model, and gets the newest weights back,
// which the group's next forward pass waits for layer by layer. One update per batch of a group;
// the optimizer's state lives at the servers.
//
//   group 0: workers 0, 1 ─┬─ push, pull, bucket by bucket ─► server 0: shard 0, and tickets
//   group 1: workers 2, 3 ─┴──────────────────────────────► server 1: shard 1
//
// Training goes by segments of batches of the one training stream; whichever group is free takes
// the next. Between segments nothing is under way, and everybody has the whole model:
//
//   GroupModel model(world, layout, group, program, optimizer, options);   // collective
//   Stepper stepper(…, {… .exchange.remote = &model}, group);               // of the group
//   model.load(weights, states);                                            // collective
//   model.begin_segment(first, last);                                       // collective
//   while (const auto ticket = model.ticket()) {                            // of the group
//     stepper.step(ticket->batch, learning_rate, …);
//   }
//   stepper.settle();
//   const GroupSegment end = model.end_segment(weights, states);            // collective
//
// Servers without a group leave out what is of the group. One thread of a worker at a time may
// call. What is thrown ends it: it is of no use afterwards.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convoy/comm/comm_thread.hpp"
#include "convoy/comm/turnstile.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/optim/asynchrony.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/group_layout.hpp"
#include "convoy/sync/model_shard.hpp"
#include "convoy/sync/remote_model.hpp"
#include "convoy/sync/shard_lines.hpp"
#include "convoy/sync/team.hpp"
#include "convoy/sync/tickets.hpp"

namespace convoy::sync {

/// What the optimizer applies of momentum where several groups bring some of their own.
struct MomentumRule {
  double total = 0;               ///< that shall be in force; 0: the optimizer has none
  std::optional<double> applied;  ///< none: less by what the groups bring, 1 − 1/groups
  bool measured = false;          ///< a closed loop measures the total in force and corrects
};

struct GroupOptions {
  UpdateOptions update;
  /// Batches that a group may be ahead of the slowest; less than 0: any.
  int64_t bound = -1;
  MomentumRule momentum;
  Bytes stripe;  ///< of the model, that one server owns; 0: by the model's size
  Seconds deadline{60};
  Seconds pause{300e-6};
};

/// What a segment came to; the same for all.
struct GroupSegment {
  int64_t last = 0;     ///< batches from the segment's first to before this one were handed out
  int64_t pieces = 0;   ///< gradients of buckets' pieces that became updates
  int64_t refused = 0;  ///< pieces that were not finite
  Staleness staleness;  ///< of pieces
  double momentum = 0;  ///< applied at its end
  /// In force, as far as the servers could see; none if it was not measured.
  std::optional<double> measured;
};

class GroupModel final : public RemoteModel {
 public:
  /// Collective over `world`. `group`: the team of this rank's group, null for a server of its own;
  /// it was made with Team's `exchanges`. All must outlive it.
  GroupModel(const Team& world, const GroupLayout& layout, const Team* group,
             const engine::Program& program, const optim::Optimizer& optimizer,
             const GroupOptions& options);
  ~GroupModel() override;

  using States = std::vector<std::span<float>>;

  /// Collective over the world, outside segments: rank 0's arenas become the model, and everybody's
  /// `weights` are written (if they share memory, by one of them).
  void load(std::span<float> weights, const States& states);

  /// Collective over the world. All say the same; waits for the others with the team's patience().
  void begin_segment(int64_t first, int64_t last);

  struct Ticket {
    int64_t batch = 0;
    double momentum = 0;  ///< to be applied
  };
  /// Collective over the group: its next batch; none: there are no more in this segment.
  std::optional<Ticket> ticket();
  /// Collective over the group: no further batches for anybody.
  void close();

  /// Collective over the world, when there are no more tickets and the stepper is settled: compares
  /// what was pushed with what was applied (throws Error if they differ), and brings the weights to
  /// all and the states to rank 0.
  GroupSegment end_segment(std::span<float> weights, const States& states);

  const Staleness& staleness() const { return staleness_; }
  int groups() const { return layout_.groups(); }

  // ---- RemoteModel
  comm::CommThread& thread() override { return *thread_; }
  size_t add_strips(const std::vector<comm::Strip>& strips) override;
  std::span<float> gradient(size_t bucket) override;
  comm::Task swap(size_t bucket, optim::StepContext context, bool refused,
                  std::span<float> weights) override;
  void await(const std::function<bool()>& holds) override;

 private:
  struct Call;
  struct Answer;
  struct Counts;
  /// What of a bucket's strip is in one stripe.
  struct Piece {
    size_t server = 0;  // its place among them
    size_t line = 0;
    comm::Strip floats;
    int64_t version = 0;
    Push push;
    Pull pull;
  };
  struct Bucket {
    comm::Strip strip;
    AlignedBuffer gradient;
    std::vector<double> norms;
    std::vector<std::unique_ptr<Piece>> pieces;
  };

  void run(const std::string& what, const std::function<comm::Task()>& make);
  bool serves() const { return shard_ != nullptr; }
  size_t owner(size_t stripe) const { return stripe % layout_.servers.size(); }
  bool coordinates() const { return layout_.servers.front() == world_.rank(); }
  /// True for the one of a group's workers on a host that writes what they share.
  bool writes() const { return group_ == nullptr || group_->local() == 0; }
  void make_lines();
  comm::Task exchange_piece(size_t bucket, Piece& piece, bool refused, std::span<float> weights);
  comm::Task ask(Call call, Answer& answer);
  void answer_leader(int group);
  comm::Task serve_leader(int group);
  comm::Task leave();
  comm::Task scatter(std::vector<std::span<const float>> model);
  comm::Task collect(std::span<float> weights, States states);
  GroupSegment add_up(const std::vector<Counts>& all) const;

  const Team& world_;
  GroupLayout layout_;
  const Team* group_;
  GroupOptions options_;
  comm::Strips stripes_;
  std::vector<comm::Turnstile> turns_;  // by server, of what this client pushes
  size_t norms_ = 0;
  std::atomic<double> momentum_{0};  // of the newest ticket
  std::vector<int64_t> takers_;  // by rank: 1 for those that write the weights of a host and group

  std::vector<Bucket> buckets_;  // of this client
  size_t lines_taken_ = 0;
  bool lines_made_ = false;
  bool over_ = true;
  std::atomic<int64_t> pushed_{0};
  std::atomic<int64_t> void_{0};

  Staleness staleness_;
  std::unique_ptr<comm::Communicator> comm_;
  std::unique_ptr<ModelShard> shard_;
  // Of the coordinator.
  std::unique_ptr<Tickets> tickets_;
  std::unique_ptr<optim::MomentumLoop> loop_;
  std::vector<std::unique_ptr<Call>> calls_;      // by group
  std::vector<std::unique_ptr<Answer>> answers_;  // by group
  std::atomic<int> left_{0};                      // groups

  std::unique_ptr<ShardLines> lines_;
  std::unique_ptr<comm::CommThread> thread_;
};

}  // namespace convoy::sync
