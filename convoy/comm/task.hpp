#pragma once
// A collective under way: a coroutine that reads like blocking code, but gives way whenever a
// message is still missing. So one communication thread can have many of them under way at once.
//
//   Task exchange(Communicator& c, int peer, std::span<const float> mine, std::span<float> theirs)
//   {
//     co_await c.receive(peer, kTag, bytes_of(theirs));    // both are started before the first
//     wait …
//
// wait(task, deadline, what) drives one to its end, and ends itself when the deadline passes.

#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/comm/communicator.hpp"

namespace convoy::comm {

/// Requests that were started together.
class Requests {
 public:
  void add(std::unique_ptr<Request> request) { all_.push_back(std::move(request)); }
  bool done();
  std::string describe() const;

 private:
  std::vector<std::unique_ptr<Request>> all_;
};

/// Something else that will be true one day, by another task or in shared memory.
struct Until {
  // Not an aggregate: g++ 12 destroys braced temporaries of a co_await twice.
  Until(std::function<bool()> condition, std::string text)
      : holds(std::move(condition)), what(std::move(text)) {}
  std::function<bool()> holds;
  std::string what;
};

class [[nodiscard]] Task {
 public:
  struct promise_type;

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task();

  /// Goes on as far as it gets without blocking; true once the task has ended. Throws what the task
  /// throws.
  bool advance();
  bool done() const;
  /// What it is waiting for.
  std::string describe() const;

 private:
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

/// Tasks that run side by side.
class Tasks {
 public:
  void add(Task task) { all_.push_back(std::move(task)); }
  bool advance();
  std::string describe() const;

 private:
  std::vector<Task> all_;
};

struct Task::promise_type {
  /// What the coroutine waits for, if anything; lives in its frame.
  std::function<bool()> ready;
  std::function<std::string()> what;
  std::exception_ptr error;

  Task get_return_object() {
    return Task(std::coroutine_handle<promise_type>::from_promise(*this));
  }
  std::suspend_always initial_suspend() noexcept { return {}; }
  std::suspend_always final_suspend() noexcept { return {}; }
  void return_void() {}
  void unhandled_exception() { error = std::current_exception(); }

  template <class Awaited>
  struct Awaiter {
    explicit Awaiter(Awaited what_for) : awaited(std::move(what_for)) {}
    Awaited awaited;
    bool poll();
    bool await_ready() { return poll(); }
    void await_suspend(std::coroutine_handle<promise_type> handle) {
      handle.promise().ready = [this] { return poll(); };
      handle.promise().what = [this] { return describe(); };
    }
    void await_resume() {}
    std::string describe() const;
  };
  Awaiter<Requests> await_transform(Requests requests) {
    return Awaiter<Requests>(std::move(requests));
  }
  Awaiter<Task> await_transform(Task task) { return Awaiter<Task>(std::move(task)); }
  Awaiter<Tasks> await_transform(Tasks tasks) { return Awaiter<Tasks>(std::move(tasks)); }
  Awaiter<Until> await_transform(Until until) { return Awaiter<Until>(std::move(until)); }
  Awaiter<Requests> await_transform(std::unique_ptr<Request> request) {
    Requests one;
    one.add(std::move(request));
    return Awaiter<Requests>(std::move(one));
  }
};

template <class Awaited>
bool Task::promise_type::Awaiter<Awaited>::poll() {
  if constexpr (std::is_same_v<Awaited, Requests>) {
    return awaited.done();
  } else if constexpr (std::is_same_v<Awaited, Until>) {
    return awaited.holds();
  } else {
    return awaited.advance();
  }
}

template <class Awaited>
std::string Task::promise_type::Awaiter<Awaited>::describe() const {
  if constexpr (std::is_same_v<Awaited, Until>) {
    return awaited.what;
  } else {
    return awaited.describe();
  }
}

/// A wait that took too long.
class TimeoutError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Drives a task to its end; throws TimeoutError, which names `what` and the missing peers, when it
/// is not there after `patience`.
void wait(Task& task, Seconds patience, const std::string& what);
void wait(Task&& task, Seconds patience, const std::string& what);

}  // namespace convoy::comm
