#include "convoy/plan/noise.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "convoy/base/error.hpp"

namespace convoy::plan {

void NoiseScale::add(int64_t batch, double batch_norm2, int64_t grain, double grain_norm2) {
  check(grain < batch, "noise is seen in the difference between grains and batch");
  const auto large = static_cast<double>(batch);
  const auto small = static_cast<double>(grain);
  gradient2_ += (large * batch_norm2 - small * grain_norm2) / (large - small);
  variance_ += (grain_norm2 - batch_norm2) / (1 / small - 1 / large);
  ++steps_;
}

std::optional<double> NoiseScale::value() const {
  if (steps_ == 0) return std::nullopt;
  if (gradient2_ <= 0) return std::numeric_limits<double>::infinity();
  return std::max(0.0, variance_ / gradient2_);
}

double NoiseGrowth::at(double later) const {
  return scale * std::pow(std::max(1.0, later / step), power);
}

NoiseGrowth noise_growth(double step0, double scale0, double step1, double scale1) {
  NoiseGrowth growth{step1, scale1, 0};
  const bool usable = scale0 > 0 && scale1 > 0 && std::isfinite(scale0) && std::isfinite(scale1);
  if (usable) {
    growth.power = std::clamp(std::log(scale1 / scale0) / std::log(step1 / step0), 0.0, 1.0);
  }
  return growth;
}

}  // namespace convoy::plan
