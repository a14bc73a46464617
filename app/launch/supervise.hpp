#pragma once
// Runs mpirun as a child and answers for it: signals go through it to the workers, its end becomes
// our exit code, and nothing that it started stays behind.

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "app/launch/noise.hpp"

namespace convoy::app {

/// Asks a worker to save and stop, and then to exit with 128 + SIGTERM. mpirun passes it on to all
/// workers, wherever they are; SIGTERM and SIGINT it would answer itself, by killing them within a
/// second. Sent again every second, so a worker must take it more than once.
constexpr int kStopSignal = SIGUSR1;

/// Runs `command` (an mpirun) with the environment `variables` ("NAME=VALUE") to its end. Workers
/// read nothing; their stdout is ours, their stderr ours without mpirun's explanations.
///
/// The first SIGINT or SIGTERM asks the workers to save and stop, a second one kills them. If this
/// process is killed, mpirun ends the workers; if mpirun is killed, this process does.
///
struct SupervisedEnd {
  /// 0 (done), 1 (failed, a worker killed included), 2 (wrong input), or 128 + the signal that
  /// stopped it.
  int code = 0;
  // Unless the user asked for an end:
  std::optional<int> killed;            ///< the first worker that a signal ended
  std::vector<std::string> lost_hosts;  ///< that do not answer any more
};
SupervisedEnd supervise(std::vector<std::string> command, std::vector<std::string> variables);

}  // namespace convoy::app
