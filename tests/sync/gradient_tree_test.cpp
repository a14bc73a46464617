#include "convoy/sync/gradient_tree.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/base/random.hpp"

namespace convoy::sync {
namespace {

constexpr int64_t kSize = 50;
constexpr int64_t kLargest = 20;
using Values = std::vector<float>;

/// Values of very different sizes: almost every other order of summing gives other bits.
Values gradient_of(int64_t grain) {
  Stream random(3, Purpose::test, static_cast<uint64_t>(grain));
  Values values(kSize);
  for (float& v : values) v = random.normal() * std::exp2(8 * random.normal());
  return values;
}

/// Plays an engine: writes a grain's gradient where it is asked to, last layer first.
void run_grain(RangeSum& sum, int64_t grain) {
  const Values gradient = gradient_of(grain);
  const RangeSum::Target target = sum.next();
  for (int64_t begin = 0; begin < kSize; begin += kLargest) {
    const int64_t end = std::min(begin + kLargest, kSize);
    float* to = target.gradient + (target.layer_by_layer ? 0 : begin);
    std::copy(gradient.begin() + begin, gradient.begin() + end, to);
    sum.layer_complete(begin, end);
  }
  sum.grain_complete();
}

/// The definition: left subtree + right subtree.
Values tree_sum(int64_t first, int64_t last, int64_t span) {
  if (span == 1) return gradient_of(first);
  Values left = tree_sum(first, last, span / 2);
  if (first + span / 2 >= last) return left;
  const Values right = tree_sum(first + span / 2, last, span / 2);
  for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

Values expected_total(int64_t grains) {
  return tree_sum(0, grains, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(grains))));
}

/// The total when the grains are cut at `cuts` (0 first, the number of grains last).
Values total_of(const std::vector<int64_t>& cuts) {
  std::vector<Values> slots(cuts.size());
  std::vector<HeldSum> held;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const GrainRange range{cuts[i], cuts[i + 1]};
    slots[i].resize(static_cast<size_t>(RangeSum::slots(range) * kSize));
    RangeSum sum(range, kSize, kLargest, slots[i]);
    // Twice, as in two steps: the first must leave no trace.
    for (int round = 0; round < 2; ++round) {
      sum.restart(range);
      for (int64_t g = range.first; g < range.last; ++g) run_grain(sum, g);
    }
    for (const RangeSum::Kept& kept : RangeSum::kept(range)) {
      held.push_back({kept.node, slots[i].data() + static_cast<int64_t>(kept.slot) * kSize});
    }
  }
  const TreeTotal total(held, cuts.back());
  Values sum;
  for (int64_t begin = 0; begin < kSize; begin += 7) {
    const int64_t end = std::min<int64_t>(begin + 7, kSize);
    Values workspace(static_cast<size_t>(TreeTotal::workspace_size(cuts.back(), end - begin)));
    const float* piece = total.sum(begin, end, workspace);
    sum.insert(sum.end(), piece, piece + (end - begin));
  }
  return sum;
}

/// Calls f(cuts) for every way to cut `grains` grains into `parts` ranges, empty ones included.
template <typename F>
void for_cuts(int64_t grains, size_t parts, std::vector<int64_t> cuts, const F& f) {
  if (cuts.size() == parts) {
    cuts.push_back(grains);
    f(cuts);
    return;
  }
  for (int64_t next = cuts.back(); next <= grains; ++next) {
    cuts.push_back(next);
    for_cuts(grains, parts, cuts, f);
    cuts.pop_back();
  }
}

TEST(GradientTree, SumsTheSameBitsHoweverTheGrainsAreCut) {
  for (int64_t grains = 1; grains <= 9; ++grains) {
    const Values expected = expected_total(grains);
    for (size_t parts = 1; parts <= 4; ++parts) {
      for_cuts(grains, parts, {0}, [&](const std::vector<int64_t>& cuts) {
        ASSERT_EQ(total_of(cuts), expected) << testing::PrintToString(cuts);
      });
    }
  }
}

TEST(GradientTree, SumsInAnotherOrderThanALoop) {
  Values loop(kSize, 0.0F);
  for (int64_t g = 0; g < 8; ++g) {
    const Values next = gradient_of(g);
    for (size_t i = 0; i < loop.size(); ++i) loop[i] += next[i];
  }
  EXPECT_NE(loop, expected_total(8)) << "the values of this test tell no orders apart";
}

TEST(GradientTree, KeepsAboutLogTwoSumsAndSaysHowMuchTheyTake) {
  for (int64_t first : {0, 1, 3, 6, 8}) {
    for (int64_t count = 0; count <= 70; ++count) {
      const GrainRange range{first, first + count};
      Values room(static_cast<size_t>(RangeSum::slots(range) * kSize));
      RangeSum sum(range, kSize, kLargest, room);
      std::set<const float*> slots;
      bool scratch = false;
      for (int64_t g = range.first; g < range.last; ++g) {
        const std::vector<RangeSum::Kept> before = RangeSum::kept({first, g});
        const RangeSum::Target target = sum.next();
        // What the next grain gets must not be in use.
        for (const RangeSum::Kept& k : before) {
          ASSERT_NE(room.data() + static_cast<int64_t>(k.slot) * kSize, target.gradient);
        }
        if (!target.layer_by_layer) slots.insert(target.gradient);
        scratch = scratch || target.layer_by_layer;
        sum.grain_complete();
      }
      const auto used = static_cast<int64_t>(slots.size());
      EXPECT_EQ(RangeSum::slots(range), used);
      EXPECT_EQ(RangeSum::scratch(range, kLargest), Bytes{scratch ? 4 * kLargest : 0});
      const int log2 = std::bit_width(static_cast<uint64_t>(count));
      EXPECT_LE(used, 2 * log2) << first << " + " << count;
      if (first == 0) {
        EXPECT_LE(used, log2) << count;
      }
    }
  }
}

TEST(Subtrees, AreThoseThatAWorkerKeeps) {
  for (int64_t first = 0; first < 12; ++first) {
    for (int64_t last = first; last < 20; ++last) {
      std::vector<TreeNode> kept;
      for (const RangeSum::Kept& k : RangeSum::kept({first, last})) kept.push_back(k.node);
      EXPECT_EQ(subtrees({first, last}), kept) << first << " to " << last;
    }
  }
}

TEST(RangeSum, NeedsNoMoreSlotsThanAnnouncedForAnyRangeOfThatLength) {
  constexpr int64_t kBatch = 70;
  for (int64_t length = 0; length <= 40; ++length) {
    int64_t most = 0;
    for (int64_t first = 0; first + length <= kBatch; ++first) {
      most = std::max(most, RangeSum::slots({first, first + length}));
    }
    EXPECT_EQ(RangeSum::most_slots(length), most) << length;
  }
}

}  // namespace
}  // namespace convoy::sync
