#pragma once
// A worker's training step: its lanes run its share of the grains of a batch, the gradients of all
// workers are summed in the fixed order of the tree, and everybody updates a strip of the arena.
//
// Workers of one host act like lanes of one larger worker: they see one model in shared memory,
// meet, and each lane updates its strip. Between hosts an Exchange does the same beside the lanes.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "convoy/base/memory.hpp"
#include "convoy/base/trace.hpp"
#include "convoy/base/units.hpp"
#include "convoy/engine/crew.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/division.hpp"
#include "convoy/sync/exchange.hpp"
#include "convoy/sync/gradient_tree.hpp"
#include "convoy/sync/node_state.hpp"
#include "convoy/sync/reports.hpp"
#include "convoy/sync/tail_part.hpp"
#include "convoy/sync/team.hpp"
#include "convoy/sync/updater.hpp"

namespace convoy::sync {

/// Where the lanes get their samples from. Called from all lanes at once.
class GrainSource {
 public:
  struct Samples {
    const float* inputs = nullptr;
    const int32_t* labels = nullptr;
  };
  virtual ~GrainSource() = default;
  /// The samples of grain `grain` of step `step`; valid until released.
  virtual Samples get(int64_t step, int64_t grain) = 0;
  virtual void release(int64_t step, int64_t grain) = 0;
};

struct StepperOptions {
  int64_t batch = 0;  ///< a multiple of the program's grain
  int lanes = 1;
  std::vector<int> cores;  ///< where lanes are pinned; may be empty
  uint64_t seed = 1;
  bool decay_all = true;        ///< weight decay on biases and batch norm, too
  double clip_norm = 0;         ///< 0: off
  bool measure_noise = false;   ///< also the norms of the grains' own gradients; on one host
  std::vector<int64_t> shares;  ///< grains of each worker, by rank; empty: equal
  /// The most that each worker may get by set_shares(), by rank; empty: shares stay as they are.
  /// Everybody then hears in every step how fast all workers were.
  std::vector<int64_t> most_shares;
  /// Adds to this worker's report what its machine has to give just now.
  std::function<void(int64_t step, WorkerReport& report)> look;
  /// Emulates a slower worker: called by a lane before a grain, with what its last one took of the
  /// CPU and of the time. With several emulated workers on a core these differ.
  std::function<void(int lane, int64_t step, Seconds cpu, Seconds took)> hold_back;
  ExchangeOptions exchange;
  /// Makes what computes the linear layers at the end of the network instead of the lanes, from the
  /// arenas of the host; empty: they are like any others.
  std::function<std::unique_ptr<TailPart>(const ModelArrays& arrays)> make_tail;
  int tail_layers = 0;     ///< only so many of the last ones; 0: all
  Trace* trace = nullptr;  ///< gets what lanes and the exchange do

  bool balances() const { return !most_shares.empty(); }
};

struct StepResult {
  double loss = 0;           ///< mean over the batch
  double accuracy = 0;       ///< on the batch
  double gradient_norm = 0;  ///< only measured for clipping, LARS and noise
  /// Mean over the grains of |gradient|², each the mean over its own samples; only with
  /// StepperOptions::measure_noise.
  double grain_norm2 = 0;
  Seconds computing;  ///< until the last lane of this worker had run its grains
  Seconds waiting;    ///< of its lanes for weights, on average
  int64_t vote = 0;   ///< the largest of all workers' votes
  /// By rank, the same for all workers; only where shares may change.
  std::vector<WorkerReport> reports;
  /// False: the loss, or the gradient's norm where it is measured (clipping, LARS), was NaN or
  /// infinite, and nothing was updated.
  bool finite = true;
};

struct EvalResult {
  double loss = 0;
  double accuracy = 0;
  int64_t samples = 0;
};

class Stepper {
 public:
  /// Collective over the team, which must outlive it; without one the worker is alone.
  Stepper(const engine::Program& program, const optim::Optimizer& optimizer,
          const StepperOptions& options, const Team& team = Team::alone());
  ~Stepper();

  /// The arena (weights and running statistics) and the optimizer's arenas, of the host. After
  /// writing to the weights call weights_changed(). With several workers use load().
  std::span<float> weights() { return node_->model.weights; }
  std::span<const float> weights() const { return node_->model.weights; }
  const std::vector<std::span<float>>& states() { return node_->model.states; }
  void weights_changed();
  /// Waits until nothing is under way any more and all weights are here.
  void settle();
  /// Collective: worker 0 calls `fill`, which writes weights and states, and all have them.
  void load(const std::function<void()>& fill);
  /// Collective: after it, worker 0 sees all weights and states, and may read them until its next
  /// step.
  void collect();

  /// Collective over all whose steppers share a tail (StepperOptions::make_tail): the same for it.
  void collect_tail(bool states = true);

  /// Step number `step` (it keys the random streams) with this learning rate. Collective. The
  /// result is the same for all workers, but for the times. Weights may still be on their way when
  /// it returns.
  StepResult step(int64_t step, double learning_rate, GrainSource& source, int64_t vote = 0);
  /// Only for a worker alone: the gradient of step `step` as an update would use it, running
  /// statistics included, into `gradient` (as long as the arena) instead of an update.
  StepResult gradient(int64_t step, GrainSource& source, std::span<float> gradient);

  /// From the next step on; all workers must be given the same, of which none is more than its
  /// StepperOptions::most_shares. The weights do not depend on them.
  void set_shares(std::span<const int64_t> shares);

  /// Forward passes over `grains` grains in evaluation mode. fill(index, inputs, labels) prepares
  /// grain `index` and returns how many samples are real; output(index, logits), if given,
  /// receives the network's output. Both are called from all lanes at once. Collective: every
  /// worker runs a part of the grains, and all get the same result.
  using Fill = std::function<int64_t(int64_t, std::span<float>, std::span<int32_t>)>;
  using Output = std::function<void(int64_t, std::span<const float>)>;
  EvalResult evaluate(int64_t grains, const Fill& fill, const Output& output = nullptr);

  /// Seconds per instruction since the last call, summed over lanes; the first call enables it.
  std::vector<double> take_profile();

  int lanes() const { return crew_.lanes(); }
  /// The grains that this worker runs.
  const GrainRange& range() const { return division_->own(team_); }
  /// Those of every worker, by rank.
  const std::vector<GrainRange>& ranges() const { return division_->ranges; }
  /// Time during which something was exchanged with other hosts.
  Seconds exchanging() const { return exchange_ ? exchange_->busy() : Seconds{}; }
  /// How the size of buckets is found; null where there is nothing to find.
  const BucketTuner* tuner() const { return exchange_ ? exchange_->tuner() : nullptr; }

  /// What a Stepper will allocate, item by item, with `share` grains (0: all). Between hosts the
  /// exchange takes about as much as the weights on top.
  struct Memory {
    Bytes weights, optimizer, gradients, activations, inputs;
    Bytes total() const { return weights + optimizer + gradients + activations + inputs; }
  };
  static Memory memory(const engine::Program& program, const optim::Optimizer& optimizer,
                       const StepperOptions& options, int64_t share = 0);

 private:
  struct LaneState;

  std::vector<int64_t> lane_slots() const;
  std::shared_ptr<const Division> divided(std::span<const int64_t> shares) const;
  void run_grains(int lane, int64_t step, GrainSource& source);
  void run_each_grain(int lane, int64_t step, GrainSource& source);
  void begin_tail(int64_t step, double learning_rate);
  WorkerReport own_report(int64_t step) const;
  void trace_waits(Seconds end);
  void trace_instructions(int lane, engine::GrainRun& run);
  void prepare_layer(int64_t begin);
  void prepare(size_t index);
  void meet();
  void add_up(StepResult& result) const;
  double parameter_norm2(const float* gradient, int64_t begin, int64_t end) const;
  double mean_grain_norm2() const;
  using UpdateChunk =
      std::function<void(size_t chunk, const float* sum, const optim::StepContext&)>;
  StepResult step_on_host(int64_t step, double learning_rate, GrainSource& source,
                          const UpdateChunk& update);
  StepResult step_between_hosts(int64_t step, double learning_rate, GrainSource& source);
  template <class Work>
  void each_of_strip(int lane, const Work& work);
  engine::Weights shared() const { return {node_->model.weights.data(), node_->prepared.data()}; }

  const engine::Program& program_;
  const optim::Optimizer& optimizer_;
  StepperOptions options_;
  const Team& team_;
  int64_t grains_;
  std::vector<int64_t> lane_counts_;  // by rank
  std::shared_ptr<const Division> division_;
  std::vector<engine::Program::Preparation> preparations_;
  std::vector<std::string> instruction_names_;  // for the trace

  std::unique_ptr<NodeMemory> memory_;
  std::unique_ptr<NodeState> node_;
  std::unique_ptr<Updater> updater_;
  std::unique_ptr<TreeTotal> total_;  // over this host
  Seconds began_;                     // the last step
  uint64_t steps_ = 0;
  uint64_t versions_ = 0;  // of the weights
  uint64_t meetings_ = 0;

  engine::Crew crew_;
  std::vector<std::unique_ptr<LaneState>> lane_states_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<TailPart> tail_;
};

}  // namespace convoy::sync
