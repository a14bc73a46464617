#pragma once
// Inputs of networks, brought to mean 0 and deviation 1 as they come.

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace convoy::sync {

/// Mean and deviation of a stream: plain ones at first, exponentially weighted later.
class Normaliser {
 public:
  /// How many values are remembered, about.
  explicit Normaliser(double memory = 500) : memory_(memory) {}

  void add(double value) {
    count_ = std::min(count_ + 1, memory_);
    const double before = value - mean_;
    mean_ += before / count_;
    variance_ += (before * (value - mean_) - variance_) / count_;
  }
  double mean() const { return mean_; }
  /// Never 0: what does not change is not blown up.
  double deviation() const {
    return std::max({std::sqrt(std::max(variance_, 0.0)), 1e-3 * std::abs(mean_), 1e-12});
  }
  /// Outliers are cut off, so that no single one takes a network apart.
  double operator()(double value) const {
    constexpr double kFarthest = 4;
    return std::clamp((value - mean_) / deviation(), -kFarthest, kFarthest);
  }

 private:
  double memory_;
  double count_ = 0;
  double mean_ = 0;
  double variance_ = 0;
};

}  // namespace convoy::sync
