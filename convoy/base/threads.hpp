#pragma once
// The cores this process may use, and how lanes are laid out on them.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy {

/// The logical CPUs a process may use, in the order lanes should take them: one per physical core
/// first, their SMT siblings after that.
struct CoreMap {
  std::vector<int> cores;
  int physical = 0;             ///< distinct physical cores among them
  std::optional<double> quota;  ///< CPU time granted by the control group, in CPUs
  /// False if a quota grants fewer CPUs than the affinity allows: which of them are free is then
  /// the scheduler's to know, and all containers pinning to the first ones would collide.
  bool may_pin = true;

  int size() const { return static_cast<int>(cores.size()); }
  /// Where thread `thread` of lane `lane` runs; wraps around when there are more threads than
  /// cores.
  int core_of(int lane, int thread, int threads_per_lane) const;
};

/// A logical CPU and the physical core it belongs to.
struct LogicalCpu {
  int cpu = 0;
  int core = 0;
};

/// Lays out `allowed` CPUs (ascending) under a quota: keeps as many as the quota, rounded up.
CoreMap arrange_cores(const std::vector<LogicalCpu>& allowed, std::optional<double> quota);

/// What this process may use: its affinity mask (taskset, MPI binding, cpuset) and its quota.
CoreMap usable_cores();

/// The part of process `part` of `parts` that share `map`: whole physical cores. If there are more
/// processes than cores, several get the same one, and nobody is pinned.
CoreMap part_of(const CoreMap& map, int part, int parts);

/// Binds the calling thread to one logical CPU; false if the system does not allow it.
bool pin_this_thread(int core);

/// Asks that the calling thread, which mostly sleeps, runs soon after it wakes even where others
/// compute on the same core. Where the system does not grant that, nothing changes.
void hurry_this_thread();

/// The map for people, one line per fact; with a warning if threads outnumber cores.
std::string describe(const CoreMap& map, int lanes, int threads_per_lane);

/// One level of the cache hierarchy.
struct Cache {
  int level = 1;
  Bytes size;      ///< of one instance
  int shared = 1;  ///< logical CPUs that share an instance
};

/// "AMD EPYC 7B13", or "unknown CPU".
std::string cpu_name();
/// Data and unified caches, level 1 first; empty if the machine does not tell.
std::vector<Cache> caches();

}  // namespace convoy
