#include "convoy/base/cgroup.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
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

bool names(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

// A mounted hierarchy, or the part of one below `top`.
struct Mount {
  fs::path point;
  fs::path top;
  bool unified = false;
  std::string options;  // version 1: its controllers are among them
};

// Lines are "36 35 98:0 TOP POINT rw,noatime … - TYPE SOURCE OPTIONS".
std::vector<Mount> mounts(const fs::path& root) {
  std::vector<Mount> found;
  std::ifstream in(root / "proc/self/mountinfo");
  std::string line;
  while (std::getline(in, line)) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream first(line.substr(0, dash));
    std::istringstream second(line.substr(dash + 3));
    std::string skipped;
    std::string top;
    std::string point;
    std::string type;
    std::string options;
    first >> skipped >> skipped >> skipped >> top >> point;
    second >> type >> skipped >> options;
    if (point.empty() || (type != "cgroup" && type != "cgroup2")) continue;
    found.push_back({root / fs::path(point).relative_path(), top, type == "cgroup2", options});
  }
  return found;
}

// One hierarchy this process is in: where it is mounted, and our group below that.
struct Membership {
  fs::path mount;
  fs::path group;
  bool unified = false;
};

// A container may see only the part of a hierarchy below its own group.
fs::path below(const fs::path& top, const fs::path& group) {
  const fs::path rest = group.lexically_relative(top);
  return rest.empty() || *rest.begin() == ".." ? fs::path() : rest;
}

// Where hierarchies are on systems that do not tell.
fs::path usual_mount(const fs::path& root, const std::string& controllers,
                     const std::string& controller) {
  const fs::path all = root / "sys/fs/cgroup";
  fs::path joint = all / (controllers.empty() ? "unified" : controllers);
  std::error_code unreadable;
  if (fs::exists(joint, unreadable)) return joint;
  return controllers.empty() ? all : all / controller;
}

// Lines of /proc/self/cgroup are "0::/group" (version 2) or "4:cpu,cpuacct:/group" (version 1).
std::vector<Membership> memberships(const fs::path& root, const std::string& controller) {
  std::vector<Membership> found;
  const std::vector<Mount> mounted = mounts(root);
  std::ifstream in(root / "proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    const bool unified = controllers.empty();
    if (!unified && !names(controllers, controller)) continue;
    const auto mount = std::find_if(mounted.begin(), mounted.end(), [&](const Mount& m) {
      return m.unified == unified && (unified || names(m.options, controller));
    });
    if (mount != mounted.end()) {
      found.push_back({mount->point, below(mount->top, group), unified});
    } else {
      found.push_back({usual_mount(root, controllers, controller), group.relative_path(), unified});
    }
  }
  return found;
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

std::optional<double> limit_at(const fs::path& folder, bool unified) {
  const auto limit = number_in(folder / (unified ? "memory.max" : "memory.limit_in_bytes"));
  // Version 1 writes "no limit" as the largest multiple of a page below 2^63.
  return limit && *limit < 0x1p62 ? limit : std::nullopt;
}

std::optional<Bytes> left_at(const fs::path& folder, bool unified) {
  const auto limit = limit_at(folder, unified);
  const auto usage = number_in(folder / (unified ? "memory.current" : "memory.usage_in_bytes"));
  if (!limit || !usage) return std::nullopt;
  const double droppable =
      entry_in(folder / "memory.stat", unified ? "inactive_file" : "total_inactive_file")
          .value_or(0);
  const double used = std::max(0.0, *usage - droppable);
  return Bytes{static_cast<int64_t>(std::max(0.0, *limit - used))};
}

}  // namespace

// Inside a container the group's path may be one of the host and lead nowhere; then only the mount
// point itself has files.
std::vector<Level> levels(const std::string& controller, const fs::path& root) {
  std::vector<Level> found;
  for (const Membership& membership : memberships(root, controller)) {
    fs::path folder = membership.mount;
    found.push_back({folder, membership.unified});
    for (const fs::path& part : membership.group) {
      if (part.empty() || part == ".") continue;
      if (part == "..") break;
      folder /= part;
      found.push_back({folder, membership.unified});
    }
  }
  return found;
}

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> quota;
  for (const Level& level : levels("cpu", root)) {
    if (const auto here = quota_at(level.folder, level.unified)) tighten(quota, *here);
  }
  return quota;
}

std::optional<Bytes> memory_left(const fs::path& root) {
  std::optional<Bytes> left;
  for (const Level& level : levels("memory", root)) {
    if (const auto here = left_at(level.folder, level.unified)) tighten(left, *here);
  }
  return left;
}

std::optional<Bytes> memory_limit(const fs::path& root) {
  std::optional<Bytes> limit;
  for (const Level& level : levels("memory", root)) {
    if (const auto here = limit_at(level.folder, level.unified)) {
      tighten(limit, Bytes{static_cast<int64_t>(*here)});
    }
  }
  return limit;
}

}  // namespace convoy::cgroup
