#include "convoy/optim/asynchrony.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>

#include "convoy/base/error.hpp"

namespace convoy::optim {
namespace {

/// Of r³ − (a)r² − (b)r − (c), whose largest root by magnitude is wanted: all three at once
/// (Durand–Kerner).
double largest_root(double a, double b, double c) {
  using Complex = std::complex<double>;
  std::array<Complex, 3> roots;
  const Complex seed(0.4, 0.9);  // neither real nor of magnitude 1
  const double scale = 1 + std::max({std::abs(a), std::abs(b), std::abs(c)});
  for (size_t i = 0; i < roots.size(); ++i) {
    roots[i] = scale * std::pow(seed, static_cast<double>(i));
  }
  constexpr int kMost = 500;
  constexpr double kEnough = 1e-14;
  for (int round = 0; round < kMost; ++round) {
    double moved = 0;
    for (size_t i = 0; i < roots.size(); ++i) {
      const Complex r = roots[i];
      Complex others = 1;
      for (size_t j = 0; j < roots.size(); ++j) {
        if (j != i) others *= r - roots[j];
      }
      if (others == Complex(0)) continue;
      const Complex change = (((r - a) * r - b) * r - c) / others;
      roots[i] -= change;
      moved = std::max(moved, std::abs(change));
    }
    if (moved < kEnough * scale) break;
  }
  double largest = 0;
  for (const Complex& r : roots) largest = std::max(largest, std::abs(r));
  return largest;
}

}  // namespace

double implicit_momentum(int groups) {
  check(groups >= 1, "there is a group");
  return 1 - 1.0 / groups;
}

double explicit_momentum(double total, int groups) {
  return std::max(-kMostNegative, total - implicit_momentum(groups));
}

double quadratic_rate(double implicit, double applied, double step) {
  // The polynomial in t = 1/r, times r³, with its sign turned.
  const double z = 1 + implicit + applied - (1 - implicit) * step;
  return largest_root(z, -(implicit + applied + implicit * applied), implicit * applied);
}

double best_applied_momentum(int groups, double least, double most) {
  const double implicit = implicit_momentum(groups);
  constexpr double kStep = 0.005;
  constexpr int kCurvatures = 24;
  double best = 0;
  double best_rate = 2;
  for (double applied = -kMostNegative; applied < 1; applied += kStep) {
    double worst = 0;
    for (int i = 0; i <= kCurvatures; ++i) {
      const double step = least * std::pow(most / least, static_cast<double>(i) / kCurvatures);
      worst = std::max(worst, quadratic_rate(implicit, applied, step));
    }
    if (worst < best_rate) {
      best_rate = worst;
      best = applied;
    }
  }
  return best;
}

MomentumMeter::MomentumMeter(size_t weights, int history)
    : weights_(weights), history_(static_cast<size_t>(history)) {}

void MomentumMeter::moved(std::span<const float> weights) {
  check(weights.size() == weights_, "as many weights as were announced");
  // One is kept anew by what the oldest one leaves behind.
  std::vector<float> room;
  if (iterates_.size() >= history_) {
    room = std::move(iterates_.front());
    iterates_.pop_front();
  }
  room.assign(weights.begin(), weights.end());
  iterates_.push_back(std::move(room));
  ++newest_;
}

const std::vector<float>* MomentumMeter::of(int64_t version) const {
  const int64_t back = newest_ - version;
  const auto kept = static_cast<int64_t>(iterates_.size());
  if (version < 0 || back < 0 || back >= kept) return nullptr;
  return &iterates_[static_cast<size_t>(kept - 1 - back)];
}

void MomentumMeter::arrived(int64_t version, std::span<const float> gradient,
                            double learning_rate) {
  check(gradient.size() == weights_, "a gradient for each weight");
  const auto* before = of(version - 1);
  const auto* at = of(version);
  const auto* after = of(version + 1);
  if (before == nullptr || at == nullptr || after == nullptr) return;
  double product = 0;
  double square = 0;
  for (size_t i = 0; i < weights_; ++i) {
    const double last = static_cast<double>((*at)[i]) - (*before)[i];
    const double next = static_cast<double>((*after)[i]) - (*at)[i] + learning_rate * gradient[i];
    product += next * last;
    square += last * last;
  }
  constexpr double kForget = 0.99;
  product_ = kForget * product_ + product;
  square_ = kForget * square_ + square;
  ++seen_;
}

std::optional<double> MomentumMeter::total() const {
  constexpr int64_t kEnough = 20;
  if (seen_ < kEnough || square_ <= 0 || !std::isfinite(product_)) return std::nullopt;
  return product_ / square_;
}

void MomentumLoop::correct(double measured) {
  constexpr double kGain = 0.01;
  constexpr double kMost = 0.99;
  if (!std::isfinite(measured)) return;
  applied_ = std::clamp(applied_ + kGain * (wanted_ - measured), -kMostNegative, kMost);
}

}  // namespace convoy::optim
