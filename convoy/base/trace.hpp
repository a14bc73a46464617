#pragma once
// What every thread of a worker did when, for looking at (chrome://tracing, ui.perfetto.dev).

#include <atomic>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy {

class Trace {
 public:
  enum class Kind { compute, exchange, wait };
  /// For `lanes` lanes and the communication thread, which is number `lanes`.
  explicit Trace(int lanes) : events_(static_cast<size_t>(lanes) + 1) {}

  /// Nothing is kept before start() and after stop(); times count from start().
  void start();
  void stop() { on_ = false; }
  bool on() const { return on_.load(std::memory_order_relaxed); }

  int lanes() const { return static_cast<int>(events_.size()) - 1; }

  /// One thread at a time for each `thread`.
  void add(int thread, Kind kind, std::string name, Seconds begin, Seconds end);
  /// A number of the worker that changes, shown as a curve; for one thread.
  void count(std::string name, double value, Seconds at);

  /// The events of worker `worker`, called `name`, in Chrome's format: objects, with commas
  /// between. What is exchanged overlaps, so each bucket has a row of its own.
  std::string json(int worker, const std::string& name) const;

 private:
  struct Event {
    Kind kind;
    std::string name;
    Seconds begin;
    Seconds end;
  };

  std::atomic<bool> on_{false};
  Seconds origin_;
  std::vector<std::vector<Event>> events_;  // by thread
  struct Count {
    std::string name;
    double value;
    Seconds at;
  };
  std::vector<Count> counts_;
};

/// A whole trace of several workers' json().
std::string trace_file(const std::vector<std::string>& workers);

}  // namespace convoy
