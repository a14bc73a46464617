#include "convoy/comm/comm_thread.hpp"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "convoy/base/threads.hpp"

namespace convoy::comm {

CommThread::CommThread(Seconds deadline, Seconds pause)
    : deadline_(deadline), pause_(pause.value), thread_([this] { run(); }) {}

CommThread::~CommThread() {
  stop();
}

void CommThread::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  wake_.fetch_add(1);
  wake_.notify_one();
  thread_.join();
  take_posts();
}

void CommThread::post(std::string what, std::function<Task()> make) {
  auto* post = new Post{std::move(what), std::move(make), top_.load(std::memory_order_relaxed)};
  while (!top_.compare_exchange_weak(post->next, post, std::memory_order_release,
                                     std::memory_order_relaxed)) {
  }
  wake_.fetch_add(1, std::memory_order_release);
  wake_.notify_one();
}

void CommThread::rethrow() const {
  if (failed()) std::rethrow_exception(error_);
}

void CommThread::take_posts() {
  Post* post = top_.exchange(nullptr, std::memory_order_acquire);
  Post* first = nullptr;
  while (post != nullptr) {  // turned round: the first post first
    Post* next = std::exchange(post->next, first);
    first = std::exchange(post, next);
  }
  while (first != nullptr) {
    const std::unique_ptr<Post> taken(std::exchange(first, first->next));
    if (!stop_) running_.push_back({std::move(taken->what), taken->make(), now()});
  }
}

bool CommThread::advance_all() {
  bool ended = false;
  for (auto it = running_.begin(); it != running_.end();) {
    if (it->task.advance()) {
      it = running_.erase(it);
      ended = true;
    } else {
      ++it;
    }
  }
  return ended;
}

void CommThread::run() {
  hurry_this_thread();
  constexpr int kLooks = 4;  // after something has ended, before it sleeps
  try {
    int looks = 0;
    for (;;) {
      // Before it looks for an end or a post, or it could sleep through the call that came with it.
      const uint64_t seen = wake_.load(std::memory_order_acquire);
      if (stop_) break;
      take_posts();
      if (running_.empty()) {
        if (top_.load() == nullptr) wake_.wait(seen, std::memory_order_acquire);
        continue;
      }
      const Seconds before = now();
      const bool ended = advance_all();
      looks = ended ? 0 : looks + 1;
      if (looks > kLooks) {
        std::this_thread::sleep_for(
            std::chrono::duration<double>(pause_.load(std::memory_order_relaxed)));
      }
      const Seconds after = now();
      busy_ns_.fetch_add(static_cast<int64_t>((after - before).value * 1e9));
      if (!running_.empty() && after - running_.front().since > deadline_) {
        const Running& late = running_.front();
        throw TimeoutError(fmt::format("{} did not end within {}: still {}", late.what,
                                       to_string(deadline_), late.task.describe()));
      }
    }
  } catch (...) {
    error_ = std::current_exception();
    failed_.store(true, std::memory_order_release);
  }
  running_.clear();
}

}  // namespace convoy::comm
