#pragma once
// Lets a few tasks of a communication thread pass at once, in the order in which they came. Long
// messages that share a connection get through together at its end; those that go in turn arrive
// one after the other, and whoever takes them can go on with the first.

#include <cstdint>

#include "convoy/comm/task.hpp"

namespace convoy::comm {

class Turnstile {
 public:
  explicit Turnstile(int most) : most_(most) {}
  /// Ends when it is the caller's turn, who then calls leave().
  Task pass() {
    const int64_t turn = came_++;
    co_await Until([this, turn] { return turn < left_ + most_; }, "waiting for its turn");
  }
  void leave() { ++left_; }

 private:
  int64_t most_;
  int64_t came_ = 0;
  int64_t left_ = 0;
};

}  // namespace convoy::comm
