#pragma once
// Time that is only counted: what is to happen is done in the order of when, and of equal times in
// the order it was asked for.

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy::plan {

class EventQueue {
 public:
  Seconds now() const { return now_; }

  void at(Seconds when, std::function<void()> what) {
    events_.push({std::max(when, now_), count_++, std::move(what)});
  }
  void after(Seconds delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  bool empty() const { return events_.empty(); }
  /// Does what is next.
  void step() {
    // The queue gives only constant access to what is about to go.
    Event event = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_ = event.when;
    event.what();
  }

 private:
  struct Event {
    Seconds when;
    uint64_t number;
    std::function<void()> what;
    bool operator<(const Event& other) const {  // the largest is next
      return std::pair(other.when, other.number) < std::pair(when, number);
    }
  };

  Seconds now_;
  uint64_t count_ = 0;
  std::priority_queue<Event> events_;
};

/// Something that serves one after the other: a link, a server.
class ServedInTurn {
 public:
  /// When what is asked for now and takes `time` will be done.
  Seconds reserve(Seconds now, Seconds time) {
    free_ = std::max(now, free_) + time;
    busy_ += time;
    return free_;
  }
  Seconds busy() const { return busy_; }

 private:
  Seconds free_;
  Seconds busy_;
};

}  // namespace convoy::plan
