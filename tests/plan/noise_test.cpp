#include "convoy/plan/noise.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "convoy/base/random.hpp"

namespace convoy::plan {
namespace {

/// Steps of `grains` grains of 4 samples, each sample's gradient the same plus normal noise of
/// variance 1 in each of 50 dimensions.
NoiseScale simulated(double gradient2, int steps, int grains) {
  constexpr int kDimensions = 50;
  constexpr int kGrain = 4;
  Stream random(1, Purpose::test);
  NoiseScale noise;
  const double each = std::sqrt(gradient2 / kDimensions);
  for (int s = 0; s < steps; ++s) {
    std::vector<double> mean(kDimensions, 0);
    double grain_norm2 = 0;
    for (int g = 0; g < grains; ++g) {
      double norm2 = 0;
      for (double& m : mean) {
        double value = each;
        for (int i = 0; i < kGrain; ++i) value += random.normal() / kGrain;
        norm2 += value * value;
        m += value / grains;
      }
      grain_norm2 += norm2 / grains;
    }
    double batch_norm2 = 0;
    for (const double m : mean) batch_norm2 += m * m;
    noise.add(int64_t{kGrain} * grains, batch_norm2, kGrain, grain_norm2);
  }
  return noise;
}

TEST(NoiseScale, IsTheVarianceOverTheGradient) {
  // tr Σ = 50, |G|² = 0.5: B = 100.
  const NoiseScale noise = simulated(0.5, 2000, 8);
  EXPECT_EQ(noise.steps(), 2000);
  EXPECT_NEAR(*noise.value(), 100, 10);
  EXPECT_NEAR(*simulated(5, 2000, 8).value(), 10, 1);
}

TEST(NoiseScale, IsNothingWithoutNoiseAndEndlessWithoutGradient) {
  EXPECT_FALSE(NoiseScale().value().has_value());
  NoiseScale quiet;
  quiet.add(64, 2.0, 16, 2.0);
  EXPECT_EQ(*quiet.value(), 0);
  NoiseScale loud;
  loud.add(64, 1.0, 16, 4.0);
  EXPECT_TRUE(std::isinf(*loud.value()));
}

TEST(NoiseGrowth, FollowsAPowerOfTheStep) {
  const NoiseGrowth root = noise_growth(25, 10, 100, 20);
  EXPECT_NEAR(root.power, 0.5, 1e-12);
  EXPECT_NEAR(root.at(400), 40, 1e-9);
  EXPECT_EQ(root.at(50), 20) << "it is not followed back";
  EXPECT_EQ(noise_growth(25, 1, 100, 1000).power, 1) << "no faster than the steps";
  EXPECT_EQ(noise_growth(25, 20, 100, 10).power, 0) << "and never falling";
  EXPECT_EQ(noise_growth(25, 0, 100, 10).at(1000), 10);
}

}  // namespace
}  // namespace convoy::plan
