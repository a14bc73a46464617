#include "convoy/sync/tree_exchange.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/base/random.hpp"
#include "convoy/comm/thread_world.hpp"

namespace convoy::sync {
namespace {

constexpr Seconds kPatience{20};
constexpr int64_t kCount = 1000;

/// Gradients whose sum depends on the order.
std::vector<float> gradient(int64_t grain) {
  Stream random(static_cast<uint64_t>(grain) + 1, Purpose::test);
  std::vector<float> values(kCount);
  for (float& v : values) v = random.normal();
  return values;
}

/// The sums that a worker holds when it has run its grains, cut over `lanes` lanes.
struct Held {
  Held(const GrainRange& range, int lanes) : slots(static_cast<size_t>(lanes)) {
    for (int lane = 0; lane < lanes; ++lane) {
      const GrainRange part{range.first + range.size() * lane / lanes,
                            range.first + range.size() * (lane + 1) / lanes};
      std::vector<float>& own = slots[static_cast<size_t>(lane)];
      own.resize(static_cast<size_t>(RangeSum::slots(part) * kCount));
      RangeSum sum(part, kCount, kCount, own);
      for (int64_t g = part.first; g < part.last; ++g) {
        const RangeSum::Target target = sum.next();
        const std::vector<float> values = gradient(g);
        std::copy(values.begin(), values.end(), target.gradient);
        sum.layer_complete(0, kCount);
        sum.grain_complete();
      }
      for (const RangeSum::Kept& k : RangeSum::kept(part)) {
        sums.push_back({k.node, own.data() + static_cast<int64_t>(k.slot) * kCount});
      }
    }
  }
  std::vector<std::vector<float>> slots;
  std::vector<HeldSum> sums;
};

std::vector<float> by_one_worker(int64_t grains) {
  const Held held({0, grains}, 1);
  const TreeTotal total(held.sums, grains);
  std::vector<float> workspace(static_cast<size_t>(TreeTotal::workspace_size(grains, kCount)));
  const float* sum = total.sum(0, kCount, workspace);
  return {sum, sum + kCount};
}

std::vector<GrainRange> ranges_of(const std::vector<int64_t>& shares) {
  std::vector<GrainRange> ranges;
  int64_t at = 0;
  for (const int64_t share : shares) {
    ranges.push_back({at, at + share});
    at += share;
  }
  return ranges;
}

/// Strips of floats [begin, end).
std::vector<comm::Strip> strips_of(int64_t begin, int64_t end, int ranks) {
  std::vector<comm::Strip> strips;
  for (int r = 0; r < ranks; ++r) {
    const comm::Strip s = comm::strip_of(end - begin, r, ranks);
    strips.push_back({begin + s.begin, begin + s.end});
  }
  return strips;
}

TEST(TreeExchange, GivesTheBitsOfOneWorkerForAnySharesAndLanes) {
  const std::vector<std::vector<int64_t>> all_shares = {
      {8},          {4, 4},          {5, 3},
      {3, 3, 2},    {2, 2, 2, 2},    {0, 8},
      {1, 0, 4, 3}, {7, 1},          {1, 1, 1, 1, 1, 1, 1},
      {3, 0, 0, 3}, {6, 6, 6, 6, 1}, {16, 1, 0, 5, 9}};
  for (const auto& shares : all_shares) {
    const std::vector<GrainRange> ranges = ranges_of(shares);
    const std::vector<float> expected = by_one_worker(ranges.back().last);
    const auto ranks = static_cast<int>(shares.size());
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, kCount}, {100, 103}, {7, 7}}) {
      const std::vector<comm::Strip> strips = strips_of(begin, end, ranks);
      comm::run_as_threads(ranks, [&, begin = begin, end = end](comm::Communicator& c) {
        for (const int lanes : {1, 3}) {
          const Held held(ranges[static_cast<size_t>(c.rank())], lanes);
          TreeExchange tree(c, ranges.back().last, strips, 1);
          comm::Gate gate(Bytes{1000});
          std::vector<float> arena(kCount, 0);
          const comm::Traffic before = c.sent();
          for (int round = 0; round < 2; ++round) {
            comm::wait(tree.part_reduce(HostSums(ranges, held.sums), gate, 0), kPatience,
                       "the sum");
            const comm::Strip own = tree.own();
            std::vector<float> workspace(static_cast<size_t>(
                TreeTotal::workspace_size(ranges.back().last, std::max<int64_t>(1, own.size()))));
            if (own.size() > 0) {
              std::copy_n(tree.sum(own.begin, own.end, workspace), own.size(),
                          arena.begin() + own.begin);
            }
            comm::Tasks both;
            both.add(tree.take_strips(arena, gate));
            both.add(tree.give_strip(arena, gate, 0));
            const auto all = [](comm::Tasks tasks) -> comm::Task { co_await std::move(tasks); };
            comm::wait(all(std::move(both)), kPatience, "the strips");
          }
          for (int64_t i = begin; i < end; ++i) {
            ASSERT_EQ(arena[static_cast<size_t>(i)], expected[static_cast<size_t>(i)]);
          }
          const comm::Traffic each = TreeExchange::traffic(c.rank(), ranges, strips, gate);
          EXPECT_EQ(c.sent() - before, (comm::Traffic{2 * each.messages, 2 * each.bytes}));
        }
      });
    }
  }
}

TEST(TreeExchange, FollowsSharesThatChangeFromSumToSum) {
  const std::vector<std::vector<int64_t>> turns = {{4, 4, 4}, {5, 3, 4},  {0, 12, 0},
                                                   {1, 6, 5}, {11, 0, 1}, {3, 3, 6}};
  const std::vector<float> expected = by_one_worker(12);
  const std::vector<comm::Strip> strips = {{0, 10}, {10, 500}, {500, kCount}};
  comm::run_as_threads(3, [&](comm::Communicator& c) {
    TreeExchange tree(c, 12, strips, 1);
    comm::Gate gate(Bytes{1000});
    for (const std::vector<int64_t>& shares : turns) {
      for (const int lanes : {1, 2}) {  // with two, sums must be made before they can be sent
        const std::vector<GrainRange> ranges = ranges_of(shares);
        const Held held(ranges[static_cast<size_t>(c.rank())], lanes);
        comm::wait(tree.part_reduce(HostSums(ranges, held.sums), gate, 0), kPatience, "the sum");
        const comm::Strip own = tree.own();
        std::vector<float> workspace(
            static_cast<size_t>(TreeTotal::workspace_size(12, own.size())));
        const float* sum = tree.sum(own.begin, own.end, workspace);
        for (int64_t i = own.begin; i < own.end; ++i) {
          ASSERT_EQ(sum[i - own.begin], expected[static_cast<size_t>(i)]);
        }
      }
    }
  });
}

}  // namespace
}  // namespace convoy::sync
