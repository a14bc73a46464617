#pragma once
// What the control groups of this process grant it, version 1 or 2. A limit anywhere between our
// group and the root binds, so every level is read and the tightest one counts.
// Each function takes the root of the file system (tests hand in a made-up one).

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy::cgroup {

/// A group that this process is in: ours, or one above it.
struct Level {
  std::filesystem::path folder;
  bool unified = false;  ///< version 2
  bool operator==(const Level&) const = default;
};
/// The groups from the top of a hierarchy down to ours, for each hierarchy with this controller
/// ("cpu", "memory"). Mount points are those in /proc/self/mountinfo, or the usual ones.
std::vector<Level> levels(const std::string& controller, const std::filesystem::path& root = "/");

/// CPU time granted, in CPUs (1.5: one and a half); nothing if unlimited.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// Memory that may still be taken: limit − usage, where page cache that the kernel would drop at
/// once does not count as used. Nothing if unlimited.
std::optional<Bytes> memory_left(const std::filesystem::path& root = "/");
/// Memory granted in all; nothing if unlimited.
std::optional<Bytes> memory_limit(const std::filesystem::path& root = "/");

}  // namespace convoy::cgroup
