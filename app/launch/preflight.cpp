#include "app/launch/preflight.hpp"

#include <algorithm>
#include <cstring>
#include <future>
#include <memory>

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

#include "app/launch/mpirun.hpp"
#include "app/launch/process.hpp"

namespace convoy::app {
namespace {

constexpr Seconds kPatience{20};
constexpr const char* kSsh = "ssh -o BatchMode=yes -o ConnectTimeout=5";

// Exit codes of the question to a host, free of meaning to shells and to ssh.
constexpr int kNoFolder = 81;
constexpr int kNoOpenMpi = 82;
constexpr int kNoProgram = 83;

bool same_address(const sockaddr& a, const sockaddr& b) {
  if (a.sa_family != b.sa_family) return false;
  if (a.sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
  }
  return a.sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(b).sin6_addr, sizeof(in6_addr)) == 0;
}

std::string last_line(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.pop_back();
  }
  return text.substr(text.rfind('\n') + 1);
}

std::string judge(const Captured& said, const Needed& needed, const std::string& agent) {
  if (said.late) return fmt::format("did not answer within {:.0f} s ({})", kPatience.value, agent);
  const std::string answer = last_line(said.out);
  switch (said.code) {
    case 0:
      if (answer == needed.answer) return "";
      return fmt::format("its {} says '{}', ours '{}'; install the same version", needed.executable,
                         answer, needed.answer);
    case kNoFolder:
      return fmt::format("has no folder {}; start from one that all hosts have", needed.folder);
    case kNoOpenMpi:
      return "has no orted in its PATH; install Open MPI there (Debian, Ubuntu: openmpi-bin)";
    case kNoProgram:
      return fmt::format("has no program {}; it must be at the same place as here",
                         needed.executable);
    default:
      break;
  }
  constexpr int kSshFailed = 255;  // ssh itself, not what it was to run
  const std::string why = last_line(said.err);
  return fmt::format("{}: {}",
                     said.code == kSshFailed ? "cannot be reached" : "cannot run the program",
                     why.empty() ? fmt::format("exit code {} of {}", said.code, agent) : why);
}

/// What is wrong with a host, or "".
std::string trouble_with(const Host& host, const Needed& needed, const std::string& agent) {
  try {
    if (is_this_machine(host.name)) return "";
    if (is_ipv6(host.name)) {
      return "Open MPI takes no IPv6 addresses of other hosts; give it a name (/etc/hosts)";
    }
    std::vector<std::string> command = split_words(agent, "--launch-agent");
    command.push_back(host.name);
    const std::string question = fmt::format(
        "cd {} || exit {}; command -v orted >/dev/null || exit {}; test -x {} || exit {}; exec {}",
        quoted({needed.folder}), kNoFolder, kNoOpenMpi, quoted({needed.executable}), kNoProgram,
        quoted({needed.executable, "--version"}));
    command.push_back(quoted({"sh", "-c", question}));
    return judge(run_captured(std::move(command), kPatience), needed, agent);
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

bool is_this_machine(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(name.c_str(), nullptr, &hints, &list);
  if (error != 0) fail("the name does not resolve: {}", ::gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(list, ::freeaddrinfo);
  ifaddrs* own_list = nullptr;
  if (::getifaddrs(&own_list) != 0) return false;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> own(own_list, ::freeifaddrs);
  for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
    for (const ifaddrs* i = own.get(); i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr != nullptr && same_address(*a->ai_addr, *i->ifa_addr)) return true;
    }
  }
  return false;
}

void check_hosts(const std::vector<Host>& hosts, const Needed& needed, const std::string& agent) {
  std::vector<std::future<std::string>> answers;
  answers.reserve(hosts.size());
  for (const Host& host : hosts) {
    answers.push_back(std::async(std::launch::async, trouble_with, std::cref(host),
                                 std::cref(needed), agent.empty() ? kSsh : agent));
  }
  size_t width = 0;
  for (const Host& host : hosts) width = std::max(width, host.name.size());
  std::string table;
  int64_t count = 0;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const std::string trouble = answers[i].get();
    if (trouble.empty()) continue;
    table += fmt::format("\n  {:{}}  {}", hosts[i].name, width, trouble);
    ++count;
  }
  if (count > 0) {
    refuse("{} of {} not ready, nothing was started:{}", count,
           hosts.size() == 1 ? "1 host is" : fmt::format("{} hosts are", hosts.size()), table);
  }
}

}  // namespace convoy::app
