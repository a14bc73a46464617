#include "convoy/base/cgroup.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace convoy::cgroup {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_word(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  if (!(in >> word)) return std::nullopt;
  return word;
}

// Absent for a missing file, for "max" and for anything else that is not a number.
std::optional<double> number_in(const fs::path& file) {
  const auto word = first_word(file);
  if (!word) return std::nullopt;
  std::istringstream in(*word);
  double number = 0;
  if (!(in >> number) || !in.eof()) return std::nullopt;
  return number;
}

std::optional<double> entry_in(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  std::string word;
  double number = 0;
  while (in >> word >> number) {
    if (word == key) return number;
  }
  return std::nullopt;
}

// One hierarchy this process is in: where it is mounted, and our group below it.
struct Membership {
  fs::path mount;
  fs::path group;
  bool unified = false;
};

// Lines of /proc/self/cgroup are "0::/group" (version 2) or "4:cpu,cpuacct:/group" (version 1).
std::vector<Membership> memberships(const fs::path& root, const std::string& controller) {
  std::vector<Membership> found;
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream in(root / "proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = fs::path(line.substr(second + 1)).relative_path();
    if (controllers.empty()) {
      const fs::path hybrid = mounts / "unified";
      found.push_back({fs::exists(hybrid) ? hybrid : mounts, group, true});
    } else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      const fs::path joint = mounts / controllers;
      found.push_back({fs::exists(joint) ? joint : mounts / controller, group, false});
    }
  }
  return found;
}

// Calls `visit` for our group and each one above it. Inside a container the group's path may be
// one of the host and lead nowhere; then only the mount point itself has files.
void for_each_level(const Membership& membership,
                    const std::function<void(const fs::path&)>& visit) {
  fs::path folder = membership.mount;
  visit(folder);
  for (const fs::path& part : membership.group) {
    if (part.empty() || part == "." || part == "..") return;
    folder /= part;
    visit(folder);
  }
}

template <typename T>
void tighten(std::optional<T>& limit, T candidate) {
  limit = limit ? std::min(*limit, candidate) : candidate;
}

std::optional<double> quota_at(const fs::path& folder, bool unified) {
  if (!unified) {
    const auto quota = number_in(folder / "cpu.cfs_quota_us");
    const auto period = number_in(folder / "cpu.cfs_period_us");
    if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
    return *quota / *period;
  }
  std::ifstream in(folder / "cpu.max");
  double quota = 0;
  double period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<Bytes> left_at(const fs::path& folder, bool unified) {
  const auto limit = number_in(folder / (unified ? "memory.max" : "memory.limit_in_bytes"));
  const auto usage = number_in(folder / (unified ? "memory.current" : "memory.usage_in_bytes"));
  // Version 1 writes "no limit" as the largest multiple of a page below 2^63.
  if (!limit || !usage || *limit >= 0x1p62) return std::nullopt;
  const double droppable =
      entry_in(folder / "memory.stat", unified ? "inactive_file" : "total_inactive_file")
          .value_or(0);
  const double used = std::max(0.0, *usage - droppable);
  return Bytes{static_cast<int64_t>(std::max(0.0, *limit - used))};
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> quota;
  for (const Membership& membership : memberships(root, "cpu")) {
    for_each_level(membership, [&](const fs::path& folder) {
      if (const auto here = quota_at(folder, membership.unified)) tighten(quota, *here);
    });
  }
  return quota;
}

std::optional<Bytes> memory_left(const fs::path& root) {
  std::optional<Bytes> left;
  for (const Membership& membership : memberships(root, "memory")) {
    for_each_level(membership, [&](const fs::path& folder) {
      if (const auto here = left_at(folder, membership.unified)) tighten(left, *here);
    });
  }
  return left;
}

}  // namespace convoy::cgroup
