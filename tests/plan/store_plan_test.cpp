#include "convoy/plan/store_plan.hpp"

#include <gtest/gtest.h>

namespace convoy::plan {
namespace {

/// 10,000 samples of 100 kB, a batch of 100, over four workers that hold them once.
data::StoreOptions four_workers() {
  data::StoreOptions options;
  options.copies = 1;
  options.samples = 10'000;
  options.batch = 100;
  options.grain = 5;
  options.ranges = {{0, 5}, {5, 10}, {10, 15}, {15, 20}};
  return options;
}

constexpr Bytes kAll{10'000 * int64_t{100'000}};

/// 100 MB/s and a millisecond for a message.
comm::LinkSpeed slow_link() {
  comm::LinkSpeed link;
  link.latency = {1e-3};
  link.per_byte = link.long_per_byte = {1e-8};
  link.longest = {int64_t{1} << 40};
  return link;
}

TEST(MovingCost, IsNothingForFetchingThatAStepHides) {
  // 25 samples of 100 kB, of which three quarters are elsewhere: 18.75 ms, and three messages.
  const MovingCost cost = moving_cost(kAll, four_workers(), Seconds{0.1}, slow_link());
  EXPECT_EQ(cost.fetching.value, 0);
  EXPECT_GT(cost.shuffling.value, 0);
}

TEST(MovingCost, OfFetchingIsWhatAStepDoesNotHide) {
  const MovingCost cost = moving_cost(kAll, four_workers(), Seconds{0.01}, slow_link());
  EXPECT_NEAR(cost.fetching.value, 0.01875 + 0.003 - 0.01, 1e-9);
}

TEST(MovingCost, OfShufflingIsAnAllToAllOverTheStepsOfAnEpoch) {
  const MovingCost cost = moving_cost(kAll, four_workers(), Seconds{0.01}, slow_link());
  // 1 GB / 16 for each pair, in segments of 32 MiB: three rounds of two messages.
  EXPECT_NEAR(cost.shuffling.value, 3 * (0.625 + 2e-3) / 100, 1e-9);
}

TEST(MovingCost, IsNothingWhereEverybodyHasEverything) {
  data::StoreOptions options = four_workers();
  options.copies = 4;
  const MovingCost cost = moving_cost(kAll, options, Seconds{0.01}, slow_link());
  EXPECT_EQ(cost.fetching.value, 0);
  EXPECT_EQ(cost.shuffling.value, 0);
}

TEST(MovingCost, OfManySmallMessagesIsLessWhenSamplesChangeHands) {
  data::StoreOptions options = four_workers();
  comm::LinkSpeed link = slow_link();
  link.latency = {0.05};
  const MovingCost cost = moving_cost(kAll, options, Seconds{0.01}, link);
  EXPECT_LT(cost.shuffling, cost.fetching);
}

}  // namespace
}  // namespace convoy::plan
