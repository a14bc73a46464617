// Who is slow when, in simulations.

#include "convoy/plan/stragglers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"

namespace convoy::plan {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    read_stragglers(text, 4, 1);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Stragglers, VaryByTheSpreadAroundOne) {
  const Stragglers s = read_stragglers("0.2", 4, 7);
  double sum = 0;
  double square = 0;
  constexpr int kSteps = 4000;
  for (int step = 0; step < kSteps; ++step) {
    const double f = s.slowdown(1, step);
    sum += f;
    square += (f - 1) * (f - 1);
  }
  EXPECT_NEAR(sum / kSteps, 1, 0.02);
  EXPECT_NEAR(std::sqrt(square / kSteps), 0.2, 0.02);
  EXPECT_EQ(s.slowdown(2, 5), read_stragglers("0.2", 4, 7).slowdown(2, 5));
  EXPECT_FALSE(s.load) << "nobody can foresee what is drawn anew";
}

TEST(Stragglers, AreSlowByChance) {
  const Stragglers s = read_stragglers("0.05:10", 4, 1);
  int slow = 0;
  for (int step = 0; step < 4000; ++step) {
    const double f = s.slowdown(0, step);
    EXPECT_TRUE(f == 1 || f == 10) << f;
    slow += f > 1 ? 1 : 0;
  }
  EXPECT_NEAR(slow, 200, 50);
}

TEST(Stragglers, FollowATraceWithTheLoadThatIsVisible) {
  const Stragglers s = read_stragglers("constant:1,0.5", 2, 1);
  EXPECT_DOUBLE_EQ(s.slowdown(0, 3), 1);
  EXPECT_DOUBLE_EQ(s.slowdown(1, 3), 2);
  const Stragglers steps = read_stragglers("steps:20-60", 2, 1);
  ASSERT_TRUE(steps.load);
  EXPECT_NEAR(steps.load(1, 10).cpu, 1 / steps.slowdown(1, 10), 1e-12);
  EXPECT_THAT(steps.description, HasSubstr("emulated"));
}

TEST(Stragglers, RefuseWhatIsNeither) {
  EXPECT_THAT(refusal("-1"), HasSubstr("0.05:10"));
  EXPECT_THAT(refusal("2:3"), HasSubstr("0.05:10"));
  EXPECT_THAT(refusal("0.1:"), HasSubstr("0.05:10"));
  EXPECT_THAT(refusal("/no/such/file"), HasSubstr("no such file"));
}

}  // namespace
}  // namespace convoy::plan
