#include "app/launch/process.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convoy/base/error.hpp"

namespace convoy::app {
namespace {

/// A pipe that only the program being started keeps: another thread's must not hold it open.
struct Pipe {
  std::array<int, 2> ends{-1, -1};
  Pipe() {
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("cannot make a pipe: {}", std::strerror(errno));
  }
  ~Pipe() {
    close(0);
    close(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close(size_t end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
};

pid_t start(std::vector<std::string>& command, const Pipe& out, const Pipe& err) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err.ends[1], STDERR_FILENO);
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t id = -1;
  const int error = ::posix_spawnp(&id, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail("cannot start {}: {}", command[0], std::strerror(error));
  return id;
}

}  // namespace

Captured run_captured(std::vector<std::string> command, Seconds patience) {
  Pipe out;
  Pipe err;
  const pid_t id = start(command, out, err);
  out.close(1);
  err.close(1);
  Captured captured;
  const Seconds end = now() + patience;
  std::array<pollfd, 2> waiting{pollfd{out.ends[0], POLLIN, 0}, pollfd{err.ends[0], POLLIN, 0}};
  while (waiting[0].fd >= 0 || waiting[1].fd >= 0) {
    const double left = (end - now()).value;
    if (left <= 0) {
      captured.late = true;
      ::kill(id, SIGKILL);
      break;
    }
    ::poll(waiting.data(), waiting.size(), static_cast<int>(left * 1e3) + 1);
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].fd < 0 || waiting[i].revents == 0) continue;
      std::array<char, 4096> bytes;
      const ssize_t count = ::read(waiting[i].fd, bytes.data(), bytes.size());
      if (count > 0) (i == 0 ? captured.out : captured.err).append(bytes.data(), count);
      if (count == 0) waiting[i].fd = -1;
    }
  }
  // It may have closed its ends and go on.
  int status = 0;
  while (::waitpid(id, &status, captured.late ? 0 : WNOHANG) == 0) {
    captured.late = now() > end;
    if (captured.late) ::kill(id, SIGKILL);
    ::usleep(1000);
  }
  captured.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return captured;
}

}  // namespace convoy::app
