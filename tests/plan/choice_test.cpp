#include "convoy/plan/choice.hpp"

#include <gtest/gtest.h>

#include "convoy/base/random.hpp"

namespace convoy::plan {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

Option option(double ms, int64_t workspace, int64_t kept = 0) {
  return {Seconds{ms / 1e3}, Bytes{workspace * kMib}, Bytes{kept * kMib}};
}

std::vector<Item> random_items(uint64_t number, size_t count) {
  Stream random(7, Purpose::test, number, 0);
  std::vector<Item> items(count);
  for (Item& item : items) {
    item.options.push_back(option(10 + random.below(90), random.below(3)));
    const uint32_t more = random.below(4);
    for (uint32_t i = 0; i < more; ++i) {
      item.options.push_back(
          option(1 + random.below(90), random.below(60), random.below(2) * random.below(20)));
    }
  }
  return items;
}

/// By trying everything.
std::optional<Choice> brute_force(const std::vector<Item>& items, Workspace form, Bytes bound) {
  std::optional<Choice> best;
  std::vector<size_t> taken(items.size(), 0);
  for (;;) {
    const Choice choice = tally(items, taken, form);
    if (choice.memory <= bound && (!best || choice.time < best->time)) best = choice;
    size_t i = 0;
    while (i < items.size() && ++taken[i] == items[i].options.size()) taken[i++] = 0;
    if (i == items.size()) return best;
  }
}

TEST(Choice, CountsSharedWorkspaceOnceAndKeptMemoryAlways) {
  const std::vector<Item> items = {{"a", {option(5, 10, 1)}}, {"b", {option(6, 30, 2)}}};
  EXPECT_EQ(tally(items, {0, 0}, Workspace::shared).memory, Bytes{33 * kMib});
  EXPECT_EQ(tally(items, {0, 0}, Workspace::separate).memory, Bytes{43 * kMib});
  EXPECT_DOUBLE_EQ(tally(items, {0, 0}, Workspace::shared).time.value, 11e-3);
}

TEST(Choice, IsTheOptimumThatBruteForceFinds) {
  for (uint64_t number = 0; number < 60; ++number) {
    const std::vector<Item> items = random_items(number, 1 + number % 7);
    for (const Workspace form : {Workspace::shared, Workspace::separate}) {
      for (const int64_t mib : {0, 1, 5, 20, 50, 90, 200}) {
        const Bytes bound{mib * kMib};
        const auto best = brute_force(items, form, bound);
        const auto found = choose_exactly(items, form, bound);
        ASSERT_EQ(found.has_value(), best.has_value()) << number << " within " << mib;
        if (!best) continue;
        EXPECT_NEAR(found->time.value, best->time.value, 1e-9) << number << " within " << mib;
        EXPECT_LE(found->memory, bound);
      }
    }
  }
}

TEST(Choice, IsNeverSlowerThanTheGreedyOneAndSometimesFaster) {
  int faster = 0;
  for (uint64_t number = 0; number < 60; ++number) {
    const std::vector<Item> items = random_items(100 + number, 12);
    for (const Workspace form : {Workspace::shared, Workspace::separate}) {
      for (const int64_t mib : {20, 60, 150}) {
        const auto greedy = choose_greedily(items, form, Bytes{mib * kMib});
        if (!greedy) continue;
        EXPECT_LE(greedy->memory, Bytes{mib * kMib});
        const auto exact = choose_exactly(items, form, Bytes{mib * kMib});
        ASSERT_TRUE(exact.has_value());
        EXPECT_LE(exact->time.value, greedy->time.value + 1e-12);
        if (exact->time.value < greedy->time.value - 1e-9) ++faster;
      }
    }
  }
  EXPECT_GT(faster, 10);
}

TEST(Choice, FitsIntoTheLeastMemoryAndNotIntoLess) {
  for (uint64_t number = 0; number < 40; ++number) {
    const std::vector<Item> items = random_items(200 + number, 6);
    for (const Workspace form : {Workspace::shared, Workspace::separate}) {
      const Bytes least = least_memory(items, form);
      EXPECT_TRUE(brute_force(items, form, least).has_value());
      EXPECT_FALSE(brute_force(items, form, least - Bytes{1}).has_value());
    }
  }
}

}  // namespace
}  // namespace convoy::plan
