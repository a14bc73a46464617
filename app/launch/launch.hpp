#pragma once
// The launcher: `convoy train JOB --workers 4 --hosts a:2,b:2` looks at the hosts, starts mpirun
// with the same program and arguments less these options, and stays until all is over. The workers
// find out by themselves that they are several (comm::started_by_launcher).
//
// A verb that can be run by several workers does this:
//
//   app::LaunchOptions options;
//   app::add_launch_options(*verb, options);
//   …
//   if (app::wanted(options)) return app::launch(options, app::without_launch_options(argc, argv));
//
// Workers print to a pseudo-terminal of mpirun's, whatever the user's stdout is. What that is, the
// launcher tells them in the variable CONVOY_TERMINAL: 1 for a terminal, 0 for anything else.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace convoy::app {

struct LaunchOptions {
  std::optional<int> workers;        ///< --workers; without it, one for each slot of the hosts
  std::optional<std::string> hosts;  ///< --hosts, "a:2,b:2"; without it, this machine
  std::string agent;                 ///< --launch-agent, instead of ssh
  std::string mpirun_args;           ///< --mpirun-args
  bool dry_run = false;              ///< --dry-run: print the command, start nothing
};

/// Adds the options to a verb; `options` must live as long as it.
void add_launch_options(CLI::App& verb, LaunchOptions& options);

/// True if workers are to be started. Refuses settings of a launch without --workers or --hosts.
bool wanted(const LaunchOptions& options);

/// What this program was called with, less its name and the options above: what each worker is
/// called with.
std::vector<std::string> without_launch_options(int argc, const char* const* argv);

/// Starts this program with `arguments` as the workers, and waits for them; returns the exit code
/// (app/launch/supervise.hpp). Refuses, before anything is started, what cannot work, and a launch
/// from within one.
///
/// `without`: says with which arguments those go on that are left when some have died, or none to
/// end there; it may lower how many they are. Null: the death of one is the end.
struct Survivors {
  int workers = 0;        ///< of this launch
  std::vector<int> dead;  ///< ranks among them
};
struct Continuation {
  int workers = 0;
  std::vector<std::string> arguments;
};
using GoOn = std::function<std::optional<Continuation>(const Survivors& left)>;
int launch(const LaunchOptions& options, const std::vector<std::string>& arguments,
           const GoOn& without = nullptr);

}  // namespace convoy::app
