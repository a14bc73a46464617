#include "convoy/sync/steady_shares.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "convoy/base/error.hpp"

namespace convoy::sync {
namespace {

// Differences that must be known before one can be called a jump.
constexpr double kSure = 8;
constexpr double kLeastVariance = 1e-8;

std::vector<TimeProfile> profiles_of(std::span<const double> speeds) {
  std::vector<TimeProfile> profiles;
  profiles.reserve(speeds.size());
  for (const double speed : speeds) profiles.push_back(TimeProfile::of_speed(speed));
  return profiles;
}

}  // namespace

double predicted_gain(std::span<const int64_t> present, std::span<const int64_t> proposed,
                      std::span<const TimeProfile> profiles) {
  const double now = slowest(present, profiles).value;
  return now > 0 ? 1 - slowest(proposed, profiles).value / now : 0;
}

double SteadyShares::noise() const {
  return std::sqrt(variance_);
}

bool SteadyShares::possible(int64_t grains, std::span<const ShareBounds> bounds) const {
  if (shares_.grains.size() != bounds.size()) return false;
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (shares_.grains[i] < bounds[i].least || shares_.grains[i] > bounds[i].most) return false;
  }
  return std::accumulate(shares_.grains.begin(), shares_.grains.end(), int64_t{0}) == grains;
}

void SteadyShares::measure(std::span<const double> speeds) {
  if (mean_.size() != speeds.size()) {
    mean_.assign(speeds.size(), 0.0);
    steps_ = 0;
  }
  if (steps_ > 0) {
    // Of n values, the next one differs from their mean by σ √(1 + 1/n). A jump, which is no noise,
    // counts as far as noise could go.
    const double known = 1 + 1 / steps_;
    const double most = measured_ < kSure ? 1 : std::max(9 * known * variance_, kLeastVariance);
    double sum = 0;
    for (size_t i = 0; i < speeds.size(); ++i) {
      const double difference = speeds[i] / mean_[i] - 1;
      sum += std::min(difference * difference, most) / known;
    }
    measured_ = std::min(measured_ + 1, static_cast<double>(options_.longest));
    variance_ += (sum / static_cast<double>(speeds.size()) - variance_) / measured_;
  }
  steps_ = std::min(steps_ + 1, static_cast<double>(options_.longest));
  for (size_t i = 0; i < speeds.size(); ++i) mean_[i] += (speeds[i] - mean_[i]) / steps_;
}

void SteadyShares::move_to(Shares shares, std::span<const double> speeds) {
  moved_ = shares.grains != shares_.grains;
  shares_ = std::move(shares);
  mean_.assign(speeds.begin(), speeds.end());
  steps_ = 1;
}

const Shares& SteadyShares::decide(int64_t grains, std::span<const double> speeds,
                                   std::span<const ShareBounds> bounds) {
  for (const double speed : speeds) check(std::isfinite(speed) && speed > 0, "a speed is positive");
  measure(speeds);
  moved_ = false;
  gain_ = 0;
  const std::vector<TimeProfile> now = profiles_of(speeds);
  Shares best = equal_finish(grains, now, bounds);
  if (!possible(grains, bounds)) {
    move_to(std::move(best), speeds);
    return shares_;
  }
  gain_ = predicted_gain(shares_.grains, best.grains, now);
  const double chance = std::sqrt(2 * std::log(static_cast<double>(speeds.size())));
  const double doubt = (chance + options_.deviations) * noise();
  if (gain_ >= std::max(options_.least, doubt)) {
    move_to(std::move(best), speeds);
    return shares_;
  }
  const std::vector<TimeProfile> lately = profiles_of(mean_);
  Shares steady = equal_finish(grains, lately, bounds);
  const double lasting = predicted_gain(shares_.grains, steady.grains, lately);
  if (steps_ > 1 && lasting >= std::max(options_.least, doubt / std::sqrt(steps_))) {
    gain_ = lasting;
    move_to(std::move(steady), std::vector<double>(mean_));
  }
  return shares_;
}

}  // namespace convoy::sync
