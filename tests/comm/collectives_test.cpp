// Every collective in every form against a plain sum, with ranks as threads, and what it sends
// against its cost.

#include "convoy/comm/collectives.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/comm/algorithm.hpp"
#include "convoy/comm/choose.hpp"
#include "convoy/comm/thread_world.hpp"

#include "tests/comm/sums.hpp"

namespace convoy::comm {
namespace {

constexpr Seconds kPatience{20};
constexpr int64_t kLarge = 300001;

struct Case {
  const char* name;
  Way way;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class Collectives : public testing::TestWithParam<Case> {
 protected:
  /// check(ranks, count) for 1 to 9 ranks and lengths of every kind.
  template <class Check>
  static void for_every_size(const Check& check) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{17}, int64_t{333}, int64_t{5000},
                                  ranks % 4 == 1 ? kLarge : 1001}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << count << " values");
        check(ranks, count);
      }
    }
  }
  const Way& way() const { return GetParam().way; }
};

/// Cuts at some uneven places, as the borders of layers are.
std::vector<int64_t> uneven_edges(int64_t count) {
  std::vector<int64_t> edges;
  for (int64_t at = 3; at < count; at += at / 2 + 1) edges.push_back(at);
  return edges;
}

TEST_P(Collectives, GiveEverybodyTheSum) {
  for_every_size([&](int ranks, int64_t count) {
    const std::vector<float> sum = sum_of(ranks, count);
    run_as_threads(ranks, [&](Communicator& c) {
      std::vector<float> values = values_of(c.rank(), count);
      wait(allreduce(c, values, 3, way()), kPatience, "the sum");
      EXPECT_EQ(values, sum) << "rank " << c.rank();
    });
  });
}

TEST_P(Collectives, GiveEveryOwnerItsStripAndThenEverybodyAllStrips) {
  for_every_size([&](int ranks, int64_t count) {
    const std::vector<float> sum = sum_of(ranks, count);
    for (const std::vector<int64_t>& edges : {std::vector<int64_t>{}, uneven_edges(count)}) {
      const Strips strips = strips_for(way(), count, ranks, edges);
      run_as_threads(ranks, [&](Communicator& c) {
        std::vector<float> values = values_of(c.rank(), count);
        wait(part_reduce(c, values, strips, 3, way()), kPatience, "the sum in parts");
        const Strip own = strips[static_cast<size_t>(c.rank())];
        EXPECT_TRUE(std::equal(values.begin() + own.begin, values.begin() + own.end,
                               sum.begin() + own.begin))
            << "rank " << c.rank();
        std::fill(values.begin(), values.begin() + own.begin, -1.0F);
        std::fill(values.begin() + own.end, values.end(), -1.0F);
        wait(part_broadcast(c, values, strips, 3, way()), kPatience, "the parts");
        EXPECT_EQ(values, sum) << "rank " << c.rank();
      });
    }
  });
}

TEST_P(Collectives, SendWhatTheirCostSays) {
  for_every_size([&](int ranks, int64_t count) {
    const Strips strips = strips_for(way(), count, ranks);
    run_as_threads(ranks, [&](Communicator& c) {
      std::vector<float> values = values_of(c.rank(), count);
      const auto expect_cost = [&](Form form, Task task, const char* what) {
        const Traffic before = c.sent();
        wait(task, kPatience, what);
        const Traffic sent = c.sent() - before;
        const Traffic said = traffic(way(), form, c.rank(), strips);
        EXPECT_EQ(sent.messages, said.messages) << what << ", rank " << c.rank();
        EXPECT_EQ(sent.bytes.value, said.bytes.value) << what << ", rank " << c.rank();
      };
      expect_cost(Form::allreduce, allreduce(c, values, 0, way()), "allreduce");
      expect_cost(Form::part_reduce, part_reduce(c, values, strips, 1, way()), "part-reduce");
      expect_cost(Form::part_broadcast, part_broadcast(c, values, strips, 2, way()),
                  "part-broadcast");
    });
  });
}

TEST_P(Collectives, CanBeUnderWayTogether) {
  run_as_threads(5, [&](Communicator& c) {
    std::vector<std::vector<float>> values;
    Tasks tasks;
    for (int i = 0; i < 4; ++i) values.push_back(values_of(c.rank() + i, 777));
    for (int i = 0; i < 4; ++i) {
      tasks.add(allreduce(c, values[static_cast<size_t>(i)], i, way()));
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
      wait(allreduce(c, values, 0, way()), Seconds{0.05}, "the sum of step 7");
      ADD_FAILURE() << "ended without rank 2";
    } catch (const TimeoutError& error) {
      EXPECT_NE(std::string(error.what()).find("the sum of step 7"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("rank"), std::string::npos) << error.what();
    }
  });
}

Case colors_case(const char* name, int count, int64_t chunk = 64) {
  return {name, {Algorithm::colors, {.colors = count, .chunk = chunk}}};
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, Collectives,
    testing::Values(Case{"direct", Algorithm::direct}, Case{"ring", Algorithm::ring},
                    Case{"halving", Algorithm::halving}, colors_case("one_color", 1, 1000),
                    colors_case("two_colors", 2, 1000), colors_case("four_colors", 4, 1000),
                    colors_case("as_many_colors_as_ranks", 16, 1000),
                    colors_case("large_chunks", 4, 1000000)),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Strips, CoverAllValuesAtTheEdges) {
  for (const int64_t count : {0, 1, 15, 16, 17, 1000, 12345}) {
    const std::vector<int64_t> edges = uneven_edges(count);
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const Algorithm algorithm : kAlgorithms) {
        const Strips lines = strips_for(algorithm, count, ranks);
        EXPECT_EQ(count_of(lines), count);
        for (const Strip& s : lines) EXPECT_TRUE(s.begin % 16 == 0 || s.begin == count);
        const Strips uneven = strips_for(algorithm, count, ranks, edges);
        EXPECT_EQ(count_of(uneven), count);
        for (const Strip& s : uneven) {
          EXPECT_TRUE(s.begin == 0 || s.begin == count || std::ranges::count(edges, s.begin) == 1)
              << s.begin;
        }
      }
    }
  }
}

TEST(Strips, AreCutWhereItIsMostEven) {
  const std::vector<int64_t> edges = {10, 40, 55, 90};
  const Strips expected = {{0, 55}, {55, 100}};
  EXPECT_EQ(even_strips(100, 2, edges), expected);
}

TEST(Algorithms, AreNamed) {
  for (const Algorithm algorithm : kAlgorithms) {
    EXPECT_EQ(parse_algorithm(to_string(algorithm)), algorithm);
  }
  EXPECT_THROW(parse_algorithm("rng"), InputError);
}

TEST(Algorithms, OfTheMpiLibraryNeedMpi) {
  EXPECT_THROW(run_as_threads(1,
                              [](Communicator& c) {
                                std::vector<float> values(1);
                                wait(allreduce(c, values, 0, Algorithm::library), kPatience, "it");
                              }),
               Error);
}

LinkSpeed link_with(double latency, double per_message) {
  LinkSpeed link;
  link.latency.value = latency;
  link.per_message.value = per_message;
  link.per_byte.value = 1e-9;
  link.long_per_byte.value = 2e-9;
  link.longest = {1 << 16};
  return link;
}

TEST(Choice, TakesFewStepsForSmallMessagesAndFewMessagesWhereTheyCost) {
  const Way small = fastest(Form::allreduce, 8, 1000, link_with(1e-3, 1e-7));
  EXPECT_EQ(small.algorithm, Algorithm::direct) << to_string(small.algorithm);
  const Way dear_messages = fastest(Form::allreduce, 8, 1000, link_with(1e-6, 1e-3));
  EXPECT_EQ(dear_messages.algorithm, Algorithm::halving) << to_string(dear_messages.algorithm);
}

TEST(Choice, KeepsChunksShortWhereLongMessagesAreSlow) {
  const Way large = fastest(Form::allreduce, 8, 10'000'000, link_with(1e-4, 1e-6));
  EXPECT_EQ(large.algorithm, Algorithm::colors) << to_string(large.algorithm);
  EXPECT_LE(4 * large.colors.chunk, 1 << 16);
}

TEST(Choice, IsTheSameOnAllRanks) {
  run_as_threads(4, [](Communicator& c) {
    const LinkSpeed link = measure_links(c, kPatience);
    EXPECT_GT(link.latency.value, 0);
    std::vector<float> values = {static_cast<float>(link.latency.value)};
    const float mine = values[0];
    wait(ring_allreduce(c, values, 0), kPatience, "the sum");
    EXPECT_FLOAT_EQ(values[0], 4 * mine);
  });
}

TEST(Choice, ByTryingIsTheSameOnAllRanks) {
  run_as_threads(5, [](Communicator& c) {
    const LinkSpeed link = measure_links(c, kPatience);
    for (const int64_t count : {0, 100, 50000}) {
      const Way way = fastest_tried(c, count, link, kPatience);
      EXPECT_NE(way.algorithm, Algorithm::library);
      EXPECT_EQ(fastest_trees_tried(c, count, link, kPatience).algorithm, Algorithm::colors);
      std::vector<float> values = values_of(c.rank(), count);
      wait(allreduce(c, values, 0, way), kPatience, "the sum");  // ends only if all do the same
      EXPECT_EQ(values, sum_of(5, count));
    }
  });
}

TEST(ColorTrees, HaveDisjointInteriorsWhereThePaperSaysSo) {
  for (int ranks = 2; ranks <= 40; ++ranks) {
    for (const int k : {2, 4, ranks}) {
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

}  // namespace
}  // namespace convoy::comm
