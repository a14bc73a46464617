#pragma once
// Limits what is on its way at once, so that what is needed first can overtake what was posted
// before it: sends wait at the gate, and of those that wait the most urgent goes first.

#include <cstdint>
#include <map>

#include "convoy/base/units.hpp"
#include "convoy/comm/task.hpp"

namespace convoy::comm {

/// Used by one communication thread.
class Gate {
 public:
  explicit Gate(Bytes most) : most_(most) {}

  /// Passes when there is room for `bytes` (or nothing under way at all) and nobody more urgent,
  /// that is with a lower `priority`, waits. leave() makes the room again.
  Task enter(Bytes bytes, int priority);
  void leave(Bytes bytes) { inside_ = inside_ - bytes; }

 private:
  Bytes most_;
  Bytes inside_;
  std::map<std::pair<int, int64_t>, Bytes> waiting_;  // by priority and arrival
  int64_t arrivals_ = 0;
};

}  // namespace convoy::comm
