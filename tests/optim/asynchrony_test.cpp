#include "convoy/optim/asynchrony.hpp"

#include <cmath>
#include <deque>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/base/random.hpp"

namespace convoy::optim {
namespace {

TEST(Asynchrony, GroupsBringMomentumOfTheirOwn) {
  EXPECT_DOUBLE_EQ(implicit_momentum(1), 0);
  EXPECT_DOUBLE_EQ(implicit_momentum(4), 0.75);
  EXPECT_DOUBLE_EQ(explicit_momentum(0.9, 1), 0.9);
  EXPECT_NEAR(explicit_momentum(0.9, 2), 0.4, 1e-12);
  EXPECT_NEAR(explicit_momentum(0.9, 16), -0.0375, 1e-12);
  EXPECT_GE(explicit_momentum(-0.5, 1000), -kMostNegative);
}

TEST(QuadraticRate, IsThatOfGradientDescentWithoutMomentum) {
  for (const double step : {0.1, 0.5, 1.0, 1.9}) {
    EXPECT_NEAR(quadratic_rate(0, 0, step), std::abs(1 - step), 1e-6) << step;
  }
  EXPECT_GT(quadratic_rate(0, 0, 2.5), 1);
}

TEST(QuadraticRate, IsTheRootOfMomentumWhereItOscillates) {
  // Heavy ball: complex roots of magnitude √μ.
  EXPECT_NEAR(quadratic_rate(0, 0.81, 0.5), 0.9, 1e-9);
  // Implicit momentum acts as explicit momentum does, with a smaller step.
  EXPECT_NEAR(quadratic_rate(0.5, 0, 0.6), quadratic_rate(0, 0.5, 0.3), 1e-9);
}

/// E x_t under gradients that are geometrically old, from its own definition:
/// E x_{t+1} = E x_t + μ_L (E x_t − E x_{t−1}) − aλ Σ_k (1 − μ_S) μ_S^k E x_{t−k}.
double simulated_rate(double implicit, double applied, double step) {
  std::vector<double> x = {1, 1};
  constexpr int kSteps = 3000;
  double log_norm = 0;  // of what was divided out
  std::vector<double> logs;
  for (int t = 1; t < kSteps; ++t) {
    double gradient = 0;
    double part = 1 - implicit;
    for (int k = 0; k <= t && part > 1e-18; ++k, part *= implicit) {
      gradient += part * x[static_cast<size_t>(t - k)];
    }
    const auto at = static_cast<size_t>(t);
    x.push_back(x[at] + applied * (x[at] - x[at - 1]) - step * gradient);
    const double norm = std::max(std::abs(x[at + 1]), std::abs(x[at]));
    if (norm < 1e-100 || norm > 1e100) {
      for (double& value : x) value /= norm;
      log_norm += std::log(norm);
    }
    logs.push_back(log_norm + std::log(std::max(std::abs(x[at + 1]), std::abs(x[at]))));
  }
  // Over a long run, so that oscillations do not matter.
  const size_t half = logs.size() / 2;
  return std::exp((logs.back() - logs[half]) / static_cast<double>(logs.size() - 1 - half));
}

TEST(QuadraticRate, AgreesWithSimulation) {
  for (const double implicit : {0.0, 0.5, 0.75, 0.875}) {
    for (const double applied : {-0.4, 0.0, 0.3, 0.6, 0.9}) {
      for (const double step : {0.02, 0.2, 0.7}) {
        EXPECT_NEAR(quadratic_rate(implicit, applied, step),
                    simulated_rate(implicit, applied, step), 2e-3)
            << implicit << " " << applied << " " << step;
      }
    }
  }
}

/// Single paths with random ages, averaged: that the expectation above is what asynchrony does.
TEST(QuadraticRate, AgreesWithRandomAges) {
  const double implicit = 0.5;
  const double applied = 0.3;
  const double step = 0.3;
  constexpr int kPaths = 20000;
  constexpr int kSteps = 12;
  std::vector<double> mean(kSteps + 2);
  for (int path = 0; path < kPaths; ++path) {
    Stream stream(static_cast<uint64_t>(path), Purpose::test);
    std::vector<double> x = {1, 1};
    for (int t = 1; t <= kSteps; ++t) {
      int age = 0;
      while (stream.uniform() < implicit) ++age;
      const int from = t - age;
      const double seen = from < 0 ? 0 : x[static_cast<size_t>(from)];
      const auto at = static_cast<size_t>(t);
      x.push_back(x[at] + applied * (x[at] - x[at - 1]) - step * seen);
    }
    for (size_t t = 0; t < mean.size(); ++t) mean[t] += x[t] / kPaths;
  }
  // Δ_{t+1} = (μ_L + μ_S) Δ_t − μ_L μ_S Δ_{t−1} − (1 − μ_S) a ∇
  for (int t = 3; t <= kSteps; ++t) {
    const auto at = static_cast<size_t>(t);
    const double now = mean[at + 1] - mean[at];
    const double last = mean[at] - mean[at - 1];
    const double before = mean[at - 1] - mean[at - 2];
    EXPECT_NEAR(now,
                (applied + implicit) * last - applied * implicit * before -
                    (1 - implicit) * step * mean[at],
                0.01)
        << t;
  }
}

TEST(BestAppliedMomentum, FallsWithTheNumberOfGroups) {
  double last = 1;
  for (const int groups : {1, 2, 4, 8, 16, 32}) {
    const double best = best_applied_momentum(groups, 0.01, 1.0);
    EXPECT_LT(best, last) << groups;
    last = best;
  }
  EXPECT_LT(last, 0);
  // One group: the classical optimum ((√κ − 1)/(√κ + 1))² for the step that goes with it.
  const double kappa = 100;
  const double momentum = std::pow((std::sqrt(kappa) - 1) / (std::sqrt(kappa) + 1), 2);
  const double most = std::pow(1 + std::sqrt(momentum), 2);
  EXPECT_NEAR(best_applied_momentum(1, most / kappa, most), momentum, 0.01);
}

/// SGD on quadratics of several curvatures with noise, against gradients `ages` updates old.
double measured(double applied, int groups, int steps = 4000) {
  constexpr size_t kWeights = 64;
  constexpr double kRate = 0.05;
  MomentumMeter meter(kWeights, 200);
  Stream stream(7, Purpose::test);
  std::deque<std::vector<float>> past;
  std::vector<float> x(kWeights, 1.0F);
  std::vector<float> velocity(kWeights);
  std::vector<float> gradient(kWeights);
  meter.moved(x);
  past.push_back(x);
  for (int t = 0; t < steps; ++t) {
    int age = 0;
    while (stream.uniform() < implicit_momentum(groups)) ++age;
    age = std::min(age, std::min(t, 150));
    const std::vector<float>& from = past[past.size() - 1 - static_cast<size_t>(age)];
    for (size_t i = 0; i < kWeights; ++i) {
      const float curvature = 0.1F + 3.0F * static_cast<float>(i) / kWeights;
      gradient[i] = curvature * from[i] + 0.1F * stream.normal();
      velocity[i] = static_cast<float>(applied) * velocity[i] + gradient[i];
      x[i] -= static_cast<float>(kRate) * velocity[i];
    }
    const int64_t version = meter.version() - age;
    meter.moved(x);
    past.push_back(x);
    if (past.size() > 200) past.pop_front();
    meter.arrived(version, gradient, kRate);
  }
  return meter.total().value_or(-9);
}

TEST(MomentumMeter, SeesWhatIsAppliedWithoutAsynchrony) {
  for (const double applied : {-0.3, 0.0, 0.5, 0.9})
    EXPECT_NEAR(measured(applied, 1), applied, 1e-3);
}

TEST(MomentumMeter, SeesMoreWithMoreGroups) {
  double last = -1;
  for (const int groups : {1, 2, 4, 8}) {
    const double total = measured(0.3, groups);
    EXPECT_GT(total, last) << groups;
    last = total;
  }
}

TEST(MomentumMeter, NeedsSomeUpdatesAndLeavesOutWhatIsForgotten) {
  MomentumMeter meter(2, 3);
  EXPECT_FALSE(meter.total());
  const std::vector<float> weights = {1, 2};
  for (int i = 0; i < 100; ++i) {
    meter.moved(weights);
    meter.arrived(meter.version() - 5, weights, 0.1);
  }
  EXPECT_FALSE(meter.total());
}

TEST(MomentumLoop, AppliesLessWhereMoreIsInForce) {
  MomentumLoop loop(0.9, 0.9);
  for (int i = 0; i < 2000; ++i) loop.correct(loop.applied() + 0.5);
  EXPECT_NEAR(loop.applied(), 0.4, 1e-3);
  loop.correct(std::nan(""));
  EXPECT_NEAR(loop.applied(), 0.4, 1e-3);
  for (int i = 0; i < 100000; ++i) loop.correct(10);
  EXPECT_GE(loop.applied(), -kMostNegative);
}

}  // namespace
}  // namespace convoy::optim
