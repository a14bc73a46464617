#pragma once
// Several workers through the command line, as real processes.

#include <algorithm>
#include <csignal>

#include "tests/app/program.hpp"

namespace convoy::app {

/// Open MPI leaves memory to the end of the process, in modules that are gone by then, so that no
/// list of exceptions could name them.
inline constexpr const char* kNoLeaks = "ASAN_OPTIONS=detect_leaks=0";

class Workers : public Program {
 protected:
  /// 32 samples in 8 grains, one lane for each worker.
  static std::vector<std::string> small_grains(std::vector<std::string> settings) {
    settings.insert(settings.begin(), {"engine.grain=4", "engine.lanes=1", "sync.deadline=20s"});
    return settings;
  }
  std::vector<std::string> arguments(int workers, const std::string& run,
                                     const std::vector<std::string>& settings) const {
    std::vector<std::string> all = train_arguments(run, small_grains(settings));
    if (workers > 1) all.insert(all.end(), {"--workers", std::to_string(workers)});
    return all;
  }
  Outcome train_on(int workers, const std::string& run,
                   const std::vector<std::string>& settings = {}) const {
    return convoy(arguments(workers, run, settings), {kNoLeaks});
  }
  Outcome resume_on(int workers, const std::string& run, const std::string& setting) const {
    std::vector<std::string> all{"train", "--resume", run, "--set", setting};
    if (workers > 1) all.insert(all.end(), {"--workers", std::to_string(workers)});
    return convoy(all, {kNoLeaks});
  }

  /// Two different command lines as two workers of one job.
  Outcome two(const std::string& first, const std::string& second) const {
    const std::string program = CONVOY_BINARY_DIR "/convoy train ";
    const std::string command = "cd '" + folder_.string() + "' && XDG_CACHE_HOME=cache " +
                                kNoLeaks + " timeout 60 mpirun " +
                                (::geteuid() == 0 ? "--allow-run-as-root " : "") +
                                "--oversubscribe --bind-to none -n 1 " + program + first +
                                " : -n 1 " + program + second + " > .out 2> .err";
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), content(folder_ / ".out"), content(folder_ / ".err")};
  }
};

/// Long trainings in which something happens to a worker.
class HurtWorkers : public Workers {
 protected:
  /// The process ids of a run's worker `rank`, which have `run` in their command line.
  static std::vector<pid_t> workers_of(const std::filesystem::path& run, int rank) {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (!std::all_of(name.begin(), name.end(), ::isdigit)) continue;
      std::error_code ignored;
      const auto program = std::filesystem::read_symlink(entry.path() / "exe", ignored);
      const std::string environment = content(entry.path() / "environ");
      const std::string as = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank) + std::string(1, 0);
      if (program.filename() != "convoy" ||
          content(entry.path() / "cmdline").find(run.string()) == std::string::npos ||
          environment.find(as) == std::string::npos) {
        continue;
      }
      found.push_back(std::stoi(name));
    }
    return found;
  }

  /// Starts a long training, sends `signal` to worker `rank` after the first checkpoint, and
  /// returns how it all ended.
  Outcome hurt(const std::string& run, int signal, int workers = 2, int rank = 1,
               const std::vector<std::string>& more = {}) {
    const std::filesystem::path folder = folder_ / run;
    std::vector<std::string> settings = {"train.epochs=100000", "train.checkpoint_every=1",
                                         "train.eval_every=off"};
    settings.insert(settings.end(), more.begin(), more.end());
    std::vector<std::string> all = arguments(workers, folder.string(), settings);
    all.insert(all.end(), {"--set", "sync.deadline=3s"});
    Process process(folder_, all, {kNoLeaks});
    constexpr int kMostPolls = 30'000;
    for (int i = 0; i < kMostPolls && !std::filesystem::exists(last(run)); ++i) ::usleep(1000);
    const std::vector<pid_t> hurt = workers_of(folder, rank);
    EXPECT_EQ(hurt.size(), 1U);
    for (const pid_t id : hurt) ::kill(id, signal);
    Outcome outcome = process.wait();
    for (int i = 0; i < kMostPolls && !workers_of(folder, rank).empty(); ++i) ::usleep(1000);
    EXPECT_TRUE(workers_of(folder, rank).empty()) << "a worker stayed behind";
    return outcome;
  }
};

}  // namespace convoy::app
