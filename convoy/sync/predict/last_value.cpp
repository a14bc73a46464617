#include "convoy/sync/predict/last_value.hpp"

namespace convoy::sync {

double LastValue::predict(const Load& /*now*/) const {
  return last_;
}

void LastValue::observe(const Observation& step) {
  if (sane_speed(step.speed)) last_ = step.speed;
}

std::unique_ptr<SpeedPredictor> LastValue::clone() const {
  return std::make_unique<LastValue>(*this);
}

}  // namespace convoy::sync
