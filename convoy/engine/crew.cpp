#include "convoy/engine/crew.hpp"

#include <system_error>
#include <utility>

#include "convoy/base/error.hpp"
#include "convoy/base/threads.hpp"

namespace convoy::engine {

Crew::Crew(int lanes, const std::vector<int>& cores) {
  threads_.reserve(static_cast<size_t>(lanes));
  try {
    for (int lane = 0; lane < lanes; ++lane) {
      const int core =
          static_cast<size_t>(lane) < cores.size() ? cores[static_cast<size_t>(lane)] : -1;
      threads_.emplace_back([this, lane, core] {
        if (core >= 0) pin_this_thread(core);
        work(lane);
      });
    }
  } catch (const std::system_error& error) {
    stop();
    fail("cannot start a thread for each of {} lanes: {}", lanes, error.what());
  }
}

Crew::~Crew() {
  stop();
}

void Crew::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Crew::run(const std::function<void(int lane)>& task) {
  std::unique_lock lock(mutex_);
  task_ = &task;
  running_ = lanes();
  errors_.assign(threads_.size(), nullptr);
  ++round_;
  start_.notify_all();
  done_.wait(lock, [&] { return running_ == 0; });
  task_ = nullptr;
  for (const std::exception_ptr& error : errors_) {
    if (error) std::rethrow_exception(error);
  }
}

void Crew::work(int lane) {
  uint64_t seen = 0;
  for (;;) {
    const std::function<void(int)>* task = nullptr;
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      task = task_;
    }
    std::exception_ptr error;
    try {
      (*task)(lane);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    errors_[static_cast<size_t>(lane)] = std::move(error);  // this thread keeps no part in it
    if (--running_ == 0) done_.notify_one();
  }
}

}  // namespace convoy::engine
