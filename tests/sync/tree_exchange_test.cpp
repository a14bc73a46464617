#include "convoy/sync/tree_exchange.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "convoy/base/random.hpp"
#include "convoy/comm/thread_world.hpp"

namespace convoy::sync {
namespace {

constexpr Seconds kPatience{20};

/// Gradients whose sum depends on the order.
std::vector<float> gradient(int64_t grain, int64_t count) {
  Stream random(static_cast<uint64_t>(grain) + 1, Purpose::test);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = static_cast<float>(random.normal());
  return values;
}

/// The subtrees of a run of grains, as a worker sums them.
struct Held {
  Held(const GrainRange& range, int64_t count) : sum(range.first, range.last, count, count) {
    for (int64_t g = range.first; g < range.last; ++g) {
      const RangeSum::Target target = sum.next();
      const std::vector<float> values = gradient(g, count);
      std::copy(values.begin(), values.end(), target.gradient);
      sum.layer_complete(0, count);
      sum.grain_complete();
    }
  }
  RangeSum sum;
};

std::vector<float> by_one_worker(int64_t grains, int64_t count) {
  const Held held({0, grains}, count);
  const TreeTotal total(held.sum.held(), grains);
  std::vector<float> workspace(static_cast<size_t>(TreeTotal::workspace_size(grains, count)));
  const float* sum = total.sum(0, count, workspace);
  return {sum, sum + count};
}

TEST(Subtrees, AreThoseThatAWorkerHolds) {
  for (int64_t first = 0; first < 12; ++first) {
    for (int64_t last = first + 1; last < 20; ++last) {
      const RangeSum sum = [&] {
        RangeSum s(first, last, 16, 16);
        for (int64_t g = first; g < last; ++g) {
          s.next();
          s.layer_complete(0, 16);
          s.grain_complete();
        }
        return s;
      }();
      std::vector<TreeNode> held;
      for (const HeldSum& h : sum.held()) held.push_back(h.node);
      EXPECT_EQ(subtrees({first, last}), held) << first << " to " << last;
    }
  }
}

TEST(TreeExchange, GivesTheBitsOfOneWorkerForAnyShares) {
  constexpr int64_t kCount = 1000;
  const std::vector<std::vector<int64_t>> all_shares = {
      {8},          {4, 4},          {5, 3},
      {3, 3, 2},    {2, 2, 2, 2},    {0, 8},
      {1, 0, 4, 3}, {7, 1},          {1, 1, 1, 1, 1, 1, 1},
      {3, 0, 0, 3}, {6, 6, 6, 6, 1}, {16, 1, 0, 5, 9}};
  for (const auto& shares : all_shares) {
    const std::vector<GrainRange> ranges = ranges_of(shares);
    const int64_t grains = ranges.back().last;
    const std::vector<float> expected = by_one_worker(grains, kCount);
    const auto ranks = static_cast<int>(shares.size());
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, kCount}, {100, 103}, {7, 7}}) {
      comm::run_as_threads(ranks, [&, begin = begin, end = end](comm::Communicator& c) {
        const Held held(ranges[static_cast<size_t>(c.rank())], kCount);
        const comm::Strip strip = comm::strip_of(end - begin, c.rank(), ranks);
        std::vector<float> sum(static_cast<size_t>(strip.size()));
        const comm::Traffic before = c.sent();
        comm::wait(tree_part_reduce(c, ranges, held.sum.held(), begin, end, sum, 1), kPatience,
                   "the sum");
        for (int64_t i = 0; i < strip.size(); ++i) {
          ASSERT_EQ(sum[static_cast<size_t>(i)],
                    expected[static_cast<size_t>(begin + strip.begin + i)]);
        }
        const comm::Traffic sent = c.sent() - before;
        EXPECT_EQ(sent, tree_traffic(c.rank(), ranges, end - begin));
      });
    }
  }
}

}  // namespace
}  // namespace convoy::sync
