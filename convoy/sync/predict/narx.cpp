#include "convoy/sync/predict/narx.hpp"

#include "convoy/base/random.hpp"

namespace convoy::sync {
namespace {

// What the newest step counts in the averages.
constexpr std::array<double, 3> kNewest{0.5, 0.2, 0.05};
// Steps that only say how speeds are spread.
constexpr int64_t kFirst = 6;
constexpr double kForget = 0.995;
constexpr double kAverageDoubt = 1;
constexpr double kNetworkDoubt = 0.4;
// Variances of the weights before anything was seen.
constexpr double kLinearUnsure = 0.05;
constexpr double kHiddenUnsure = 0.1;
constexpr double kOutputUnsure = 0.05;
constexpr double kDrift = 1e-6;
constexpr double kLeastNoise = 1e-4;
// A surprise beyond so many deviations teaches no more than one of so many.
constexpr double kFarthest = 3;

template <size_t n>
void shift_in(std::array<double, n>& past, double newest) {
  for (size_t i = n - 1; i > 0; --i) past[i] = past[i - 1];
  past[0] = newest;
}

}  // namespace

Narx::Narx(uint64_t seed)
    : to_averages_{Gate(kForget, kAverageDoubt), Gate(kForget, kAverageDoubt),
                   Gate(kForget, kAverageDoubt)},
      to_network_(kForget, kNetworkDoubt) {
  Stream random(seed, Purpose::init);
  for (size_t i = 0; i < kInputs; ++i) covariance_[i][i] = kLinearUnsure;
  for (size_t j = 0; j < kHidden; ++j) {
    const size_t first = kInputs + j * (kInputs + 1);
    for (size_t i = 0; i < kInputs; ++i) {
      weights_[first + i] = random.normal() / std::sqrt(static_cast<double>(kInputs));
      covariance_[first + i][first + i] = kHiddenUnsure;
    }
    covariance_[first + kInputs][first + kInputs] = kOutputUnsure;
  }
}

Narx::Inputs Narx::inputs(const Load& now) const {
  Inputs u{};
  size_t at = 0;
  for (const double speed : speeds_) u[at++] = speed_scale_(speed);
  u[at++] = cpu_scale_(now.cpu);
  for (size_t i = 0; i + 1 < kCpus; ++i) u[at++] = cpu_scale_(cpus_[i]);
  u[at++] = memory_scale_(now.memory);
  for (size_t i = 0; i + 1 < kMemories; ++i) u[at++] = memory_scale_(memories_[i]);
  u[at] = 1;
  return u;
}

double Narx::network(const Inputs& u, Weights* derivatives) const {
  double sum = 0;
  for (size_t i = 0; i < kInputs; ++i) {
    sum += weights_[i] * u[i];
    if (derivatives != nullptr) (*derivatives)[i] = u[i];
  }
  for (size_t j = 0; j < kHidden; ++j) {
    const size_t first = kInputs + j * (kInputs + 1);
    double inner = 0;
    for (size_t i = 0; i < kInputs; ++i) inner += weights_[first + i] * u[i];
    const double hidden = std::tanh(inner);
    const double out = weights_[first + kInputs];
    sum += out * hidden;
    if (derivatives == nullptr) continue;
    const double slope = out * (1 - hidden * hidden);
    for (size_t i = 0; i < kInputs; ++i) (*derivatives)[first + i] = slope * u[i];
    (*derivatives)[first + kInputs] = hidden;
  }
  return sum;
}

void Narx::train(const Inputs& u, double target) {
  Weights h{};
  const double surprise = target - network(u, &h);
  Weights projected{};  // P h
  double spread = 0;    // hᵀ P h
  for (size_t i = 0; i < kWeights; ++i) {
    double sum = 0;
    for (size_t j = 0; j < kWeights; ++j) sum += covariance_[i][j] * h[j];
    projected[i] = sum;
    spread += sum * h[i];
  }
  const double variance = noise_ + spread;
  const double most = kFarthest * std::sqrt(variance);
  const double step = std::clamp(surprise, -most, most) / variance;
  for (size_t i = 0; i < kWeights; ++i) {
    weights_[i] += projected[i] * step;
    const double part = projected[i] / variance;
    for (size_t j = 0; j < kWeights; ++j) covariance_[i][j] -= part * projected[j];
    covariance_[i][i] += kDrift;
  }
  constexpr double kNewestNoise = 0.02;
  noise_ += kNewestNoise * (std::min(surprise * surprise, most * most) - noise_);
  noise_ = std::max(noise_, kLeastNoise);
}

double Narx::careful() const {
  double mixed = speeds_[0];
  for (size_t i = 0; i < kAverages; ++i) mixed = to_averages_[i].mix(mixed, averages_[i]);
  return mixed;
}

Narx::Advice Narx::advise(const Inputs& u) const {
  const double change = speed_scale_.deviation() * network(u, nullptr);
  return {.careful = careful(), .network = seen_.within(speeds_[0] + change)};
}

double Narx::predict(const Load& now) const {
  if (steps_ == 0) return 0;
  const Advice advice = advise(inputs(sane_load(now)));
  return seen_.within(to_network_.mix(advice.careful, advice.network));
}

void Narx::observe(const Observation& step) {
  if (!sane_speed(step.speed)) return;
  const Load load = sane_load(step.load);
  if (steps_ == 0) {
    speeds_.fill(step.speed);
    averages_.fill(step.speed);
    cpus_.fill(load.cpu);
    memories_.fill(load.memory);
  } else {
    const Inputs u = inputs(load);
    const double unit = speed_scale_.deviation();
    if (steps_ >= kFirst) {
      const Advice advice = advise(u);
      to_network_.learn(advice.careful / unit, advice.network / unit, step.speed / unit);
      train(u, (step.speed - speeds_[0]) / unit);
    }
    double mixed = speeds_[0];
    for (size_t i = 0; i < kAverages; ++i) {
      const double next = to_averages_[i].mix(mixed, averages_[i]);
      to_averages_[i].learn(mixed / unit, averages_[i] / unit, step.speed / unit);
      mixed = next;
    }
  }
  remember({step.speed, load});
}

void Narx::remember(const Observation& step) {
  ++steps_;
  seen_.add(step.speed);
  shift_in(speeds_, step.speed);
  shift_in(cpus_, step.load.cpu);
  shift_in(memories_, step.load.memory);
  speed_scale_.add(step.speed);
  cpu_scale_.add(step.load.cpu);
  memory_scale_.add(step.load.memory);
  for (size_t i = 0; i < kAverages; ++i) {
    const double newest = std::max(kNewest[i], 1 / static_cast<double>(steps_));
    averages_[i] += newest * (step.speed - averages_[i]);
  }
}

std::unique_ptr<SpeedPredictor> Narx::clone() const {
  return std::make_unique<Narx>(*this);
}

Narx Narx::for_another_worker() const {
  Narx other;
  other.weights_ = weights_;
  other.covariance_ = covariance_;
  other.noise_ = noise_;
  other.to_network_ = to_network_;
  return other;
}

}  // namespace convoy::sync
