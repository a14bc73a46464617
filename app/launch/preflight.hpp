#pragma once
// Looks at every host before anything is started: a launch that would fail on one of forty hosts
// fails at once, with a line for each host that is not ready.

#include <string>
#include <vector>

#include "app/launch/hosts.hpp"

namespace convoy::app {

/// What has to be found on every host, at the same place as here.
struct Needed {
  std::string executable;  ///< its path
  std::string answer;      ///< what it prints when asked for its --version
  std::string folder;      ///< the current one: paths on the command line start there
};

/// Refuses with a table if hosts are not ready: a name that does not resolve, no answer within
/// seconds, no Open MPI, folder or program, or a program of another version. All hosts are asked at
/// the same time, by ssh, or by `agent HOST COMMAND`. This machine itself needs no asking, under
/// whichever of its names or addresses it is listed.
void check_hosts(const std::vector<Host>& hosts, const Needed& needed, const std::string& agent);

/// True if `name` resolves to an address of this machine. Fails if it does not resolve.
bool is_this_machine(const std::string& name);

}  // namespace convoy::app
