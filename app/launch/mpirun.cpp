#include "app/launch/mpirun.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

#include "app/launch/process.hpp"

namespace convoy::app {
namespace {

constexpr Seconds kPatience{20};

/// The first executable of this name in PATH, or "".
std::string in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "" : path;
  for (size_t begin = 0; begin < folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string file = folders.substr(begin, end - begin) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  return "";
}

}  // namespace

std::vector<std::string> mpirun_command(const std::vector<Host>& hosts, const MpirunSettings& s,
                                        const std::vector<std::string>& program) {
  std::vector<std::string> places;
  places.reserve(hosts.size());
  for (const Host& host : hosts) places.push_back(fmt::format("{}:{}", host.name, host.slots));
  std::vector<std::string> command = {"mpirun", "-n", std::to_string(worker_count(hosts)), "--host",
                                      join(places, ",")};
  const auto add = [&](std::initializer_list<std::string> words) {
    command.insert(command.end(), words);
  };
  if (s.root) add({"--allow-run-as-root"});
  // Workers share out the cores of their host themselves; mpirun must neither count nor bind.
  add({"--oversubscribe", "--bind-to", "none"});
  add({"--mca", "btl_base_warn_component_unused", "0"});
  if (!s.single_copy) add({"--mca", "btl_vader_single_copy_mechanism", "none"});
  // A user who names an agent wants it also where a batch system would offer its own way.
  if (!s.agent.empty()) add({"--mca", "plm", "rsh", "--mca", "plm_rsh_agent", s.agent});
  for (const std::string& name : s.names) add({"-x", name});
  command.insert(command.end(), s.more.begin(), s.more.end());
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

void check_mpirun() {
  const std::string path = in_path("mpirun");
  if (path.empty()) {
    refuse(
        "several workers need mpirun, which is not in PATH; install Open MPI (Debian, Ubuntu: "
        "openmpi-bin)");
  }
  const Captured answer = run_captured({path, "--version"}, kPatience);
  if (answer.out.find("Open MPI") == std::string::npos) {
    refuse(
        "{} is not Open MPI's, which this program was built with; put that one first in PATH "
        "(Debian: update-alternatives --config mpirun)",
        path);
  }
}

bool single_copy_permitted() {
  // Workers are siblings, so siblings are tried: one sleeps, the other reads a byte of it.
  const char byte = 1;
  const pid_t sleeper = ::fork();
  if (sleeper == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // As Open MPI does; where Yama restricts tracing, siblings could not otherwise.
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    for (;;) ::pause();
  }
  const pid_t reader = sleeper < 0 ? -1 : ::fork();
  if (reader == 0) {
    char copy = 0;
    const iovec to{&copy, 1};
    const iovec from{const_cast<char*>(&byte), 1};
    // The sleeper may not have come to its prctl: another try costs nothing.
    for (int tries = 0; tries < 100; ++tries) {
      if (::process_vm_readv(sleeper, &to, 1, &from, 1, 0) == 1) ::_exit(0);
      ::usleep(1000);
    }
    ::_exit(1);
  }
  int status = 1;
  if (reader > 0) ::waitpid(reader, &status, 0);
  if (sleeper > 0) {
    ::kill(sleeper, SIGKILL);
    ::waitpid(sleeper, nullptr, 0);
  }
  return status == 0;
}

std::vector<std::string> split_words(const std::string& text, const std::string& what) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && std::isspace(static_cast<unsigned char>(c)) != 0) {
      if (in_word) words.push_back(std::exchange(word, ""));
      in_word = false;
      continue;
    }
    in_word = true;
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
    } else if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else {
      word += c;
    }
  }
  if (quote != 0) refuse("{}: the {} in '{}' is not closed", what, quote, text);
  if (in_word) words.push_back(word);
  return words;
}

std::string quoted(const std::vector<std::string>& words) {
  std::vector<std::string> safe;
  safe.reserve(words.size());
  for (const std::string& word : words) {
    const auto plain = [](unsigned char c) {
      return std::isalnum(c) != 0 || std::string_view("_-+=/.,:@%").find(c) != std::string::npos;
    };
    if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) {
      safe.push_back(word);
      continue;
    }
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    safe.push_back(text + "'");
  }
  return join(safe, " ");
}

}  // namespace convoy::app
