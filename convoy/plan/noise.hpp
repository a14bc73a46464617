#pragma once
// The gradient noise scale: how many samples a batch needs before a larger one is no better
// (McCandlish et al. 2018). With G the true gradient and Σ the covariance of one sample's gradient,
//
//   |mean gradient of b samples|² = |G|² + tr Σ / b      in expectation,
//
// so the norms of a batch's gradient and of its grains' give both, and B = tr Σ / |G|².
// An update with a batch of X then does 1 / (1 + B/X) of the progress of one without noise: the
// updates to a target are N(X) = N_inf·(1 + B/X), the inverse law N_inf + a/X with a = N_inf·B.

#include <cstdint>
#include <optional>

namespace convoy::plan {

class NoiseScale {
 public:
  /// One step: |gradient|² of the batch, and the mean of the grains' own. Grains are smaller than
  /// the batch.
  void add(int64_t batch, double batch_norm2, int64_t grain, double grain_norm2);

  int64_t steps() const { return steps_; }
  /// B, in samples; infinite if no gradient stands out of the noise; nothing before the first step.
  std::optional<double> value() const;

 private:
  int64_t steps_ = 0;
  double gradient2_ = 0;  // sums over steps of estimates of |G|² and tr Σ
  double variance_ = 0;
};

/// How noise grows while a network learns: about as a power of the step.
struct NoiseGrowth {
  double step = 1;   ///< where it was measured
  double scale = 0;  ///< B there
  double power = 0;  ///< between 0 and 1

  /// B at a later step.
  double at(double later) const;
};

/// From the scales around two steps, step0 < step1.
NoiseGrowth noise_growth(double step0, double scale0, double step1, double scale1);

}  // namespace convoy::plan
