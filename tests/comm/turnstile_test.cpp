// So many at once, in the order in which they came.

#include "convoy/comm/turnstile.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace convoy::comm {
namespace {

/// Passes, says so, and leaves when `may_leave` holds.
Task visitor(Turnstile& turns, int number, std::vector<int>& inside, const bool& may_leave) {
  co_await turns.pass();
  inside.push_back(number);
  co_await Until([&may_leave] { return may_leave; }, "being told to leave");
  turns.leave();
}

TEST(Turnstile, LetsAFewPassInTheOrderOfTheirComing) {
  Turnstile turns(2);
  std::vector<int> inside;
  bool first = false;
  bool others = false;
  std::vector<Task> visitors;
  for (int i = 0; i < 4; ++i) {
    visitors.push_back(visitor(turns, i, inside, i == 0 ? first : others));
    EXPECT_FALSE(visitors.back().advance());
  }
  EXPECT_EQ(inside, (std::vector<int>{0, 1}));
  first = true;
  // Those who came later are looked at first, but it is not their turn.
  for (size_t i = visitors.size(); i-- > 0;) EXPECT_EQ(visitors[i].advance(), i == 0) << i;
  EXPECT_FALSE(visitors[3].advance());
  EXPECT_FALSE(visitors[2].advance());
  EXPECT_EQ(inside, (std::vector<int>{0, 1, 2}));
  others = true;
  EXPECT_TRUE(visitors[2].advance());
  EXPECT_TRUE(visitors[1].advance());
  EXPECT_TRUE(visitors[3].advance());
  EXPECT_EQ(inside, (std::vector<int>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace convoy::comm
