#include "convoy/sync/predict/arima.hpp"

namespace convoy::sync {
namespace {

constexpr double kForget = 0.998;
// Steps that say how large changes are.
constexpr int64_t kFirst = 6;
constexpr double kMostMoving = 0.98;
// P grows without end in directions that nothing excites; in units of its start.
constexpr double kMostUnsure = 100;

}  // namespace

double Arima::change() const {
  double sum = 0;
  for (size_t i = 0; i < kTerms; ++i) sum += weights_[i] * terms_[i];
  return sum;
}

double Arima::predict(const Load& /*now*/) const {
  return steps_ == 0 ? 0 : seen_.within(last_ + change());
}

void Arima::observe(const Observation& step) {
  if (!sane_speed(step.speed)) return;
  seen_.add(step.speed);
  ++steps_;
  if (steps_ == 1) {
    last_ = step.speed;
    return;
  }
  const double was = step.speed - last_;
  const double surprise = was - change();
  if (steps_ > kFirst) learn(surprise);
  if (steps_ <= kFirst) changes_ += was * was;
  if (steps_ == kFirst) start();

  for (size_t i = kPast - 1; i > 0; --i) terms_[i] = terms_[i - 1];
  terms_[0] = was;
  terms_[kPast] = surprise;
  last_ = step.speed;
}

void Arima::start() {
  // Changes may all have been 0; then any scale is as good.
  const double variance = std::max(changes_ / (kFirst - 1), 1e-8 * last_ * last_);
  unsure_ = 1 / variance;
  for (size_t i = 0; i < kTerms; ++i) covariance_[i][i] = unsure_;
}

void Arima::learn(double surprise) {
  Terms gain{};
  double denominator = kForget;
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) gain[i] += covariance_[i][j] * terms_[j];
    denominator += terms_[i] * gain[i];
  }
  const double most = kMostUnsure * unsure_;
  const Terms projected = gain;  // P φ, and φᵀ P, since P is symmetric
  for (double& g : gain) g /= denominator;
  for (size_t i = 0; i < kTerms; ++i) {
    weights_[i] += gain[i] * surprise;
    for (size_t j = 0; j < kTerms; ++j) {
      covariance_[i][j] =
          std::clamp((covariance_[i][j] - gain[i] * projected[j]) / kForget, -most, most);
    }
  }
  weights_[kPast] = std::clamp(weights_[kPast], -kMostMoving, kMostMoving);
}

std::unique_ptr<SpeedPredictor> Arima::clone() const {
  return std::make_unique<Arima>(*this);
}

}  // namespace convoy::sync
