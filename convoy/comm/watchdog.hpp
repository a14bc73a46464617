#pragma once
// For calls that block and cannot be given up.

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "convoy/base/units.hpp"

namespace convoy::comm {

/// While it exists, a limit on how long that may be: afterwards it says on stderr what did not end
/// and ends the process with exit code 1, which a launcher takes as the end of all. MPI has calls
/// (starting, splitting, sharing memory, ending) in which a rank waits for the others, however
/// long; this keeps the promise that every wait ends.
class Watchdog {
 public:
  /// `what` begins the message: "worker 3 (b): sharing memory with workers 2, 3".
  Watchdog(std::string what, Seconds patience);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace convoy::comm
