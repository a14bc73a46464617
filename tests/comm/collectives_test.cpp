// Every collective against a plain sum, with ranks as threads, and what it sends against its cost.

#include "convoy/comm/collectives.hpp"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/comm/shared.hpp"
#include "convoy/comm/thread_world.hpp"

namespace convoy::comm {
namespace {

constexpr Seconds kPatience{20};

struct Case {
  const char* name;
  std::function<Task(Communicator&, std::span<float>, int)> allreduce;
  std::function<Traffic(int, int, int64_t)> traffic;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

Colors colors(int count, int64_t chunk = 64) {
  return {.colors = count, .chunk = chunk};
}

Case colors_case(const char* name, const Colors& options) {
  return {name,
          [options](Communicator& c, std::span<float> values, int tag) {
            return colors_allreduce(c, values, tag, options);
          },
          [options](int rank, int ranks, int64_t count) {
            return colors_traffic(rank, ranks, count, options);
          }};
}

class Collectives : public testing::TestWithParam<Case> {};

/// Small whole numbers: sums are exact, whatever the order.
std::vector<float> values_of(int rank, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = static_cast<float>((rank + 1) * 7 + i % 13);
  }
  return values;
}

std::vector<float> expected(int ranks, int64_t count) {
  std::vector<float> sum(static_cast<size_t>(count), 0.0F);
  for (int r = 0; r < ranks; ++r) add_to(values_of(r, count), sum);
  return sum;
}

TEST_P(Collectives, GiveEverybodyTheSum) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const int64_t count : {0, 1, 17, 333, 5000}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << count << " values");
      run_as_threads(ranks, [&](Communicator& c) {
        std::vector<float> values = values_of(c.rank(), count);
        wait(GetParam().allreduce(c, values, 3), kPatience, "the sum");
        EXPECT_EQ(values, expected(ranks, count)) << "rank " << c.rank();
      });
    }
  }
}

TEST_P(Collectives, SendWhatTheirCostSays) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const int64_t count : {0, 1, 333, 5000}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << count << " values");
      run_as_threads(ranks, [&](Communicator& c) {
        std::vector<float> values = values_of(c.rank(), count);
        const Traffic before = c.sent();
        wait(GetParam().allreduce(c, values, 0), kPatience, "the sum");
        const Traffic sent = c.sent() - before;
        const Traffic said = GetParam().traffic(c.rank(), ranks, count);
        EXPECT_EQ(sent.messages, said.messages) << "rank " << c.rank();
        EXPECT_EQ(sent.bytes.value, said.bytes.value) << "rank " << c.rank();
      });
    }
  }
}

TEST_P(Collectives, CanBeUnderWayTogether) {
  run_as_threads(5, [&](Communicator& c) {
    std::vector<std::vector<float>> values;
    Tasks tasks;
    for (int i = 0; i < 4; ++i) values.push_back(values_of(c.rank() + i, 777));
    for (int i = 0; i < 4; ++i) {
      tasks.add(GetParam().allreduce(c, values[static_cast<size_t>(i)], i));
    }
    wait([](Tasks all) -> Task { co_await std::move(all); }(std::move(tasks)), kPatience, "sums");
    for (int i = 0; i < 4; ++i) {
      std::vector<float> sum(777, 0.0F);
      for (int r = 0; r < 5; ++r) add_to(values_of(r + i, 777), sum);
      EXPECT_EQ(values[static_cast<size_t>(i)], sum);
    }
  });
}

TEST_P(Collectives, EndWithTheNameOfTheMissingRank) {
  run_as_threads(3, [&](Communicator& c) {
    if (c.rank() == 2) return;  // never takes part
    std::vector<float> values = values_of(c.rank(), 100);
    try {
      wait(GetParam().allreduce(c, values, 0), Seconds{0.05}, "the sum of step 7");
      ADD_FAILURE() << "ended without rank 2";
    } catch (const TimeoutError& error) {
      EXPECT_NE(std::string(error.what()).find("the sum of step 7"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("rank"), std::string::npos) << error.what();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Collectives,
                         testing::Values(Case{"ring", ring_allreduce, ring_traffic},
                                         Case{"halving", halving_allreduce, halving_traffic},
                                         colors_case("one_color", colors(1)),
                                         colors_case("two_colors", colors(2)),
                                         colors_case("four_colors", colors(4)),
                                         colors_case("large_chunks", colors(4, 100000))),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ColorTrees, HaveDisjointInteriorsWhereThePaperSaysSo) {
  for (int ranks = 2; ranks <= 40; ++ranks) {
    for (const int k : {2, 4}) {
      if (k > ranks || (k == 4 && ranks % 4 > 1)) continue;
      for (int rank = 0; rank < ranks; ++rank) {
        int interior = 0;
        for (int color = 0; color < k; ++color) {
          interior += tree_place(rank, ranks, color, k).children.empty() ? 0 : 1;
        }
        EXPECT_LE(interior, 1) << ranks << " ranks, " << k << " colors, rank " << rank;
      }
    }
  }
}

TEST(ColorTrees, ReachEveryRankOnce) {
  for (int ranks = 1; ranks <= 20; ++ranks) {
    for (int color = 0; color < 4; ++color) {
      std::vector<int> parents(static_cast<size_t>(ranks), 0);
      int roots = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const TreePlace place = tree_place(rank, ranks, color, 4);
        roots += place.parent < 0 ? 1 : 0;
        for (const int child : place.children) {
          ++parents[static_cast<size_t>(child)];
          EXPECT_EQ(tree_place(child, ranks, color, 4).parent, rank);
        }
      }
      EXPECT_EQ(roots, 1);
      EXPECT_EQ(std::count(parents.begin(), parents.end(), 1), ranks - 1);
    }
  }
}

TEST(SharedSum, GivesEverybodyTheSum) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const int64_t count : {0, 1, 17, 333, 50000}) {
      run_as_threads(ranks, [&](Communicator& c) {
        SharedSum sum(c, count);
        for (int round = 0; round < 3; ++round) {
          const std::vector<float> own = values_of(c.rank(), count);
          std::copy(own.begin(), own.end(), sum.own().begin());
          wait(sum.allreduce(), kPatience, "the sum");
          const std::vector<float> got(sum.own().begin(), sum.own().end());
          EXPECT_EQ(got, expected(ranks, count));
          wait(sum.barrier(), kPatience, "the others");
        }
      });
    }
  }
}

}  // namespace
}  // namespace convoy::comm
