#include "convoy/comm/task.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>

namespace convoy::comm {
namespace {

void nap(Seconds length) {
  // By itself Linux wakes up to 50 µs late, to save power.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  std::this_thread::sleep_for(std::chrono::duration<double>(length.value));
}

}  // namespace

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
  // Messages within a node take microseconds, so it polls without a pause at first. Then it leaves
  // its core to others where ranks are more than cores: for a while it only gives way, which costs
  // little if nobody else is there, then it sleeps, for a part of the time that it has waited
  // already. Whoever spins for long keeps the others from sending what it waits for.
  constexpr Seconds kSpinning{50e-6};
  constexpr Seconds kGivingWay{0.2e-3};
  constexpr double kLongestNap = 50e-6;
  const Seconds begin = now();
  while (!task.advance()) {
    const Seconds waited = now() - begin;
    if (waited > patience) {
      throw TimeoutError(fmt::format("{} did not end within {}: still {}", what,
                                     to_string(patience), task.describe()));
    }
    if (waited > kGivingWay) {
      nap({std::min(waited.value / 20, kLongestNap)});
    } else if (waited > kSpinning) {
      std::this_thread::yield();
    }
  }
}

void wait(Task&& task, Seconds patience, const std::string& what) {
  wait(task, patience, what);
}

}  // namespace convoy::comm
