#include <string>

#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/comm/task.hpp"
#include "convoy/comm/thread_world.hpp"

#include "tests/comm/contract.hpp"

namespace convoy::comm {
namespace {

TEST(ThreadCommunicator, KeepsTheContract) {
  for (const auto& [name, check] : contract()) {
    for (const int ranks : {1, 2, 3, 8}) {
      SCOPED_TRACE(testing::Message() << name << " with " << ranks << " ranks");
      EXPECT_NO_THROW(run_as_threads(ranks, check));
    }
  }
}

TEST(ThreadCommunicator, RefusesAMessageOfAnotherLength) {
  EXPECT_THROW(run_as_threads(
                   2,
                   [](Communicator& c) {
                     std::vector<float> values(c.rank() == 0 ? 3 : 4);
                     Requests one;
                     one.add(c.rank() == 0 ? c.send(1, 0, bytes_of(std::span<const float>(values)))
                                           : c.receive(0, 0, bytes_of(std::span<float>(values))));
                     wait([](Requests r) -> Task { co_await std::move(r); }(std::move(one)),
                          Seconds{5}, "a message");
                   }),
               Error);
}

TEST(ThreadCommunicator, TellsTheOthersWhoFailed) {
  std::string text;
  try {
    run_as_threads(3, [&](Communicator& c) {
      if (c.rank() == 1) throw Error("the disk is full");
      std::vector<float> never(1);
      try {
        wait([](std::unique_ptr<Request> r) -> Task { co_await std::move(r); }(
                                                c.receive(1, 0, bytes_of(std::span<float>(never)))),
             Seconds{20}, "a message");
      } catch (const Error& error) {
        if (c.rank() == 0) text = error.what();
        throw;
      }
    });
    FAIL() << "nobody failed";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the disk is full");
  }
  EXPECT_NE(text.find("rank 1 failed: the disk is full"), std::string::npos) << text;
}

TEST(ThreadCommunicator, WaitsNoLongerThanItsPatienceForARankThatDoesNotCome) {
  run_as_threads(2, [](Communicator& c) {
    c.set_patience(Seconds{0.05});
    if (c.rank() == 1) return;
    try {
      c.split(0);
      ADD_FAILURE() << "a communicator of one rank";
    } catch (const TimeoutError& error) {
      EXPECT_STREQ(error.what(), "rank 1 did not come within 50 ms");
    }
  });
}

}  // namespace
}  // namespace convoy::comm
