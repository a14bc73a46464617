// A program as the launcher starts it, and its launcher: what `convoy train` is to a user, less the
// training. Tests tell it how its workers end.
//
//   tests_launched_worker run --workers 2                    all print who they are and end well
//   tests_launched_worker run --workers 2 --code 3 --rank 1  worker 1 ends with code 3
//   tests_launched_worker run --workers 2 --signal 9         worker 0 kills itself
//   tests_launched_worker run --workers 2 --wait             all wait to be stopped

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/base/units.hpp"
#include "convoy/base/version.hpp"

#include "app/launch/launch.hpp"
#include "app/launch/supervise.hpp"

#ifdef __SANITIZE_ADDRESS__
// Open MPI does not free everything, and a crash must look like one from outside.
// NOLINTNEXTLINE(bugprone-reserved-identifier, readability-identifier-naming)
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0:handle_segv=0";
}
#endif

namespace {

using namespace convoy;

struct Behaviour {
  int rank = 0;
  int code = 0;
  int signal = 0;
  bool wait = false;
  bool deaf = false;
  bool finalize = true;
};

std::atomic<int> g_signal{0};

/// Waits for a signal, but never for long: a test that fails must leave nothing behind.
int wait_to_be_stopped(int rank, bool deaf) {
  constexpr Seconds kLongest{60};
  const Seconds end = now() + kLongest;
  while (g_signal == 0 || deaf) {
    if (now() > end) return 1;
    ::usleep(1000);
  }
  fmt::print("worker {} saved\n", rank);
  std::fflush(stdout);
  return 128 + SIGTERM;
}

int work(const Behaviour& b) {
  const auto on_signal = [](int number) { g_signal = number; };
  std::signal(app::kStopSignal, on_signal);
  std::signal(SIGTERM, on_signal);
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const char* threads = std::getenv("OMP_NUM_THREADS");
  const char* mark = std::getenv("CONVOY_TEST_MARK");
  fmt::print("worker {} of {} process {} threads {} mark {}\n", rank, size, ::getpid(),
             threads == nullptr ? "unset" : threads, mark == nullptr ? "unset" : mark);
  std::fflush(stdout);
  int code = 0;
  if (b.signal != 0 || !b.finalize) {
    if (rank == b.rank && b.signal != 0) std::raise(b.signal);
    if (rank == b.rank) std::_Exit(b.code);
    code = wait_to_be_stopped(rank, b.deaf);
  } else if (b.wait) {
    code = wait_to_be_stopped(rank, b.deaf);
  } else if (rank == b.rank) {
    code = b.code;
  }
  MPI_Finalize();
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program("A worker of the launcher's tests");
  program.set_version_flag("--version", "convoy " + version());
  CLI::App* run = program.add_subcommand("run");
  app::LaunchOptions options;
  Behaviour behaviour;
  app::add_launch_options(*run, options);
  run->add_option("--rank", behaviour.rank, "Who ends in a special way");
  run->add_option("--code", behaviour.code, "Its exit code");
  run->add_option("--signal", behaviour.signal, "What it kills itself with; the others wait");
  run->add_flag("--wait", behaviour.wait, "All wait to be stopped");
  run->add_flag("--deaf", behaviour.deaf, "With --wait: they do not stop");
  run->add_flag("!--without-finalize", behaviour.finalize,
                "It leaves MPI as it is; the others wait");
  try {
    program.parse(argc, argv);
    if (app::wanted(options)) {
      return app::launch(options, app::without_launch_options(argc, argv));
    }
    return work(behaviour);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  } catch (const InputError& error) {
    fmt::print(stderr, "convoy: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "convoy: {}\n", error.what());
    return 1;
  }
}
