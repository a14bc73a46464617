// Shares add up, respect memory, and leave the slowest worker as little as possible to do.

#include "convoy/sync/shares.hpp"

#include <functional>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/base/random.hpp"

namespace convoy::sync {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<ShareBounds> kTwo(2);
const std::vector<ShareBounds> kThree(3);
const std::vector<ShareBounds> kFour(4);

Shares proportional(int64_t grains, const std::vector<double>& speeds,
                    const std::vector<ShareBounds>& bounds) {
  return proportional_shares(grains, std::span<const double>(speeds), bounds);
}

int64_t sum(const std::vector<int64_t>& grains) {
  return std::accumulate(grains.begin(), grains.end(), int64_t{0});
}

void expect_within(const Shares& shares, int64_t grains, const std::vector<ShareBounds>& bounds) {
  ASSERT_EQ(shares.grains.size(), bounds.size());
  EXPECT_EQ(sum(shares.grains), grains);
  for (size_t i = 0; i < bounds.size(); ++i) {
    EXPECT_GE(shares.grains[i], bounds[i].least);
    EXPECT_LE(shares.grains[i], bounds[i].most);
  }
}

/// Tries everything.
Seconds least_maximum(int64_t grains, const std::vector<TimeProfile>& profiles,
                      const std::vector<ShareBounds>& bounds) {
  Seconds best{1e300};
  std::vector<int64_t> x(profiles.size());
  const std::function<void(size_t, int64_t)> go = [&](size_t i, int64_t left) {
    if (i + 1 == x.size()) {
      x[i] = left;
      if (left < bounds[i].least || left > bounds[i].most) return;
      best = std::min(best, slowest(x, profiles));
      return;
    }
    for (x[i] = bounds[i].least; x[i] <= std::min(left, bounds[i].most); ++x[i]) {
      go(i + 1, left - x[i]);
    }
  };
  go(0, grains);
  return best;
}

TEST(ProportionalShares, FollowSpeeds) {
  EXPECT_THAT(proportional(30, {1, 2, 3}, kThree).grains, ElementsAre(5, 10, 15));
  // The released heterogeneity of LB-BSP: seconds per sample.
  const std::vector<double> speeds{1 / .00233, 1 / .00159, 1 / .00110, 1 / .00110};
  const std::vector<int64_t> grains = proportional(2048, speeds, kFour).grains;
  EXPECT_EQ(sum(grains), 2048);
  double time = 0;
  for (size_t i = 0; i < 4; ++i) {
    time = std::max(time, static_cast<double>(grains[i]) / speeds[i]);
  }
  EXPECT_NEAR(512 * .00233 / time, 1.68, 0.01) << "gain over an equal split";
}

TEST(ProportionalShares, LeftOverGrainsGoToTheLargestRemainderThenToTheFirst) {
  EXPECT_THAT(proportional(10, {1, 1, 1}, kThree).grains, ElementsAre(4, 3, 3));
  EXPECT_THAT(proportional(11, {1, 1, 1}, kThree).grains, ElementsAre(4, 4, 3));
  EXPECT_THAT(proportional(10, {26, 26, 48}, kThree).grains, ElementsAre(3, 2, 5));
}

TEST(ProportionalShares, MayBeNothing) {
  EXPECT_THAT(proportional(2, {1, 100, 100}, kThree).grains, ElementsAre(0, 1, 1));
  EXPECT_THAT(proportional(7, {0, 1}, kTwo).grains, ElementsAre(0, 7));
  EXPECT_THAT(proportional(0, {2, 1}, kTwo).grains, ElementsAre(0, 0));
  EXPECT_THAT(proportional(6, {0, 0, 0}, kThree).grains, ElementsAre(2, 2, 2))
      << "nobody moves, so nobody is preferred";
}

TEST(ProportionalShares, MemoryTakesAwayAndTheOthersGetItAndItIsSaid) {
  std::vector<ShareBounds> bounds(3);
  bounds[2].most = 5;
  const Shares shares = proportional(30, {1, 2, 3}, bounds);
  EXPECT_THAT(shares.grains, ElementsAre(8, 17, 5));
  EXPECT_THAT(shares.clamped, ElementsAre(2));
  EXPECT_THAT(describe_clamped(shares), ElementsAre("worker 2 has memory for 5 grains only"));
  bounds[1].most = 11;  // enough for its own part, but not for the third's too
  EXPECT_THAT(proportional(30, {1, 2, 3}, bounds).clamped, ElementsAre(1, 2));
  bounds[1].most = 1000;
  bounds[2].most = 15;
  EXPECT_THAT(proportional(30, {1, 2, 3}, bounds).clamped, IsEmpty()) << "just enough";
}

TEST(ProportionalShares, LowerBoundsAreKept) {
  std::vector<ShareBounds> bounds(3);
  bounds[0].least = 10;
  EXPECT_THAT(proportional(30, {1, 2, 2}, bounds).grains, ElementsAre(10, 10, 10));
  bounds[0].least = 14;
  EXPECT_THAT(proportional(30, {1, 1, 3}, bounds).grains, ElementsAre(14, 4, 12));
}

TEST(ProportionalShares, AddUpWithinAnyBoundsThatCanBeMet) {
  Stream random(1, Purpose::test);
  for (int trial = 0; trial < 2000; ++trial) {
    const size_t n = 1 + random.below(6);
    std::vector<double> speeds(n);
    std::vector<ShareBounds> bounds(n);
    int64_t least = 0;
    int64_t most = 0;
    for (size_t i = 0; i < n; ++i) {
      speeds[i] = random.below(5) == 0 ? 0 : std::exp(5 * random.normal());
      bounds[i].least = random.below(4);
      bounds[i].most = bounds[i].least + random.below(20);
      least += bounds[i].least;
      most += bounds[i].most;
    }
    const int64_t grains = least + random.below(static_cast<uint32_t>(most - least + 1));
    expect_within(proportional(grains, speeds, bounds), grains, bounds);
  }
}

TEST(ProportionalShares, AreRefusedWithBothNumbersWhenMemoryIsTooSmall) {
  std::vector<ShareBounds> bounds(2, {.least = 0, .most = 3});
  try {
    proportional(7, {1, 1}, bounds);
    FAIL() << "7 grains do not fit into 6";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("7 grains"));
    EXPECT_THAT(error.what(), HasSubstr("holds 6"));
  }
  bounds.assign(2, {.least = 4, .most = 9});
  EXPECT_THROW(proportional(7, {1, 1}, bounds), Error);
}

TEST(ProportionalShares, AWorkerOfUnknownSpeedGetsAnEqualShare) {
  const std::vector<std::optional<double>> speeds{1.0, std::nullopt, 3.0};
  EXPECT_THAT(proportional_shares(12, speeds, kThree).grains, ElementsAre(2, 4, 6));
  const std::vector<std::optional<double>> none(3);
  EXPECT_THAT(proportional_shares(12, none, kThree).grains, ElementsAre(4, 4, 4));
}

TEST(MemoryBounds, AreWholeGrains) {
  EXPECT_EQ(memory_bounds({1000}, {300}).most, 3);
  EXPECT_EQ(memory_bounds({299}, {300}).most, 0);
  EXPECT_EQ(memory_bounds({-5}, {300}).most, 0);
}

TEST(TimeProfile, IsFlatThenLinearAndNothingForNothing) {
  const TimeProfile profile{.flat = {2}, .offset = {0.5}, .slope = {0.5}};
  EXPECT_EQ(profile.at(0).value, 0);
  EXPECT_EQ(profile.at(1).value, 2);
  EXPECT_EQ(profile.at(3).value, 2);
  EXPECT_EQ(profile.at(5).value, 3);
}

TEST(EqualFinish, IsAsGoodAsTryingEverything) {
  Stream random(2, Purpose::test);
  for (int trial = 0; trial < 1500; ++trial) {
    const size_t n = 1 + random.below(4);
    std::vector<TimeProfile> profiles(n);
    std::vector<ShareBounds> bounds(n);
    int64_t least = 0;
    int64_t most = 0;
    for (size_t i = 0; i < n; ++i) {
      // Few different numbers, so that there are ties, and now and then no cost at all.
      profiles[i].flat.value = random.below(4);
      profiles[i].offset.value = 0.25 * random.below(4);
      profiles[i].slope.value = 0.25 * random.below(5);
      bounds[i].least = random.below(3);
      bounds[i].most = bounds[i].least + random.below(8);
      least += bounds[i].least;
      most += bounds[i].most;
    }
    const int64_t grains = least + random.below(static_cast<uint32_t>(most - least + 1));
    const Shares shares = equal_finish(grains, profiles, bounds);
    expect_within(shares, grains, bounds);
    ASSERT_EQ(slowest(shares.grains, profiles).value, least_maximum(grains, profiles, bounds).value)
        << "trial " << trial;
  }
}

TEST(EqualFinish, IsNeverSlowerThanLargestRemainder) {
  Stream random(3, Purpose::test);
  for (int trial = 0; trial < 300; ++trial) {
    const size_t n = 2 + random.below(8);
    std::vector<double> speeds(n);
    std::vector<TimeProfile> profiles(n);
    for (size_t i = 0; i < n; ++i) {
      speeds[i] = 0.1 + random.uniform();
      profiles[i] = TimeProfile::of_speed(speeds[i]);
    }
    const std::vector<ShareBounds> bounds(n);
    const int64_t grains = random.below(500);
    EXPECT_LE(slowest(equal_finish(grains, profiles, bounds).grains, profiles),
              slowest(proportional(grains, speeds, bounds).grains, profiles));
  }
}

TEST(EqualFinish, FillsTheFlatPartFirstAndEvenly) {
  const TimeProfile wide{.flat = {8}, .offset = {0}, .slope = {1}};
  const std::vector<TimeProfile> profiles{wide, wide, wide};
  EXPECT_THAT(equal_finish(9, profiles, kThree).grains, ElementsAre(3, 3, 3));
  EXPECT_EQ(slowest(equal_finish(24, profiles, kThree).grains, profiles).value, 8);
  EXPECT_EQ(slowest(equal_finish(25, profiles, kThree).grains, profiles).value, 9);
}

TEST(EqualFinish, LeavesAWorkerOutThatOnlyHoldsUpTheOthers) {
  const TimeProfile slow{.flat = {100}, .offset = {0}, .slope = {1}};
  const std::vector<TimeProfile> profiles{slow, TimeProfile::of_speed(1), TimeProfile::of_speed(1)};
  EXPECT_THAT(equal_finish(20, profiles, kThree).grains, ElementsAre(0, 10, 10));
}

TEST(EqualFinish, SaysWhomMemoryHeldBack) {
  const std::vector<TimeProfile> profiles(3, TimeProfile::of_speed(1));
  std::vector<ShareBounds> bounds(3);
  bounds[1].most = 2;
  const Shares shares = equal_finish(12, profiles, bounds);
  EXPECT_THAT(shares.grains, ElementsAre(5, 2, 5));
  EXPECT_THAT(shares.clamped, ElementsAre(1));
  bounds[1].most = 4;
  EXPECT_THAT(equal_finish(12, profiles, bounds).clamped, IsEmpty());
}

}  // namespace
}  // namespace convoy::sync
