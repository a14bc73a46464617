#include "convoy/sync/predict/automatic.hpp"

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/sync/predict/arima.hpp"
#include "convoy/sync/predict/last_value.hpp"
#include "convoy/sync/predict/moving_average.hpp"
#include "convoy/sync/predict/narx.hpp"
#include "convoy/sync/predict/recurrent.hpp"

namespace convoy::sync {
namespace {

constexpr double kForget = 0.99;
// A candidate takes over when its recent error is below this part of the chosen one's: those that
// are as good as each other do not take turns.
constexpr double kBetter = 0.98;

std::vector<std::unique_ptr<SpeedPredictor>> everyone() {
  std::vector<std::unique_ptr<SpeedPredictor>> all;
  all.push_back(std::make_unique<LastValue>());
  all.push_back(std::make_unique<MovingAverage>());
  all.push_back(std::make_unique<Arima>());
  all.push_back(std::make_unique<Recurrent>());
  all.push_back(std::make_unique<Narx>());
  return all;
}

}  // namespace

Automatic::Automatic() : Automatic(everyone()) {}

Automatic::Automatic(std::vector<std::unique_ptr<SpeedPredictor>> candidates)
    : candidates_(std::move(candidates)), errors_(candidates_.size()) {
  check(!candidates_.empty(), "there is a predictor to choose");
}

Automatic::Automatic(const Automatic& other)
    : SpeedPredictor(other), errors_(other.errors_), best_(other.best_) {
  candidates_.reserve(other.candidates_.size());
  for (const auto& candidate : other.candidates_) candidates_.push_back(candidate->clone());
}

double Automatic::predict(const Load& now) const {
  return candidates_[best_]->predict(now);
}

void Automatic::observe(const Observation& step) {
  if (!sane_speed(step.speed)) return;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const double predicted = candidates_[i]->predict(step.load);
    // The first step was nobody's to know.
    const double error = predicted > 0 ? predicted - step.speed : 0;
    errors_[i] = kForget * errors_[i] + error * error;
    candidates_[i]->observe(step);
  }
  const auto least = std::min_element(errors_.begin(), errors_.end());
  if (*least < kBetter * errors_[best_]) best_ = static_cast<size_t>(least - errors_.begin());
}

std::unique_ptr<SpeedPredictor> Automatic::clone() const {
  return std::make_unique<Automatic>(*this);
}

const std::vector<std::string>& predictor_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& predictor : everyone()) all.emplace_back(predictor->name());
    all.emplace_back("auto");
    return all;
  }();
  return names;
}

std::unique_ptr<SpeedPredictor> make_predictor(std::string_view name) {
  if (name == "auto") return std::make_unique<Automatic>();
  for (auto& predictor : everyone()) {
    if (predictor->name() == name) return std::move(predictor);
  }
  const std::string near = nearest(name, predictor_names());
  refuse("there is no predictor '{}'{}; there are: {}", name,
         near.empty() ? "" : fmt::format(", did you mean '{}'?", near), join(predictor_names()));
}

}  // namespace convoy::sync
