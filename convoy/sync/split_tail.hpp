#pragma once
// The linear layers at the end of a network (engine::Tail), split over workers: each has a slice of
// every layer's outputs and computes it for everybody's samples. What travels are activations, not
// weights and their gradients (Das16), which pays where a layer has many weights and a batch few
// samples. With `copies` G > 1 the workers form G teams, each with all slices, whose gradients are
// summed between teams (hybrid); G = 1 is model parallel.
//
//   lanes      forward … ─┐ rows                                     ┌─ … backward
//   driver                gather rows ─ each layer: own outputs for all rows, gather outputs ─ loss
//                         ─ each layer back: own weights' gradients, sum inputs' gradients ─ to
//                         lanes
//
// Weights stay where the arena has them, which is complete on every worker only after collect().
// Where groups train against servers (RemoteModel), each slice's gradient goes to these, and its
// new weights come while the next step's forward pass has begun.

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "convoy/base/memory.hpp"
#include "convoy/base/units.hpp"
#include "convoy/comm/communicator.hpp"
#include "convoy/comm/task.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/remote_model.hpp"
#include "convoy/sync/tail_part.hpp"

namespace convoy::sync {

/// Outputs [first, last) of a layer, multiples of 8.
struct OutputSlice {
  int64_t first = 0;
  int64_t last = 0;
  int64_t size() const { return last - first; }
};

/// Slice `index` of `count` of a layer with so many (padded) outputs. May be empty.
OutputSlice slice_of(int64_t outputs, int index, int count);

struct SplitTailOptions {
  int copies = 1;  ///< divides the workers
  int64_t batch = 0;
  uint64_t seed = 1;
  bool decay_all = true;
  Seconds deadline{60};
  int layers = 0;  ///< of the tail, the last ones; 0: all
  /// Updates the slices instead of their workers; must outlive it.
  RemoteModel* remote = nullptr;
};

class SplitTail final : public TailPart {
 public:
  /// Collective over `workers`, which it gets a communicator of its own from. The program has a
  /// tail. All must outlive it; `weights` and `states` are the arenas that this worker sees.
  SplitTail(comm::Communicator& workers, const engine::Program& program,
            const optim::Optimizer& optimizer, const SplitTailOptions& options,
            std::span<float> weights, std::vector<std::span<float>> states);
  /// Alone: for a server, which gives it the rows of others.
  SplitTail(const engine::Program& program, const optim::Optimizer& optimizer,
            const SplitTailOptions& options, std::span<float> weights,
            std::vector<std::span<float>> states);
  ~SplitTail() override;

  /// Alone: rows of some grains, by grain the number of the first sample. Their gradient replaces
  /// them, and losses go into `results`.
  struct Rows {
    std::span<const int64_t> samples;
    std::span<const int32_t> labels;
    std::span<float> rows;
    std::span<engine::GrainResult> results;
  };
  /// Alone: a batch begins; its gradients are added up until update().
  void begin_batch(int64_t step, double learning_rate) { begin(step, learning_rate, {{}}); }
  void compute(const std::vector<Rows>& parts);

  void update(const optim::StepContext& context) override;
  bool meets_after_update() const override { return copies_ != nullptr; }
  /// With a remote model: until the slices' new weights are here.
  void settle() override;
  void collect(bool states) override;

  comm::Traffic sent() const { return team_ ? team_->sent() : comm::Traffic{}; }
  /// What member `member` of a team sends in a round, in which each brings so many rows.
  static comm::Traffic traffic(const engine::Tail& tail, const std::vector<int64_t>& rows,
                               int member);

 private:
  struct Layer;
  SplitTail(std::vector<int> team, int place, const engine::Program& program,
            const optim::Optimizer& optimizer, const SplitTailOptions& options,
            std::span<float> weights, std::vector<std::span<float>> states);
  void make_layers();
  void compute_round(const std::vector<int64_t>& counts);
  void begin_step() override;
  void run_round(const std::vector<Place>& places) override;
  void forward(int64_t rows);
  void backward(int64_t rows);
  void drop_out(size_t layer, int64_t rows);
  comm::Task gather_rows(const std::vector<int64_t>& rows, int64_t length, std::span<float> all);
  comm::Task gather_labels(const std::vector<int64_t>& rows);
  comm::Task gather_columns(size_t layer, int64_t rows);
  comm::Task reduce_columns(size_t layer, int64_t rows);
  comm::Task reduce_rows(const std::vector<int64_t>& rows, int64_t length);
  comm::Task share(std::span<float> arena);
  std::vector<comm::Strip> own_strips() const;
  void push(const optim::StepContext& context);
  comm::Task swap_all(optim::StepContext context);
  comm::Task renew_copies();
  void wait(comm::Task task, const char* what);

  const engine::Program& program_;
  const optim::Optimizer& optimizer_;
  SplitTailOptions options_;
  engine::Tail tail_;
  const engine::Kernels& kernels_;
  std::span<float> weights_;
  std::vector<std::span<float>> states_;
  std::unique_ptr<comm::Communicator> team_;    // with all slices, by slice; null: alone
  std::unique_ptr<comm::Communicator> copies_;  // of the same slice; null: one copy
  bool updates_ = true;                         // not another copy on this host
  size_t first_piece_ = 0;                      // at the remote model
  bool swapping_ = false;  // new weights of the remote model are on their way to all copies
  std::atomic<bool> swapped_{false};  // and have arrived at the first
  std::vector<bool> takes_;           // by member: it is the first worker of its host
  std::vector<std::unique_ptr<Layer>> layers_;

  // Of the round.
  std::vector<int64_t> samples_;  // by row block: the first sample's number
  std::vector<float> rows_;       // input of the tail
  std::vector<int32_t> labels_;
  std::vector<float> gradient_;               // of the input
  std::vector<engine::GrainResult> results_;  // by row block
  std::vector<std::vector<float>> parcels_, arrived_;
};

}  // namespace convoy::sync
