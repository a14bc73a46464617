#include "convoy/comm/task.hpp"

#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace convoy::comm {

bool Requests::done() {
  while (!all_.empty() && all_.back()->done()) all_.pop_back();
  return all_.empty();
}

std::string Requests::describe() const {
  std::vector<std::string> open;
  for (const auto& request : all_) {
    if (!request->done()) open.push_back(request->describe());
  }
  return fmt::format("{}", fmt::join(open, ", "));
}

Task& Task::operator=(Task&& other) noexcept {
  if (this != &other) {
    if (handle_) handle_.destroy();
    handle_ = std::exchange(other.handle_, nullptr);
  }
  return *this;
}

Task::~Task() {
  if (handle_) handle_.destroy();
}

bool Task::done() const {
  return !handle_ || handle_.done();
}

bool Task::advance() {
  if (!handle_) return true;
  promise_type& promise = handle_.promise();
  while (!handle_.done()) {
    if (promise.ready && !promise.ready()) return false;
    promise.ready = nullptr;
    promise.what = nullptr;
    handle_.resume();
  }
  if (promise.error) std::rethrow_exception(std::exchange(promise.error, nullptr));
  return true;
}

std::string Task::describe() const {
  if (done()) return "nothing";
  const promise_type& promise = handle_.promise();
  return promise.what ? promise.what() : "nothing";
}

bool Tasks::advance() {
  bool all_done = true;
  for (Task& task : all_) all_done = task.advance() && all_done;
  return all_done;
}

std::string Tasks::describe() const {
  std::vector<std::string> open;
  for (const Task& task : all_) {
    if (!task.done()) open.push_back(task.describe());
  }
  return fmt::format("{}", fmt::join(open, ", "));
}

void wait(Task& task, Seconds patience, const std::string& what) {
  // Messages within a node take microseconds, so it polls without a pause at first; then it leaves
  // the core to others.
  constexpr int kEager = 2000;
  const Seconds end = now() + patience;
  for (int64_t polls = 0; !task.advance(); ++polls) {
    if (polls < kEager) continue;
    if (now() > end) {
      throw TimeoutError(fmt::format("{} did not end within {}: still {}", what,
                                     to_string(patience), task.describe()));
    }
    std::this_thread::yield();
  }
}

void wait(Task&& task, Seconds patience, const std::string& what) {
  wait(task, patience, what);
}

}  // namespace convoy::comm
