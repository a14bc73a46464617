#pragma once
// The mpirun of this machine, and the command that starts the workers with it.

#include <string>
#include <vector>

#include "app/launch/hosts.hpp"

namespace convoy::app {

/// What the command is made of, beside the workers and where they go.
struct MpirunSettings {
  bool root = false;               ///< Open MPI wants to be told that this is meant
  bool single_copy = true;         ///< processes may read each other's memory
  std::string agent;               ///< instead of ssh; empty: mpirun's own choice
  std::vector<std::string> names;  ///< variables that workers on other hosts get too
  std::vector<std::string> more;   ///< the user's own arguments; they come last
};

/// The command that starts `program` once for every slot of `hosts`.
std::vector<std::string> mpirun_command(const std::vector<Host>& hosts, const MpirunSettings& s,
                                        const std::vector<std::string>& program);

/// Refuses if PATH has no mpirun, or not Open MPI's. It is called by its name: called by its path,
/// it would expect itself at the same path on all hosts and change their library paths.
void check_mpirun();

/// True if a process may read another one's memory, which Open MPI does between workers of a host.
/// Containers often do not permit it, and then it complains at every large message.
bool single_copy_permitted();

/// Splits as a shell does: at blanks, except within quotes or after a backslash. Refuses a quote
/// that is not closed; `what` names the text in the message.
std::vector<std::string> split_words(const std::string& text, const std::string& what);

/// One line that a shell splits into these words.
std::string quoted(const std::vector<std::string>& words);

}  // namespace convoy::app
