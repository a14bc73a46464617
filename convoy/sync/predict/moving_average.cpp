#include "convoy/sync/predict/moving_average.hpp"

namespace convoy::sync {

double MovingAverage::predict(const Load& /*now*/) const {
  return mean_;
}

void MovingAverage::observe(const Observation& step) {
  if (!sane_speed(step.speed)) return;
  ++steps_;
  mean_ += std::max(newest_, 1 / static_cast<double>(steps_)) * (step.speed - mean_);
}

std::unique_ptr<SpeedPredictor> MovingAverage::clone() const {
  return std::make_unique<MovingAverage>(*this);
}

}  // namespace convoy::sync
