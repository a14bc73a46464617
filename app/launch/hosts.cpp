#include "app/launch/hosts.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>

#include <arpa/inet.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::app {
namespace {

constexpr const char* kForm = "--hosts is a list like a:2,b:2,c";
constexpr int kMostSlots = 4096;

int parse_slots(const std::string& entry, const std::string& digits) {
  int slots = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, slots);
  if (error != std::errc() || stop != end || slots < 1 || slots > kMostSlots) {
    refuse(
        "--hosts: '{}': after the colon stands how many workers the host runs, 1 to {}, not '{}'",
        entry, kMostSlots, digits);
  }
  return slots;
}

/// "[fd00::2]:4" or "[fd00::2]".
Host parse_bracketed(const std::string& entry) {
  const size_t close = entry.find(']');
  if (close == std::string::npos) refuse("--hosts: '{}': the bracket is not closed", entry);
  const std::string name = entry.substr(1, close - 1);
  if (!is_ipv6(name)) {
    refuse("--hosts: '{}': brackets are for IPv6 addresses, and '{}' is none", entry, name);
  }
  if (close + 1 == entry.size()) return {name, 1};
  if (entry[close + 1] != ':') {
    refuse("--hosts: '{}': after the bracket may only stand a colon and a number", entry);
  }
  return {name, parse_slots(entry, entry.substr(close + 2))};
}

Host parse_host(const std::string& entry) {
  if (entry.starts_with('[')) return parse_bracketed(entry);
  if (is_ipv6(entry)) {
    refuse("--hosts: '{0}': write an IPv6 address in brackets: [{0}] or [{0}]:2", entry);
  }
  const size_t colon = entry.find(':');
  const std::string name = entry.substr(0, colon);
  const auto legal = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  };
  if (name.empty() || name[0] == '-' || !std::all_of(name.begin(), name.end(), legal)) {
    refuse("--hosts: '{}' is not a host name or an address", name.empty() ? entry : name);
  }
  if (colon == std::string::npos) return {name, 1};
  return {name, parse_slots(entry, entry.substr(colon + 1))};
}

}  // namespace

bool is_ipv6(const std::string& name) {
  in6_addr address{};
  return ::inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

std::vector<Host> parse_hosts(const std::string& text) {
  if (text.empty()) refuse("--hosts is empty; {}", kForm);
  std::vector<Host> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    if (entry.empty()) {
      refuse("--hosts: entry {} of '{}' is empty; {}", hosts.size() + 1, text, kForm);
    }
    const Host host = parse_host(entry);
    const auto same = std::find_if(hosts.begin(), hosts.end(),
                                   [&](const Host& other) { return other.name == host.name; });
    if (same != hosts.end()) {
      refuse("--hosts: '{}' stands there twice; merge the entries: {}:{}", host.name,
             is_ipv6(host.name) ? "[" + host.name + "]" : host.name, same->slots + host.slots);
    }
    hosts.push_back(host);
    begin = end + 1;
  }
  return hosts;
}

std::vector<Host> without_workers(std::vector<Host> hosts, const std::vector<int>& gone) {
  int rank = 0;
  for (Host& host : hosts) {
    const int first = rank;
    rank += host.slots;
    host.slots -= static_cast<int>(
        std::ranges::count_if(gone, [&](int r) { return r >= first && r < rank; }));
  }
  std::erase_if(hosts, [](const Host& host) { return host.slots == 0; });
  return hosts;
}

int worker_count(const std::vector<Host>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const Host& host) { return sum + host.slots; });
}

std::vector<Host> place_workers(std::optional<int> workers, std::vector<Host> hosts) {
  check(workers || !hosts.empty(), "there are workers or hosts to place");
  if (workers && (*workers < 1 || *workers > kMostSlots)) {
    refuse("--workers {}: there are 1 to {} workers", *workers, kMostSlots);
  }
  if (hosts.empty()) return {{"localhost", *workers}};
  const int slots = worker_count(hosts);
  if (!workers) return hosts;
  if (*workers > slots) {
    refuse("--workers {} are more than the {} of --hosts; give hosts more (a:2 runs two workers)",
           *workers, plural(slots, "slot"));
  }
  int left = *workers;
  for (Host& host : hosts) {
    host.slots = std::min(host.slots, left);
    left -= host.slots;
  }
  std::erase_if(hosts, [](const Host& host) { return host.slots == 0; });
  return hosts;
}

}  // namespace convoy::app
