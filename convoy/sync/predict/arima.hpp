#pragma once
// ARIMA(3,1,1): the change of speed is a mixture of the last changes and of the last surprise,
//
//   d_t = v_t − v_{t−1},   d̂_t = a_1 d_{t−1} + a_2 d_{t−2} + a_3 d_{t−3} + b e_{t−1},   e_t = d_t −
//   d̂_t
//
// fitted after every step by recursive extended least squares: with φ the four regressors and
// forgetting factor f,
//
//   k = P φ / (f + φᵀ P φ),   θ ← θ + k e_t,   P ← (P − k φᵀ P) / f
//
// (the surprises in φ are those of the model as it was then, hence "extended"; Young 1974). Without
// the AR part it is the moving average with the best weight: α = 1 + b. b is kept within (−1, 1),
// where surprises die out. The first steps only say how large changes are: P starts at 1/Var d, as
// if one or two steps had voted for no change. Load is not used.

#include <array>
#include <cstdint>

#include "convoy/sync/predict/predictor.hpp"

namespace convoy::sync {

class Arima final : public SpeedPredictor {
 public:
  std::string_view name() const override { return "arima"; }
  double predict(const Load& now) const override;
  void observe(const Observation& step) override;
  std::unique_ptr<SpeedPredictor> clone() const override;

 private:
  static constexpr size_t kPast = 3;
  static constexpr size_t kTerms = kPast + 1;
  using Terms = std::array<double, kTerms>;

  double change() const;
  void start();
  void learn(double surprise);

  Terms weights_{};  // a_1 … a_3, b
  Terms terms_{};    // φ of the coming step: d_{t−1} … d_{t−3}, e_{t−1}
  std::array<Terms, kTerms> covariance_{};
  double last_ = 0;
  int64_t steps_ = 0;
  double changes_ = 0;  // Σ d² of the first steps, which say in what scale P starts
  double unsure_ = 0;   // of P at its start
  SeenSpeeds seen_;
};

}  // namespace convoy::sync
