#pragma once
// The inner loops of the update rules: one pass over memory each, compiled for the baseline and
// for AVX2. Both variants give the same bits (no fused multiply-add, every element on its own), so
// neither the CPU nor how the arena is cut into strips shows in the weights.

#include <cstdint>

namespace convoy::optim {

/// w ← w − rate·u, where g = scale·gradient + decay·w, v ← momentum·v + g, and
/// u is g (plain), v (momentum) or g + momentum·v (Nesterov).
struct SgdRates {
  float rate = 0;
  float scale = 1;
  float decay = 0;
  float momentum = 0;
};

/// g = scale·gradient + decay·w;  m ← beta1·m + (1−beta1)·g;  v ← beta2·v + (1−beta2)·g²;
/// w ← w − rate·m / (√v·root_correction + epsilon)
/// with the bias corrections folded in: rate = η/(1−β₁ᵗ), root_correction = 1/√(1−β₂ᵗ).
struct AdamRates {
  float rate = 0;
  float scale = 1;
  float decay = 0;
  float beta1 = 0;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float root_correction = 1;
  float epsilon = 0;
};

/// The loops for one instruction set, over `count` elements. Arrays must not overlap.
struct UpdateLoops {
  void (*plain)(const SgdRates& rates, int64_t count, float* weights, const float* gradient);
  void (*momentum)(const SgdRates& rates, int64_t count, float* weights, const float* gradient,
                   float* velocity);
  void (*nesterov)(const SgdRates& rates, int64_t count, float* weights, const float* gradient,
                   float* velocity);
  void (*adam)(const AdamRates& rates, int64_t count, float* weights, const float* gradient,
               float* mean, float* variance);
  double (*squared_norm)(const float* values, int64_t count);
};

/// For any CPU.
UpdateLoops baseline_loops();
/// The widest this CPU can run.
UpdateLoops best_loops();

}  // namespace convoy::optim
