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

/// A task of a client, which is served when `may_leave` holds.
Task served(ClientTurns& turns, int client, std::vector<int>& inside, const bool& may_leave) {
  co_await turns.pass(client);
  inside.push_back(client);
  co_await Until([&may_leave] { return may_leave; }, "being told to leave");
  turns.leave(client);
}

TEST(ClientTurns, WhoCameFirstIsServedToItsEnd) {
  ClientTurns turns(3, 1, [] { return Seconds{1}; });
  std::vector<int> inside;
  bool first = false;
  bool second = false;
  bool rest = false;
  std::vector<Task> tasks;
  const auto come = [&](int client, const bool& may_leave) {
    tasks.push_back(served(turns, client, inside, may_leave));
    tasks.back().advance();
  };
  come(2, first);
  come(0, rest);
  come(2, second);  // more of the one that is served
  come(1, rest);
  EXPECT_EQ(inside, (std::vector<int>{2, 2}));
  first = true;
  for (Task& task : tasks) task.advance();
  EXPECT_EQ(inside, (std::vector<int>{2, 2})) << "its second task is not done";
  second = true;
  for (Task& task : tasks) task.advance();
  for (Task& task : tasks) task.advance();
  EXPECT_EQ(inside, (std::vector<int>{2, 2, 0}));
  rest = true;
  for (int i = 0; i < 3; ++i) {
    for (Task& task : tasks) task.advance();
  }
  EXPECT_EQ(inside, (std::vector<int>{2, 2, 0, 1}));
}

TEST(ClientTurns, AsManyAsMayAreServedAtOnce) {
  ClientTurns turns(3, 2, [] { return Seconds{1}; });
  std::vector<int> inside;
  const bool never = false;
  std::vector<Task> tasks;
  for (const int client : {1, 2, 0}) {
    tasks.push_back(served(turns, client, inside, never));
    tasks.back().advance();
  }
  EXPECT_EQ(inside, (std::vector<int>{1, 2}));
}

TEST(ClientTurns, NobodyWaitsForAClientThatHasComeToAHalt) {
  Seconds clock{1};
  ClientTurns turns(3, 1, [&clock] { return clock; });
  std::vector<int> inside;
  const bool never = false;
  std::vector<Task> tasks;
  for (const int client : {0, 1, 2}) {
    tasks.push_back(served(turns, client, inside, never));
    tasks.back().advance();
  }
  EXPECT_EQ(inside, (std::vector<int>{0}));
  clock += Seconds{10};
  for (size_t i = tasks.size(); i-- > 0;) tasks[i].advance();
  EXPECT_EQ(inside, (std::vector<int>{0, 1})) << "the next one, and not all";
}

}  // namespace
}  // namespace convoy::comm
