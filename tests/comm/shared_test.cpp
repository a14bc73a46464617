#include "convoy/comm/shared.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "convoy/comm/thread_world.hpp"

#include "tests/comm/sums.hpp"

namespace convoy::comm {
namespace {

constexpr Seconds kPatience{20};

TEST(SharedSum, GivesEverybodyTheSum) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const int64_t count : {0, 1, 17, 333, 50000}) {
      const std::vector<float> expected = sum_of(ranks, count);
      run_as_threads(ranks, [&](Communicator& c) {
        SharedSum sum(c, count);
        for (int round = 0; round < 3; ++round) {
          const std::vector<float> own = values_of(c.rank(), count);
          std::copy(own.begin(), own.end(), sum.own().begin());
          wait(sum.allreduce(), kPatience, "the sum");
          const std::vector<float> got(sum.own().begin(), sum.own().end());
          EXPECT_EQ(got, expected);
          wait(sum.barrier(), kPatience, "the others");
        }
      });
    }
  }
}

}  // namespace
}  // namespace convoy::comm
