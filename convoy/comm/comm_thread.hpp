#pragma once
// The communication thread of a worker: drives any number of tasks (task.hpp) at once, fed from
// other threads by a lock-free queue. It sleeps while there is nothing to do, and between looks at
// what is under way, because the cores belong to the lanes.

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <string>
#include <thread>

#include "convoy/base/units.hpp"
#include "convoy/comm/task.hpp"

namespace convoy::comm {

class CommThread {
 public:
  /// A task that goes on for longer than `deadline` ends everything with a TimeoutError. Between
  /// looks at what is under way it sleeps for `pause`: every look takes some 25 µs from a lane on
  /// the same core, so that 0.3 ms cost it 5 to 10 %. With a core to spare it may be shorter.
  explicit CommThread(Seconds deadline, Seconds pause = Seconds{300e-6});
  /// Gives up what is under way, as stop() does.
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  /// From any thread: `make` is called on the communication thread, in the order of the posts, and
  /// what it returns is driven to its end. `what` names it in messages.
  void post(std::string what, std::function<Task()> make);

  /// From any thread, tasks included: another pause from now on.
  void set_pause(Seconds pause) { pause_.store(pause.value, std::memory_order_relaxed); }

  /// Gives up what is under way, and takes no more; returns when nothing touches anybody's memory
  /// any more. Not for tasks.
  void stop();

  /// Throws what a task threw, if one did; the thread is of no use any more then.
  void rethrow() const;
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Time during which something was under way.
  Seconds busy() const { return {static_cast<double>(busy_ns_.load()) * 1e-9}; }

 private:
  struct Post {
    std::string what;
    std::function<Task()> make;
    Post* next = nullptr;
  };
  struct Running {
    std::string what;
    Task task;
    Seconds since;
  };

  void run();
  void take_posts();
  bool advance_all();

  Seconds deadline_;
  std::atomic<double> pause_;        // s
  std::atomic<Post*> top_{nullptr};  // last one first
  std::atomic<uint64_t> wake_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::atomic<int64_t> busy_ns_{0};
  std::exception_ptr error_;
  std::list<Running> running_;
  std::thread thread_;
};

}  // namespace convoy::comm
