#pragma once
// Limits what is on its way at once, so that what is needed first can overtake what was posted
// before it. Messages go in slices; slices wait at the gate, and of those that wait the most urgent
// goes first. A slice is on its way until the other side has it: what merely waits in the queue of
// a slow link would be just as much in the way of something urgent.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/comm/algorithm.hpp"
#include "convoy/comm/task.hpp"

namespace convoy::comm {

/// Used by one communication thread, and as large as the other ranks' gates.
class Gate {
 public:
  /// What may be on its way at once, and the longest slice; zero: an eighth of that.
  explicit Gate(Bytes most, Bytes slice = {});
  /// As much as a link takes in a few milliseconds, which is how long something urgent may have to
  /// wait. Not less than some slices, which cost a message each.
  static Bytes window(const LinkSpeed& link);

  using Parts = std::vector<std::span<const std::byte>>;
  /// Sends the parts, one after the other; lower priorities first. Ends when all have arrived.
  Task send(Communicator& c, int to, int tag, Parts parts, int priority);
  /// Takes a part that another rank sends through its gate.
  void receive(Communicator& c, int from, int tag, std::span<std::byte> part,
               Requests& requests) const;

  /// The messages of a part of so many bytes.
  int64_t slices(Bytes part) const { return (part.value + slice_.value - 1) / slice_.value; }

 private:
  struct Flight {
    std::unique_ptr<Request> request;
    Bytes bytes;
    std::shared_ptr<int64_t> open;  // slices of its task that are on their way
  };

  /// Passes when there is room (or nothing under way at all) and nobody more urgent waits.
  Task enter(Bytes bytes, int priority);
  /// Notices what has arrived.
  void look();

  Bytes most_;
  Bytes slice_;
  Bytes inside_;
  Seconds looked_;
  std::map<std::pair<int, int64_t>, Bytes> waiting_;  // by priority and arrival
  int64_t arrivals_ = 0;
  std::map<int, std::deque<Flight>> flights_;  // by receiver, who takes them in this order
};

}  // namespace convoy::comm
