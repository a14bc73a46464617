#include "convoy/plan/noise.hpp"

#include <algorithm>
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

}  // namespace convoy::plan
