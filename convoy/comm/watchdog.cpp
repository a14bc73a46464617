#include "convoy/comm/watchdog.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

namespace convoy::comm {

Watchdog::Watchdog(std::string what, Seconds patience)
    : thread_([this, what = std::move(what), patience] {
        std::unique_lock lock(mutex_);
        const std::chrono::duration<double> longest(patience.value);
        if (ended_.wait_for(lock, longest, [this] { return over_; })) return;
        fmt::print(stderr, "convoy: {} did not end within {}\n", what, to_string(patience));
        std::fflush(stderr);
        std::_Exit(1);
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

}  // namespace convoy::comm
