#include "convoy/comm/two_level.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "convoy/comm/thread_world.hpp"

#include "tests/comm/sums.hpp"

namespace convoy::comm {
namespace {

constexpr Seconds kPatience{20};

struct Cluster {
  const char* name;
  std::vector<std::string> hosts;
  int nodes;
  int senders;
};

const Cluster kClusters[] = {{"one_rank", {"a"}, 1, 1},
                             {"one_node", {"a", "a", "a"}, 1, 3},
                             {"a_rank_per_node", {"a", "b", "c", "d", "e"}, 5, 1},
                             {"equal_nodes", {"a", "a", "b", "b", "c", "c"}, 3, 2},
                             {"ranks_dealt_out", {"a", "b", "a", "b", "a", "b"}, 2, 3},
                             {"unequal_nodes", {"a", "b", "b", "b", "c", "c", "a", "c", "c"}, 3, 2},
                             {"a_lonely_rank", {"a", "a", "a", "b"}, 2, 1}};

void PrintTo(const Cluster& cluster, std::ostream* out) {
  *out << cluster.name;
}

class TwoLevels : public testing::TestWithParam<Cluster> {};

TEST_P(TwoLevels, GiveEverybodyTheSum) {
  const auto ranks = static_cast<int>(GetParam().hosts.size());
  for (const Algorithm algorithm :
       {Algorithm::direct, Algorithm::ring, Algorithm::halving, Algorithm::colors}) {
    for (const int64_t count : {0, 1, 333, 300001}) {
      SCOPED_TRACE(testing::Message() << to_string(algorithm) << ", " << count << " values");
      const std::vector<float> expected = sum_of(ranks, count);
      run_as_threads(
          ranks,
          [&](Communicator& c) {
            TwoLevelSum sum(c, count);
            EXPECT_EQ(sum.nodes(), GetParam().nodes);
            EXPECT_EQ(sum.senders(), GetParam().senders);
            for (int round = 0; round < 2; ++round) {
              std::ranges::copy(values_of(c.rank(), count), sum.own().begin());
              wait(sum.allreduce(1, algorithm), kPatience, "the sum");
              EXPECT_TRUE(std::ranges::equal(sum.own(), expected)) << "rank " << c.rank();
            }
          },
          GetParam().hosts);
    }
  }
}

TEST_P(TwoLevels, SendEachValueOncePerNode) {
  constexpr int64_t kCount = 4800;
  const auto ranks = static_cast<int>(GetParam().hosts.size());
  run_as_threads(
      ranks,
      [&](Communicator& c) {
        TwoLevelSum sum(c, kCount);
        wait(sum.allreduce(0, Algorithm::ring), kPatience, "the sum");
        if (sum.between() == nullptr) return;
        const Strips strips = ring_strips(kCount / sum.senders(), sum.nodes());
        EXPECT_EQ(sum.between()->sent(),
                  ring_traffic(Form::allreduce, sum.between()->rank(), strips));
      },
      GetParam().hosts);
}

INSTANTIATE_TEST_SUITE_P(Clusters, TwoLevels, testing::ValuesIn(kClusters),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace convoy::comm
