#include "app/launch/launch.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/base/version.hpp"
#include "convoy/comm/mpi.hpp"
#include "convoy/train/progress.hpp"

#include "app/launch/hosts.hpp"
#include "app/launch/mpirun.hpp"
#include "app/launch/preflight.hpp"
#include "app/launch/supervise.hpp"

namespace convoy::app {
namespace {

constexpr const char* kWorkers = "--workers";
constexpr const char* kHosts = "--hosts";
constexpr const char* kAgent = "--launch-agent";
constexpr const char* kMpirunArgs = "--mpirun-args";
constexpr const char* kDryRun = "--dry-run";

/// The environment of mpirun, and so of the workers on this machine.
std::vector<std::string> environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    // A number of threads set for one process would hold for each of several. Workers lay out
    // their threads themselves.
    if (text.starts_with("OMP_NUM_THREADS=")) continue;
    if (text.starts_with(std::string(train::kTerminal) + "=")) continue;
    variables.emplace_back(text);
  }
  variables.push_back(fmt::format("{}={}", train::kTerminal, ::isatty(STDOUT_FILENO) != 0 ? 1 : 0));
  return variables;
}

/// Names of the variables that are Convoy's own, which workers on other hosts need too.
std::vector<std::string> own_names(const std::vector<std::string>& variables) {
  std::vector<std::string> names;
  for (const std::string& variable : variables) {
    if (variable.starts_with("CONVOY_")) names.push_back(variable.substr(0, variable.find('=')));
  }
  std::sort(names.begin(), names.end());
  return names;
}

void refuse_within_a_launch() {
  if (!comm::started_by_launcher()) return;
  refuse(
      "this process is already a worker of mpirun, srun or a batch job, and --workers or --hosts "
      "would start more in each; leave them out (mpirun and srun: -n says how many workers)");
}

/// Ranks go to hosts in their order, each filled before the next (app/launch/mpirun.hpp).
std::vector<int> dead_workers(const std::vector<Host>& hosts, const SupervisedEnd& end) {
  std::vector<int> dead;
  int rank = 0;
  for (const Host& host : hosts) {
    const bool lost = std::ranges::count(end.lost_hosts, host.name) > 0;
    for (int slot = 0; slot < host.slots; ++slot, ++rank) {
      if (lost || end.killed == rank) dead.push_back(rank);
    }
  }
  return dead;
}

/// IPv6 addresses of this machine become a name, as Open MPI takes none.
std::vector<Host> named_for_mpirun(std::vector<Host> hosts) {
  for (Host& host : hosts) {
    if (is_ipv6(host.name)) host.name = "localhost";
  }
  return hosts;
}

}  // namespace

void add_launch_options(CLI::App& verb, LaunchOptions& options) {
  constexpr const char* kGroup = "Several workers (docs/clusters.md)";
  verb.add_option(kWorkers, options.workers,
                  "Start this many workers (default: as many as hosts take)")
      ->type_name("N")
      ->group(kGroup);
  verb.add_option(kHosts, options.hosts,
                  "Where, and how many on each: a:2,b:2 (default: all on this machine)")
      ->type_name("LIST")
      ->group(kGroup);
  verb.add_option(kAgent, options.agent, "Reach hosts with `CMD HOST COMMAND` instead of ssh")
      ->type_name("CMD")
      ->group(kGroup);
  verb.add_option(kMpirunArgs, options.mpirun_args, "Further arguments of mpirun, as one word")
      ->type_name("ARGS")
      ->group(kGroup);
  verb.add_flag(kDryRun, options.dry_run, "Print mpirun's command and start nothing")
      ->group(kGroup);
}

bool wanted(const LaunchOptions& options) {
  if (options.workers || options.hosts) return true;
  const char* lonely = nullptr;
  if (options.dry_run) lonely = kDryRun;
  if (!options.mpirun_args.empty()) lonely = kMpirunArgs;
  if (!options.agent.empty()) lonely = kAgent;
  if (lonely != nullptr) {
    refuse("{} is about starting several workers; add {} N or {} LIST", lonely, kWorkers, kHosts);
  }
  return false;
}

std::vector<std::string> without_launch_options(int argc, const char* const* argv) {
  std::vector<std::string> kept;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") {
      kept.insert(kept.end(), argv + i, argv + argc);
      break;
    }
    const std::string name = word.substr(0, word.find('='));
    if (name == kDryRun) continue;
    if (name == kWorkers || name == kHosts || name == kAgent || name == kMpirunArgs) {
      if (name == word) ++i;  // its value is the next word
      continue;
    }
    kept.push_back(word);
  }
  return kept;
}

int launch(const LaunchOptions& options, const std::vector<std::string>& arguments,
           const GoOn& without) {
  refuse_within_a_launch();
  std::vector<Host> hosts = place_workers(
      options.workers, options.hosts ? parse_hosts(*options.hosts) : std::vector<Host>());
  const std::string executable = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::vector<std::string> variables = environment();
  check_mpirun();
  MpirunSettings settings;
  settings.root = ::geteuid() == 0;
  settings.single_copy = single_copy_permitted();
  settings.agent = options.agent;
  settings.names = own_names(variables);
  settings.more = split_words(options.mpirun_args, kMpirunArgs);
  const Needed needed{executable, "convoy " + version(), std::filesystem::current_path().string()};
  for (std::vector<std::string> given = arguments;;) {
    std::vector<std::string> program = {executable};
    program.insert(program.end(), given.begin(), given.end());
    const std::vector<std::string> command =
        mpirun_command(named_for_mpirun(hosts), settings, program);
    if (options.dry_run) {
      fmt::print("{}\n", quoted(command));
      return 0;
    }
    check_hosts(hosts, needed, options.agent);
    std::fflush(stdout);
    const SupervisedEnd end = supervise(command, variables);
    const std::vector<int> dead = dead_workers(hosts, end);
    if (dead.empty() || !without) return end.code;
    const std::optional<Continuation> next = without({worker_count(hosts), dead});
    if (!next) return end.code;
    hosts = place_workers(next->workers, without_workers(hosts, dead));
    given = next->arguments;
  }
}

}  // namespace convoy::app
