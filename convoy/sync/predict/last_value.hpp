#pragma once
// The next step is as fast as the last one: v̂_t = v_{t−1}. What every other predictor must beat.

#include "convoy/sync/predict/predictor.hpp"

namespace convoy::sync {

class LastValue final : public SpeedPredictor {
 public:
  std::string_view name() const override { return "last"; }
  double predict(const Load& now) const override;
  void observe(const Observation& step) override;
  std::unique_ptr<SpeedPredictor> clone() const override;

 private:
  double last_ = 0;
};

}  // namespace convoy::sync
