#pragma once
// Update rules over flat arenas. An optimizer updates any strip of the arena on its own, so lanes
// (and later workers) each update the strip they own; what needs the whole gradient first
// (clipping, LARS) comes in through StepContext.

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convoy/job/job.hpp"

namespace convoy::optim {

/// One parameter tensor inside the arena: floats [offset, offset + size).
struct Segment {
  int64_t offset = 0;
  int64_t size = 0;
  bool decay = true;  ///< weight decay applies
  bool adapt = true;  ///< lars: layer-wise rate applies (not to biases and batch norm)
};

/// What is the same for the whole arena in one step.
struct StepContext {
  int64_t step = 0;  ///< counted from 0
  double learning_rate = 0;
  double gradient_scale = 1;  ///< clipping: every gradient is multiplied by this
  /// sgd, lars with momentum: instead of the job's; NaN: the job's.
  double momentum = std::numeric_limits<double>::quiet_NaN();
  /// lars: squared norms of weights and of gradients, by segment; else empty.
  std::span<const double> weight_norm2;
  std::span<const double> gradient_norm2;
};

/// SGD    g ← s·g + λ·w;  v ← μ·v + g;  w ← w − η·v            (Nesterov: w ← w − η·(g + μ·v))
/// Adam   g ← s·g + λ·w;  m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;
///        w ← w − η·(m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε)
/// LARS   r = trust·‖w‖ / (‖s·g‖ + λ‖w‖) for adapted segments with both norms > 0, else 1;
///        v ← μ·v + r·(s·g + λ·w);  w ← w − η·v                 (You et al. 2017)
/// with s = gradient_scale, λ = weight_decay where the segment decays, t = step + 1.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Floats of state per weight: 1 (momentum) or 2 (Adam's m and v); SGD without momentum has 0.
  virtual int state_arrays() const = 0;
  /// "momentum", or "m" and "v": how checkpoints call them.
  virtual std::vector<std::string> state_names() const = 0;
  /// True if the norms of StepContext must be filled in.
  virtual bool needs_norms() const = 0;

  /// Updates floats [begin, end) of the arena, all inside segment `segment`. `states` holds
  /// state_arrays() pointers to whole arenas as long as the weights. `gradient` is the summed
  /// gradient of exactly this range (gradient[0] belongs to weights[begin]).
  virtual void update(const StepContext& context, const Segment& segment, int64_t segment_index,
                      int64_t begin, int64_t end, float* weights, const float* gradient,
                      std::span<float* const> states) const = 0;
};

/// The optimizer a job asks for.
std::unique_ptr<Optimizer> make_optimizer(const job::Train& options);

/// Sum of squares in double precision, in an order that depends on `values` only.
double squared_norm(std::span<const float> values);

}  // namespace convoy::optim
