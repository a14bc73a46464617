#include "app/launch/supervise.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/base/units.hpp"

namespace convoy::app {
namespace {

constexpr Seconds kAskAgain{1};
constexpr Seconds kKillAfter{5};     // mpirun itself needs about two seconds to end its workers
constexpr Seconds kAbortWithin{20};  // else mpirun waits for a host that does not answer any more
constexpr Seconds kLeaveAfter{1};    // for agents and daemons to go once mpirun has gone
constexpr Seconds kGiveUpAfter{10};  // what cannot even be killed hangs in the kernel
constexpr Seconds kNever{std::numeric_limits<double>::infinity()};
constexpr int kStopped = 128 + SIGTERM;
constexpr int kInterrupted = 128 + SIGINT;

void say(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

/// Processes whose parent is this one.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) {
      continue;
    }
    // "PID (NAME) STATE PARENT …"; a name may hold anything, so the last bracket counts.
    std::ifstream file(entry.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    const size_t close = stat.rfind(')');
    if (close == std::string::npos || close + 4 > stat.size()) continue;
    if (std::atoi(stat.c_str() + close + 4) == ::getpid()) found.push_back(std::stoi(name));
  }
  return found;
}

class Supervisor {
 public:
  Supervisor(std::vector<std::string> command, std::vector<std::string> variables);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  SupervisedEnd run();

 private:
  [[noreturn]] void become_child(char** argv, char** envp, const sigset_t& mask);
  void wait_for_something();
  void on_signal(int number);
  void repeat_or_kill();
  void read_stderr();
  void reap();
  void end_orphans();
  void report() const;
  int exit_code() const;
  std::optional<int> killed() const;

  int signals_ = -1;                // a signalfd
  std::array<int, 2> err_{-1, -1};  // mpirun's stderr
  sigset_t blocked_{};
  std::vector<pid_t> others_;  // children that were there before, as a shell's that became us
  pid_t mpirun_ = -1;
  std::optional<int> status_;  // of mpirun, once it has ended
  NoiseFilter filter_;
  int asked_ = 0;  // the signal that stops us
  bool kill_ = false;
  Seconds next_ = kNever;     // when to ask again, or to kill
  Seconds give_up_ = kNever;  // when mpirun should have ended what it said it would
  bool gave_up_ = false;
};

Supervisor::Supervisor(std::vector<std::string> command, std::vector<std::string> variables)
    : others_(children()) {
  // What mpirun leaves behind becomes our child, so it can be found and ended.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t mask;
  ::sigemptyset(&blocked_);
  for (const int number : {SIGINT, SIGTERM, SIGCHLD}) ::sigaddset(&blocked_, number);
  ::sigprocmask(SIG_BLOCK, &blocked_, &mask);
  signals_ = ::signalfd(-1, &blocked_, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals_ < 0 || ::pipe2(err_.data(), O_CLOEXEC) != 0) {
    fail("cannot watch over mpirun: {}", std::strerror(errno));
  }
  const std::vector<char*> argv = pointers(command);
  const std::vector<char*> envp = pointers(variables);
  const pid_t parent = ::getpid();
  mpirun_ = ::fork();
  if (mpirun_ < 0) fail("cannot start mpirun: {}", std::strerror(errno));
  if (mpirun_ == 0) {
    // SIGTERM and not SIGKILL: mpirun then takes its workers along.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    become_child(const_cast<char**>(argv.data()), const_cast<char**>(envp.data()), mask);
  }
  ::close(err_[1]);
  err_[1] = -1;
}

Supervisor::~Supervisor() {
  for (const int fd : {signals_, err_[0], err_[1]}) {
    if (fd >= 0) ::close(fd);
  }
  ::sigprocmask(SIG_UNBLOCK, &blocked_, nullptr);
}

void Supervisor::become_child(char** argv, char** envp, const sigset_t& mask) {
  // A group of its own: Ctrl-C is for us, to be passed on once.
  ::setpgid(0, 0);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::close(nothing);
  ::dup2(err_[1], STDERR_FILENO);
  ::execvpe(argv[0], argv, envp);
  ::dprintf(STDERR_FILENO, "convoy: cannot start %s: %s\n", argv[0], std::strerror(errno));
  ::_exit(1);
}

SupervisedEnd Supervisor::run() {
  while (!status_) wait_for_something();
  end_orphans();
  read_stderr();
  if (!kill_) say(filter_.rest());
  report();
  SupervisedEnd end{exit_code(), {}, {}};
  if (asked_ != 0) return end;  // whoever wanted an end wants no other
  end.killed = killed();
  end.lost_hosts = filter_.lost_hosts();
  return end;
}

void Supervisor::wait_for_something() {
  std::array<pollfd, 2> waiting{pollfd{signals_, POLLIN, 0}, pollfd{err_[0], POLLIN, 0}};
  const Seconds first = std::min(next_, give_up_);
  constexpr double kLongest = 3600;  // in case nothing is due
  const double patience = std::clamp((first - now()).value, 0.0, kLongest);
  ::poll(waiting.data(), waiting.size(), static_cast<int>(patience * 1e3) + 1);
  if (waiting[1].revents != 0) read_stderr();
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGCHLD) {
      reap();
    } else {
      on_signal(static_cast<int>(info.ssi_signo));
    }
  }
  if (now() >= next_) repeat_or_kill();
  if (filter_.aborting() && give_up_ == kNever) give_up_ = now() + kAbortWithin;
  if (now() >= give_up_) {
    gave_up_ = !kill_;
    ::kill(mpirun_, SIGKILL);
  }
}

void Supervisor::on_signal(int number) {
  if (asked_ == 0) {
    asked_ = number;
    say("convoy: stopping; the workers save after their step (once more ends them at once)\n");
    next_ = now();
  } else if (!kill_) {
    kill_ = true;
    say("convoy: ending the workers\n");
    ::kill(mpirun_, SIGTERM);
    next_ = now() + kKillAfter;
  }
}

void Supervisor::repeat_or_kill() {
  // While workers are being started, mpirun passes the signal on to nobody; hence again and again.
  ::kill(mpirun_, kill_ ? SIGKILL : kStopSignal);
  next_ = now() + kAskAgain;
}

void Supervisor::read_stderr() {
  if (err_[0] < 0) return;
  std::array<char, 1 << 14> bytes;
  pollfd waiting{err_[0], POLLIN, 0};
  while (::poll(&waiting, 1, 0) > 0) {
    const ssize_t count = ::read(err_[0], bytes.data(), bytes.size());
    if (count <= 0) {
      ::close(err_[0]);
      err_[0] = -1;  // poll passes over it
      return;
    }
    const std::string shown = filter_.pass({bytes.data(), static_cast<size_t>(count)});
    if (!kill_) say(shown);  // how mpirun goes down in a hurry is of no use to anybody
  }
}

void Supervisor::reap() {
  int status = 0;
  for (pid_t id = 0; (id = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (id == mpirun_) status_ = status;
  }
}

void Supervisor::end_orphans() {
  const Seconds begin = now();
  for (Seconds spent{0}; spent < kGiveUpAfter; spent = now() - begin) {
    reap();
    std::vector<pid_t> left = children();
    std::erase_if(left, [&](pid_t id) { return std::count(others_.begin(), others_.end(), id); });
    if (left.empty()) return;
    // Their own children become ours when they die, and are met in the next round.
    if (spent > kLeaveAfter) {
      for (const pid_t id : left) ::kill(id, SIGKILL);
    }
    read_stderr();
    ::usleep(10'000);
  }
}

void Supervisor::report() const {
  for (const std::string& host : filter_.lost_hosts()) {
    say(fmt::format("convoy: host {} was lost: it is down, or the network to it is\n", host));
  }
  if (filter_.lost_a_host()) {
    say("convoy: a host was lost, or its Open MPI cannot reach this one: it is down, the network "
        "to "
        "it is, or a firewall is between\n");
  }
  if (gave_up_) {
    say("convoy: a host does not answer any more; what still runs there ends when it notices\n");
  } else if (WIFSIGNALED(*status_) && asked_ == 0) {
    say(fmt::format("convoy: mpirun was killed (SIG{}); its workers were ended\n",
                    ::sigabbrev_np(WTERMSIG(*status_))));
  }
  const std::optional<WorkerEnd>& end = filter_.first_end();
  if (!end || kill_) return;
  const std::string where = end->host.empty() ? "" : " on " + end->host;
  if (killed()) {
    say(fmt::format(
        "convoy: worker {}{} was killed by signal {} (SIG{}: {}){}\n", end->rank, where,
        end->signal, ::sigabbrev_np(end->signal), ::strsignal(end->signal),
        end->signal == SIGKILL ? "; if nobody did, its host may be out of memory" : ""));
  }
  // With these codes a worker has said itself what happened.
  constexpr std::array<int, 5> kExplained = {1, 2, kInterrupted, kStopped, 128 + kStopSignal};
  if (end->signal == 0 &&
      std::find(kExplained.begin(), kExplained.end(), end->code) == kExplained.end()) {
    say(fmt::format("convoy: worker {}{} ended with exit code {}\n", end->rank, where, end->code));
  }
}

std::optional<int> Supervisor::killed() const {
  const std::optional<WorkerEnd>& end = filter_.first_end();
  if (!end || kill_ || end->signal == 0) return std::nullopt;
  if (asked_ != 0 && end->signal == kStopSignal) return std::nullopt;
  return end->rank;
}

int Supervisor::exit_code() const {
  if (gave_up_) return 1;
  if (kill_ || (asked_ != 0 && WIFSIGNALED(*status_))) return 128 + asked_;
  if (WIFSIGNALED(*status_)) return 1;
  const int code = WEXITSTATUS(*status_);
  const bool stopped = code == kStopped || code == kInterrupted || code == 128 + kStopSignal;
  if (asked_ != 0 && stopped) return 128 + asked_;
  // mpirun's code for a worker killed by SIGTERM is the same as for one that saved and stopped.
  if (filter_.first_end() && filter_.first_end()->signal != 0) return 1;
  return code == 0 || code == 2 || code == kStopped || code == kInterrupted ? code : 1;
}

}  // namespace

SupervisedEnd supervise(std::vector<std::string> command, std::vector<std::string> variables) {
  return Supervisor(std::move(command), std::move(variables)).run();
}

}  // namespace convoy::app
