#pragma once
// What an update does to the model, chunk by chunk: whoever has the sum of a chunk's gradient, a
// lane or the communication thread, measures it and applies it here.

#include <cstdint>
#include <span>
#include <vector>

#include "convoy/engine/program.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/buckets.hpp"

namespace convoy::sync {

/// The arrays that an update reads and writes; by arena float, chunk or tensor.
struct ModelArrays {
  std::span<float> weights;
  std::vector<std::span<float>> states;
  std::span<double> gradient_norm2;  ///< by chunk
  std::span<double> weight_norm2;    ///< by chunk
};

struct UpdateOptions {
  int64_t grains = 1;     ///< of a batch
  bool decay_all = true;  ///< weight decay on biases and batch norm, too
  double clip_norm = 0;   ///< 0: off
  bool measure = false;  ///< norms are wanted even if neither clipping nor the optimizer needs them
  int64_t first = 0;     ///< floats before it are somebody else's
};

class Updater {
 public:
  Updater(const engine::Program& program, const optim::Optimizer& optimizer,
          const UpdateOptions& options, const ModelArrays& arrays);

  const std::vector<Chunk>& chunks() const { return chunks_; }
  const engine::Arena& arena() const { return program_.arena(); }
  /// True if every chunk must be measured before any may be updated.
  bool measures() const { return measures_; }

  /// Norms of chunk `index`, whose gradient's sum begins at `sum`.
  void measure(size_t index, const float* sum);
  /// What is the same for the whole arena in this step; all chunks are measured, if they are.
  optim::StepContext context(int64_t step, double learning_rate);
  /// After context(): the norm of the whole gradient.
  double gradient_norm() const;
  void update(size_t index, const float* sum, const optim::StepContext& context);
  /// Only floats [begin, end) of it.
  void update(size_t index, int64_t begin, int64_t end, const float* sum,
              const optim::StepContext& context);

 private:
  void update_statistics(size_t tensor, int64_t begin, int64_t end, const float* sum);

  const engine::Program& program_;
  const optim::Optimizer& optimizer_;
  UpdateOptions options_;
  ModelArrays arrays_;
  bool measures_;
  std::vector<Chunk> chunks_;
  std::vector<float*> states_;
  std::vector<optim::Segment> segments_;   // by tensor of the arena
  std::vector<float> statistic_momentum_;  // by tensor
  std::vector<double> gradient_norm2_;     // by tensor
  std::vector<double> weight_norm2_;       // by tensor
};

}  // namespace convoy::sync
