#include "convoy/base/threads.hpp"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

namespace convoy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Two cores with two hardware threads each, numbered as Linux usually does.
const std::vector<LogicalCpu> kTwoCores = {{0, 0}, {1, 0}, {2, 1}, {3, 1}};

TEST(CoreMap, TakesEveryPhysicalCoreBeforeASecondThreadOfOne) {
  const CoreMap map = arrange_cores(kTwoCores, std::nullopt);
  EXPECT_THAT(map.cores, ElementsAre(0, 2, 1, 3));
  EXPECT_EQ(map.physical, 2);
  EXPECT_TRUE(map.may_pin);
}

TEST(CoreMap, KeepsAsManyCpusAsTheQuotaRoundedUp) {
  const CoreMap map = arrange_cores(kTwoCores, 1.5);
  EXPECT_THAT(map.cores, ElementsAre(0, 2));
  EXPECT_FALSE(map.may_pin) << "a quota does not say which CPUs are ours";
  EXPECT_EQ(arrange_cores(kTwoCores, 0.2).size(), 1);
  EXPECT_EQ(arrange_cores(kTwoCores, 16).size(), 4);
  EXPECT_TRUE(arrange_cores(kTwoCores, 4).may_pin);
}

TEST(CoreMap, GivesWideLanesNeighbouringPlacesAndWrapsAround) {
  const CoreMap map = arrange_cores(kTwoCores, std::nullopt);
  EXPECT_EQ(map.core_of(0, 1, 2), 2);
  EXPECT_EQ(map.core_of(1, 0, 2), 1);
  EXPECT_EQ(map.core_of(4, 0, 1), 0);
}

TEST(Describe, ShowsWhereEachLaneRuns) {
  const CoreMap map = arrange_cores(kTwoCores, std::nullopt);
  const std::string text = describe(map, 2, 1);
  EXPECT_THAT(text, HasSubstr("4 logical CPUs (2 physical cores)"));
  EXPECT_THAT(text, HasSubstr("0→0 1→2"));
  EXPECT_THAT(text, Not(HasSubstr("warning")));
  EXPECT_THAT(describe(map, 2, 2), HasSubstr("0→0+2 1→1+3"));
}

TEST(Describe, WarnsWhenThreadsOutnumberCpus) {
  const CoreMap map = arrange_cores(kTwoCores, std::nullopt);
  EXPECT_THAT(describe(map, 5, 1), HasSubstr("warning: 5 threads share 4 CPUs; 4 lanes"));
  EXPECT_THAT(describe(map, 3, 1), HasSubstr("note: 3 threads share 2 physical cores (SMT)"));
  EXPECT_THAT(describe(arrange_cores(kTwoCores, 2), 2, 1), HasSubstr("placed by the system"));
}

TEST(UsableCores, AreSomeOfTheMachines) {
  const CoreMap map = usable_cores();
  ASSERT_GE(map.size(), 1);
  EXPECT_GE(map.physical, 1);
  EXPECT_LE(map.physical, map.size());
  EXPECT_LE(map.size(), static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(UsableCores, FollowTheAffinityOfTheThread) {
  std::thread([] {
    const int core = usable_cores().cores.back();
    ASSERT_TRUE(pin_this_thread(core));
    EXPECT_EQ(sched_getcpu(), core);
    EXPECT_THAT(usable_cores().cores, ElementsAre(core));
  }).join();
}

TEST(Pinning, ToACpuThatDoesNotExistIsRefusedQuietly) {
  EXPECT_FALSE(pin_this_thread(-1));
  EXPECT_FALSE(pin_this_thread(100000));
}

TEST(Machine, TellsItsNameAndCachesInOrder) {
  EXPECT_FALSE(cpu_name().empty());
  int level = 0;
  for (const Cache& cache : caches()) {
    EXPECT_GT(cache.level, level);
    EXPECT_GT(cache.size.value, 0);
    EXPECT_GE(cache.shared, 1);
    level = cache.level;
  }
}

}  // namespace
}  // namespace convoy
