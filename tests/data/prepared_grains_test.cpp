#include "convoy/data/prepared_grains.hpp"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace convoy::data {
namespace {

using testing::ElementsAre;
using Claim = PreparedGrains::Claim;

PreparedGrains::Options options_with(GrainRange range) {
  return {.grains = 100, .first_step = 5, .range = range};
}

void fill(PreparedGrains& grains, Claim claim) {
  if (claim.slot == nullptr) claim.slot = std::make_unique<GrainSlot>();
  grains.filled(std::move(claim));
}

/// Fills whatever there is to fill; which grains these were.
std::vector<GrainPlace> fill_all(PreparedGrains& grains) {
  std::vector<GrainPlace> places;
  while (std::optional<Claim> claim = grains.claim()) {
    places.push_back(claim->place);
    fill(grains, std::move(*claim));
  }
  return places;
}

void use(PreparedGrains& grains, int64_t step, GrainRange range) {
  for (int64_t g = range.first; g < range.last; ++g) {
    EXPECT_NE(grains.get({step, g}), nullptr) << "grain " << g << " of step " << step;
    grains.release({step, g});
  }
}

TEST(PreparedGrains, AreFilledStepByStepUntilTheSlotsAreFull) {
  PreparedGrains grains(options_with({2, 4}));
  EXPECT_THAT(fill_all(grains),
              ElementsAre(GrainPlace{5, 2}, GrainPlace{5, 3}, GrainPlace{6, 2}, GrainPlace{6, 3}));
  EXPECT_NE(grains.get({5, 3}), nullptr);
  EXPECT_TRUE(fill_all(grains).empty());
  grains.release({5, 3});
  EXPECT_THAT(fill_all(grains), ElementsAre(GrainPlace{7, 2}));
}

TEST(PreparedGrains, AreFilledInTheOrderInWhichLanesAskForThem) {
  PreparedGrains::Options options = options_with({10, 17});
  options.lanes = 3;  // 2 + 2 + 3 grains
  PreparedGrains grains(options);
  std::vector<int64_t> order(7);
  for (int64_t& grain : order) grain = grains.claim()->place.grain;
  EXPECT_THAT(order, ElementsAre(10, 12, 14, 11, 13, 15, 16));
}

TEST(PreparedGrains, StayWhereTheyAreWantedStillAndMakeRoomWhereNot) {
  PreparedGrains grains(options_with({0, 4}));
  fill_all(grains);
  grains.set_range(5, {3, 7});
  EXPECT_THAT(fill_all(grains), ElementsAre(GrainPlace{5, 4}, GrainPlace{5, 5}, GrainPlace{5, 6},
                                            GrainPlace{6, 4}, GrainPlace{6, 5}, GrainPlace{6, 6}));
  EXPECT_EQ(grains.slots(), 8);
}

TEST(PreparedGrains, KeepTheRangesOfStepsBeforeTheOneThatIsNamed) {
  PreparedGrains grains(options_with({0, 2}));
  grains.set_range(7, {2, 3});
  fill_all(grains);
  use(grains, 5, {0, 2});
  fill_all(grains);
  use(grains, 6, {0, 2});
  fill_all(grains);
  EXPECT_THROW(grains.get({7, 0}), std::logic_error);
  use(grains, 7, {2, 3});
}

TEST(PreparedGrains, LeaveTheirSlotWhenTheyAreFilledAndUnwanted) {
  PreparedGrains grains(options_with({0, 1}));
  Claim unwanted = *grains.claim();
  grains.set_range(5, {1, 2});
  EXPECT_EQ(grains.slots(), 1);
  fill(grains, std::move(unwanted));
  EXPECT_EQ(grains.slots(), 1);
  const std::optional<Claim> next = grains.claim();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->place, (GrainPlace{5, 1}));
  EXPECT_NE(next->slot, nullptr);
}

TEST(PreparedGrains, AreLeftToTheLastClaimIfTheyWereUnwantedInBetween) {
  PreparedGrains grains(options_with({0, 1}));
  Claim first = *grains.claim();
  grains.set_range(5, {});
  grains.set_range(5, {0, 1});
  Claim second = *grains.claim();
  EXPECT_EQ(second.place, first.place);
  fill(grains, std::move(first));
  EXPECT_EQ(grains.get({5, 0}), nullptr);
  fill(grains, std::move(second));
  EXPECT_NE(grains.get({5, 0}), nullptr);
}

TEST(PreparedGrains, AreNoneOfAnEmptyRangeAndComeBack) {
  PreparedGrains grains(options_with({}));
  EXPECT_FALSE(grains.claim());
  grains.set_range(8, {0, 2});  // steps 5, 6 and 7 are over
  EXPECT_EQ(fill_all(grains).size(), 4U);
  use(grains, 8, {0, 2});
  grains.set_range(9, {});
  EXPECT_FALSE(grains.claim());
  grains.set_range(9, {50, 51});
  EXPECT_THAT(fill_all(grains), ElementsAre(GrainPlace{9, 50}, GrainPlace{10, 50}));
}

TEST(PreparedGrains, NeedNoNewSlotsWhenAShareGoesUpAndDownByAGrain) {
  PreparedGrains grains(options_with({0, 9}));
  fill_all(grains);
  EXPECT_EQ(grains.slots(), 18);
  for (int64_t step = 5; step < 15; ++step) {
    const GrainRange range{0, 8 + step % 2};
    grains.set_range(step, range);
    while (std::optional<Claim> claim = grains.claim()) {
      EXPECT_NE(claim->slot, nullptr);
      fill(grains, std::move(*claim));
    }
    use(grains, step, range);
    EXPECT_EQ(grains.slots(), 18);
  }
}

TEST(PreparedGrains, GiveMemoryBackWhenAShareShrinksAndTakeItWhenItGrows) {
  PreparedGrains grains(options_with({0, 4}));
  int64_t step = 5;
  for (const int64_t share : {4, 20, 8, 1, 0, 2}) {
    for (int i = 0; i < 3; ++i, ++step) {
      const GrainRange range{0, share};
      grains.set_range(step, range);
      fill_all(grains);
      use(grains, step, range);
      EXPECT_GE(grains.slots(), 2 * share);
    }
    EXPECT_LE(grains.slots(), 2 * share + std::max<int64_t>(2, share / 2));
  }
}

TEST(PreparedGrains, OfAnnouncedStepsAreNotGuessed) {
  PreparedGrains::Options options = options_with({});
  options.announced = true;
  options.ahead = 3;
  PreparedGrains grains(options);
  EXPECT_FALSE(grains.claim());
  EXPECT_THROW(grains.get({5, 0}), std::logic_error);
  grains.set_range(5, {0, 1});
  EXPECT_THAT(fill_all(grains), ElementsAre(GrainPlace{5, 0}));
  grains.set_range(6, {});
  grains.set_range(7, {1, 2});
  EXPECT_THAT(fill_all(grains), ElementsAre(GrainPlace{7, 1}));
  EXPECT_THROW(grains.set_range(7, {1, 2}), std::logic_error);
  EXPECT_THROW(grains.set_range(9, {1, 2}), std::logic_error);
  options.range = {0, 1};
  EXPECT_THROW(PreparedGrains{options}, std::logic_error);
}

TEST(PreparedGrains, AreNotChangedForStepsThatLanesHaveBegun) {
  PreparedGrains grains(options_with({0, 2}));
  fill_all(grains);
  grains.get({5, 0});
  EXPECT_THROW(grains.set_range(5, {1, 2}), std::logic_error);
  grains.release({5, 0});
  EXPECT_THROW(grains.set_range(5, {1, 2}), std::logic_error);
  grains.get({5, 1});
  grains.release({5, 1});
  EXPECT_THROW(grains.set_range(5, {0, 2}), std::logic_error);
  EXPECT_THROW(grains.set_range(6, {0, 101}), std::logic_error);
}

}  // namespace
}  // namespace convoy::data
