#pragma once
// Lets a few tasks of a communication thread pass at once, in the order in which they came. Long
// messages that share a connection get through together at its end; those that go in turn arrive
// one after the other, and whoever takes them can go on with the first.

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "convoy/base/units.hpp"
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

/// Lets tasks pass that are of one of the first few clients which are there: whoever came first
/// goes on until nothing of it is left, then the next one. Clients that are served all at once get
/// done at the same time, come back at the same time, and leave the server idle in between; those
/// that are served in turn come apart. Nobody waits for a client that has come to a halt.
class ClientTurns {
 public:
  using Clock = std::function<Seconds()>;

  /// `most`: clients at once.
  ClientTurns(int clients, int most, Clock clock = now)
      : most_(most), clock_(std::move(clock)), clients_(static_cast<size_t>(clients)) {}
  /// Ends when it is the client's turn; the caller then calls leave() when it was served.
  Task pass(int client);
  void leave(int client);

 private:
  struct Client {
    int pending = 0;     // tasks that have come and not left
    bool begun = false;  // to be served, since it came
    Seconds moved;       // when it last got on
  };
  bool admitted(int client) const;
  bool halted(int client) const;

  int most_;
  Clock clock_;
  std::vector<Client> clients_;
  std::vector<int> order_;  // those with tasks, as they came
  Seconds typical_;         // between two tasks of a client that get on
};

}  // namespace convoy::comm
