#pragma once
// What the control groups of this process grant it, version 1 or 2. A limit anywhere between our
// group and the root binds, so every level is read and the tightest one counts.
// Each function takes the root of the file system (tests hand in a made-up one).

#include <filesystem>
#include <optional>

#include "convoy/base/units.hpp"

namespace convoy::cgroup {

/// CPU time granted, in CPUs (1.5: one and a half); nothing if unlimited.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// Memory that may still be taken: limit − usage, where page cache that the kernel would drop at
/// once does not count as used. Nothing if unlimited.
std::optional<Bytes> memory_left(const std::filesystem::path& root = "/");

}  // namespace convoy::cgroup
