#pragma once
// The predictor that has been best lately: all of them watch one worker, and the one with the least
// exponentially weighted squared error is asked. Each worker has its own, since workers differ.

#include <vector>

#include "convoy/sync/predict/predictor.hpp"

namespace convoy::sync {

class Automatic final : public SpeedPredictor {
 public:
  /// All that there are.
  Automatic();
  /// At least one. Of two equally good ones the first is asked, so simple ones come first.
  explicit Automatic(std::vector<std::unique_ptr<SpeedPredictor>> candidates);
  Automatic(const Automatic& other);
  Automatic& operator=(const Automatic&) = delete;

  std::string_view name() const override { return "auto"; }
  double predict(const Load& now) const override;
  void observe(const Observation& step) override;
  std::unique_ptr<SpeedPredictor> clone() const override;

  /// Who is asked now.
  const SpeedPredictor& chosen() const { return *candidates_[best_]; }

 private:
  std::vector<std::unique_ptr<SpeedPredictor>> candidates_;
  std::vector<double> errors_;  // discounted sums of squares, by candidate
  size_t best_ = 0;
};

}  // namespace convoy::sync
