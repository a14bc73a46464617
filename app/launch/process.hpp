#pragma once
// Running a program to its end and keeping what it said.

#include <string>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy::app {

struct Captured {
  int code = -1;      ///< its exit code; 128 + number if a signal ended it
  bool late = false;  ///< it was ended because its time was up
  std::string out;
  std::string err;
};

/// Runs a command, looked up in PATH, with nothing to read, and ends it when `patience` has passed.
/// Fails if it cannot be started. May be called by several threads at once.
Captured run_captured(std::vector<std::string> command, Seconds patience);

}  // namespace convoy::app
