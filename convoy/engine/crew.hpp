#pragma once
// The threads of a worker's lanes: one per lane, each pinned to its core, all told to do something
// together and waited for.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace convoy::engine {

class Crew {
 public:
  /// Starts one thread per lane; lane i is pinned to cores[i] if there is one (best effort).
  Crew(int lanes, const std::vector<int>& cores);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int lanes() const { return static_cast<int>(threads_.size()); }

  /// Runs task(lane) on every lane at once and waits for all of them. If any throws, the first
  /// exception (by lane) is rethrown here. A task that uses barriers between lanes must not throw
  /// between them.
  void run(const std::function<void(int lane)>& task);

 private:
  void work(int lane);
  void stop();

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  const std::function<void(int)>* task_ = nullptr;
  uint64_t round_ = 0;
  int running_ = 0;
  bool stop_ = false;
  std::vector<std::exception_ptr> errors_;
};

}  // namespace convoy::engine
