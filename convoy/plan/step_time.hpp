#pragma once
// How long a training step takes, measured on random samples.

#include <cstdint>
#include <vector>

#include "convoy/base/memory.hpp"
#include "convoy/base/units.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/stepper.hpp"

namespace convoy::plan {

/// One batch of random samples in memory, the same for every step.
class RandomBatch final : public sync::GrainSource {
 public:
  RandomBatch(const model::Graph& graph, int64_t batch, int64_t grain);
  Samples get(int64_t step, int64_t grain) override;
  void release(int64_t, int64_t) override {}

 private:
  int64_t grain_;
  int64_t size_;  // floats of a sample
  AlignedBuffer inputs_;
  std::vector<int32_t> labels_;
};

/// What a step is made of: rounds in which every lane runs a grain, and the update.
struct StepTime {
  Seconds round;
  Seconds update;  ///< sums of the lanes, optimizer and preparation of the weights
  /// If asked for: what each instruction of the program took, in all lanes and steps together.
  std::vector<double> instructions = {};

  Seconds of(int64_t batch, int64_t grain, int lanes) const;
};

/// Rounds that a step is measured with: two, or one where the batch has no more. More would take
/// memory that the training does not.
int64_t measured_rounds(int64_t batch, int64_t grain, int lanes);

/// Runs a few steps of so many rounds.
StepTime measure_step(const engine::Program& program, const optim::Optimizer& optimizer,
                      sync::StepperOptions options, bool instructions = false);

/// Of linear layers, by one thread. They are few samples' work, so that bringing weights from
/// memory may be much of their time. 0: not known.
struct LinearTime {
  Seconds streaming;   ///< of all weights, once there and back
  Seconds arithmetic;  ///< of a sample, forward and backward, where many come at once
};

/// Of layers with so many weights, in the long run.
LinearTime measure_linear(int64_t floats);

}  // namespace convoy::plan
