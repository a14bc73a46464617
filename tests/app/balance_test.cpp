// Shares that follow speeds, through the command line, as real processes: the bits of one worker,
// who gets how much, and what is said of it. Workers are slowed down by a replay, so that what
// happens does not depend on the machine.

#include <gmock/gmock.h>

#include "tests/app/workers.hpp"

namespace convoy::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class BalancedWorkers : public Workers {
 protected:
  Outcome replay(int workers, const std::string& run, const std::string& trace,
                 const std::vector<std::string>& settings = {}) const {
    std::vector<std::string> all = arguments(workers, run, settings);
    all.insert(all.end(), {"--replay", trace});
    return convoy(all, {kNoLeaks});
  }

  /// Those after the last step.
  std::vector<int64_t> shares(const std::string& run) const {
    return events(run, "step").back().at("balance").at("shares").get<std::vector<int64_t>>();
  }
};

TEST_F(BalancedWorkers, GiveTheBitsOfOneWhileSharesMove) {
  ASSERT_EQ(train_on(1, "one").code, 0);
  for (const std::string trace : {"constant:1,0.1", "constant:0.1,1,0.3", "steps:2-4:0.1,1"}) {
    const int workers = trace == "constant:1,0.1" ? 2 : 3;
    const Outcome outcome = replay(workers, trace, trace);
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_TRUE(tensors(trace) == tensors("one")) << trace << " gives other weights";
  }
}

TEST_F(BalancedWorkers, GetLessTheSlowerTheyAre) {
  for (const std::string solver : {"proportional", "profile"}) {
    const Outcome outcome =
        replay(2, solver, "constant:1,0.02", {"train.epochs=6", "sync.solver=" + solver});
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("balanced: shares follow speeds (" + solver),
                                   HasSubstr("emulated"), HasSubstr("worker 1")));
    const std::vector<int64_t> last = shares(solver);
    ASSERT_EQ(last.size(), 2U);
    EXPECT_EQ(last[0] + last[1], 8);
    EXPECT_LE(last[1], 2);
  }
}

TEST_F(BalancedWorkers, HaveEqualSharesForEverInModeBsp) {
  const Outcome outcome = replay(2, "run", "constant:1,0.1", {"sync.mode=bsp"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("bsp: equal shares"), Not(HasSubstr("slowest"))));
  EXPECT_FALSE(events("run", "step").back().contains("balance"));
}

TEST_F(BalancedWorkers, KeepTheSharesThatTheJobPins) {
  const Outcome outcome = replay(2, "run", "constant:1,0.1", {"sync.shares=[3, 5]"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, HasSubstr("shares of 3, 5 grains, as the job has them"));
}

TEST_F(BalancedWorkers, TellOfSharesSpeedsAndWaits) {
  ASSERT_EQ(replay(2, "run", "constant:1,0.1").code, 0);
  const nlohmann::json last = events("run", "step").back().at("balance");
  for (const char* list :
       {"shares", "grains_per_second", "compute_seconds", "predicted_seconds", "waited_seconds"}) {
    EXPECT_EQ(last.at(list).size(), 2U) << list;
  }
  EXPECT_THAT(events("run", "start").back().at("emulation").get<std::string>(),
              HasSubstr("emulated"));
}

TEST_F(BalancedWorkers, GoOnAfterAStop) {
  ASSERT_EQ(train_on(1, "one").code, 0);
  ASSERT_EQ(replay(2, "run", "constant:1,0.1", {"train.max_steps=10"}).code, 0);
  const Outcome rest = resume_on(3, "run", "train.max_steps=off");
  ASSERT_EQ(rest.code, 0) << rest.all();
  EXPECT_TRUE(tensors("run") == tensors("one"));
}

TEST_F(BalancedWorkers, RefuseATraceThatIsNone) {
  for (const std::string trace : {"constant:1,0", "steps:0-5", "no-such-file"}) {
    const Outcome outcome = replay(2, "run", trace);
    EXPECT_EQ(outcome.code, 2) << outcome.all();
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
  }
}

TEST_F(BalancedWorkers, RefuseAPredictorThatThereIsNot) {
  const Outcome outcome = train_on(2, "run", {"sync.predictor=narks"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("narx"));
}

}  // namespace
}  // namespace convoy::app
