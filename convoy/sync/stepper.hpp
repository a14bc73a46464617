#pragma once
// One worker's training step: its lanes run the grains of a batch, the gradients are summed in the
// fixed order of the tree, and every lane updates its strip of the arena.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "convoy/base/memory.hpp"
#include "convoy/base/units.hpp"
#include "convoy/engine/crew.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/gradient_tree.hpp"

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
  bool decay_all = true;       ///< weight decay on biases and batch norm, too
  double clip_norm = 0;        ///< 0: off
  bool measure_noise = false;  ///< also the norms of the grains' own gradients
};

struct StepResult {
  double loss = 0;           ///< mean over the batch
  double accuracy = 0;       ///< on the batch
  double gradient_norm = 0;  ///< only measured for clipping, LARS and noise
  /// Mean over the grains of |gradient|², each the mean over its own samples; only with
  /// StepperOptions::measure_noise.
  double grain_norm2 = 0;
  Seconds computing;  ///< until the last lane had run its grains
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
  Stepper(const engine::Program& program, const optim::Optimizer& optimizer,
          const StepperOptions& options);
  ~Stepper();

  /// The arena (weights and running statistics) and the optimizer's arenas. After writing to the
  /// weights call weights_changed().
  std::span<float> weights() { return weights_.floats(); }
  std::span<const float> weights() const { return weights_.floats(); }
  std::vector<std::span<float>> states();
  void weights_changed();

  /// Step number `step` (it keys the random streams) with this learning rate.
  StepResult step(int64_t step, double learning_rate, GrainSource& source);

  /// Forward passes over `grains` grains in evaluation mode. fill(index, inputs, labels) prepares
  /// grain `index` and returns how many samples are real; output(index, logits), if given,
  /// receives the network's output. Both are called from all lanes at once.
  using Fill = std::function<int64_t(int64_t, std::span<float>, std::span<int32_t>)>;
  using Output = std::function<void(int64_t, std::span<const float>)>;
  EvalResult evaluate(int64_t grains, const Fill& fill, const Output& output = nullptr);

  /// Seconds per instruction since the last call, summed over lanes; the first call enables it.
  std::vector<double> take_profile();

  int lanes() const { return crew_.lanes(); }

  /// What a Stepper will allocate, item by item.
  struct Memory {
    Bytes weights, optimizer, gradients, activations, inputs;
    Bytes total() const { return weights + optimizer + gradients + activations + inputs; }
  };
  static Memory memory(const engine::Program& program, const optim::Optimizer& optimizer,
                       const StepperOptions& options);

 private:
  struct Chunk;
  struct LaneState;

  void run_grains(int lane, int64_t step, GrainSource& source);
  double parameter_norm2(const float* gradient, int64_t begin, int64_t end) const;
  double mean_grain_norm2() const;
  void sum_and_measure(int lane);
  void update_strip(int lane, const optim::StepContext& context);
  void update_statistics(const Chunk& chunk, const float* sum);
  optim::StepContext context(int64_t step, double learning_rate);
  const float* total(const Chunk& chunk, std::span<float> workspace) const;
  std::span<const Chunk> strip(int lane) const;

  const engine::Program& program_;
  const optim::Optimizer& optimizer_;
  StepperOptions options_;
  int64_t grains_;
  bool measure_norms_;

  AlignedBuffer weights_;
  AlignedBuffer prepared_;
  std::vector<AlignedBuffer> states_;
  std::vector<float*> state_pointers_;
  std::vector<optim::Segment> segments_;   // by tensor of the arena
  std::vector<float> statistic_momentum_;  // by tensor of the arena
  std::vector<Chunk> chunks_;
  std::vector<double> chunk_gradient_norm2_;
  std::vector<double> chunk_weight_norm2_;
  std::vector<double> gradient_norm2_;  // by tensor
  std::vector<double> weight_norm2_;
  std::vector<engine::GrainResult> results_;  // by grain
  std::vector<double> grain_norm2_;           // by grain, of what it adds to the batch's gradient
  std::unique_ptr<TreeTotal> total_;

  engine::Crew crew_;
  std::vector<std::unique_ptr<LaneState>> lane_states_;
};

}  // namespace convoy::sync
