#pragma once
// Time that is only counted: what is to happen is done in the order of when, and of equal times in
// the order it was asked for.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy::plan {

class EventQueue {
 public:
  Seconds now() const { return now_; }

  void at(Seconds when, std::function<void()> what) {
    events_.push_back({std::max(when, now_), count_++, std::move(what)});
    std::push_heap(events_.begin(), events_.end(), later);
  }
  void after(Seconds delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  bool empty() const { return events_.empty(); }
  /// Does what is next.
  void step() {
    std::pop_heap(events_.begin(), events_.end(), later);
    const Event event = std::move(events_.back());
    events_.pop_back();
    now_ = event.when;
    event.what();
  }

 private:
  struct Event {
    Seconds when;
    uint64_t number;
    std::function<void()> what;
  };
  /// The first of a heap is the one that is later than none.
  static bool later(const Event& a, const Event& b) {
    return std::pair(a.when, a.number) > std::pair(b.when, b.number);
  }

  Seconds now_;
  uint64_t count_ = 0;
  std::vector<Event> events_;  // a heap
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
