#pragma once
// Several workers through the command line, as real processes.

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

}  // namespace convoy::app
