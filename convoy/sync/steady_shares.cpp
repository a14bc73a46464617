#include "convoy/sync/steady_shares.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "convoy/base/error.hpp"

namespace convoy::sync {
namespace {

// Where the smallest size of gains begins; each next one is twice as large.
constexpr double kSmallest = 0.005;
// Promises that are remembered of a size, about, and those that are believed before the first.
constexpr double kMemory = 50;
constexpr double kBelieved = 3;
// A promise broken or exceeded by more says no more than one by so much.
constexpr double kFarthest = 3;

}  // namespace

std::vector<TimeProfile> SteadyShares::profiles_of(std::span<const double> speeds) const {
  std::vector<TimeProfile> profiles;
  profiles.reserve(speeds.size());
  for (size_t i = 0; i < speeds.size(); ++i) {
    check(std::isfinite(speeds[i]) && speeds[i] > 0, "a speed is positive");
    profiles.push_back(options_.profile ? options_.profile(i, speeds[i])
                                        : TimeProfile::of_speed(speeds[i]));
  }
  return profiles;
}

double predicted_gain(std::span<const int64_t> present, std::span<const int64_t> proposed,
                      std::span<const TimeProfile> profiles) {
  const double now = slowest(present, profiles).value;
  return now > 0 ? 1 - slowest(proposed, profiles).value / now : 0;
}

size_t KeptPromises::size_of(double promised) {
  const double doublings = std::log2(promised / kSmallest);
  constexpr double kLast = std::tuple_size_v<decltype(sizes_)> - 1;
  return static_cast<size_t>(std::clamp(doublings, 0.0, kLast));
}

double KeptPromises::expected(double promised) const {
  if (promised < kSmallest) return 0;
  const Size& size = sizes_[size_of(promised)];
  return promised * (size.part - std::sqrt(size.variance / (kBelieved + size.count)));
}

void KeptPromises::learn(double promised, double kept) {
  if (promised < kSmallest) return;
  Size& size = sizes_[size_of(promised)];
  size.count = std::min(size.count + 1, kMemory);
  const double part = std::clamp(kept / promised, -kFarthest, kFarthest);
  const double before = part - size.part;
  size.part += before / (kBelieved + size.count);
  size.variance += (before * (part - size.part) - size.variance) / (kBelieved + size.count);
}

bool SteadyShares::possible(int64_t grains, std::span<const ShareBounds> bounds) const {
  if (shares_.grains.size() != bounds.size()) return false;
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (shares_.grains[i] < bounds[i].least || shares_.grains[i] > bounds[i].most) return false;
  }
  return std::accumulate(shares_.grains.begin(), shares_.grains.end(), int64_t{0}) == grains;
}

void SteadyShares::average(std::span<const double> predicted) {
  if (mean_.size() != predicted.size()) {
    mean_.assign(predicted.size(), 0.0);
    steps_ = 0;
  }
  steps_ = std::min(steps_ + 1, static_cast<double>(options_.longest));
  for (size_t i = 0; i < predicted.size(); ++i) mean_[i] += (predicted[i] - mean_[i]) / steps_;
}

void SteadyShares::consider(Proposal& proposal, int64_t grains, std::span<const double> speeds,
                            std::span<const ShareBounds> bounds) {
  const std::vector<TimeProfile> profiles = profiles_of(speeds);
  proposal.shares = equal_finish(grains, profiles, bounds);
  proposal.promised = predicted_gain(shares_.grains, proposal.shares.grains, profiles);
}

const Shares& SteadyShares::decide(int64_t grains, std::span<const double> predicted,
                                   std::span<const ShareBounds> bounds) {
  average(predicted);
  moved_ = false;
  gain_ = 0;
  before_.clear();
  if (!possible(grains, bounds)) {
    moved_ = true;
    shares_ = equal_finish(grains, profiles_of(predicted), bounds);
    return shares_;
  }
  before_ = shares_.grains;
  consider(now_, grains, predicted, bounds);
  consider(lasting_, grains, mean_, bounds);
  const double now = now_.promises.expected(now_.promised);
  const double lasting = lasting_.promises.expected(lasting_.promised);
  if (std::max(now, lasting) < options_.least) return shares_;
  moved_ = true;
  gain_ = std::max(now, lasting);
  shares_ = now > lasting ? now_.shares : lasting_.shares;
  if (now > lasting) {
    // Speeds are others now. A mean that was only corrected goes on.
    mean_.assign(predicted.begin(), predicted.end());
    steps_ = 1;
  }
  return shares_;
}

void SteadyShares::came(std::span<const double> speeds) {
  if (before_.empty()) return;
  const std::vector<TimeProfile> profiles = profiles_of(speeds);
  for (Proposal* proposal : {&now_, &lasting_}) {
    const double kept = predicted_gain(before_, proposal->shares.grains, profiles);
    proposal->promises.learn(proposal->promised, kept);
  }
}

}  // namespace convoy::sync
