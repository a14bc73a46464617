#pragma once
// An exponentially weighted average, m_t = m_{t−1} + α (v_t − m_{t−1}): calm where speeds are
// noisy, late where they change. In its first steps it is the plain average.

#include <cstdint>

#include "convoy/sync/predict/predictor.hpp"

namespace convoy::sync {

class MovingAverage final : public SpeedPredictor {
 public:
  /// α: what the newest step counts, in (0, 1].
  explicit MovingAverage(double newest = 0.25) : newest_(newest) {}

  std::string_view name() const override { return "average"; }
  double predict(const Load& now) const override;
  void observe(const Observation& step) override;
  std::unique_ptr<SpeedPredictor> clone() const override;

 private:
  double newest_;
  double mean_ = 0;
  int64_t steps_ = 0;
};

}  // namespace convoy::sync
