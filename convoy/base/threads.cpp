#include "convoy/base/threads.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include <hwloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "convoy/base/cgroup.hpp"
#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

// Null if the machine cannot be looked at; then every logical CPU counts as a core.
Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  // Without this flag hwloc would drop CPUs that a cpuset hides, and their caches with them.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

std::vector<int> affinity() {
  // The mask grows until the kernel's fits: machines with more than 1024 CPUs exist.
  for (int bits = CPU_SETSIZE; bits <= (1 << 20); bits *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(bits);
    const auto release = [](cpu_set_t* set) { CPU_FREE(set); };
    const std::unique_ptr<cpu_set_t, decltype(release)> set(CPU_ALLOC(bits), release);
    if (sched_getaffinity(0, bytes, set.get()) != 0) continue;
    std::vector<int> cpus;
    for (int cpu = 0; cpu < bits; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
    }
    return cpus;
  }
  return {0};
}

}  // namespace

int CoreMap::core_of(int lane, int thread, int threads_per_lane) const {
  return cores.at(static_cast<size_t>((lane * threads_per_lane + thread) % size()));
}

CoreMap arrange_cores(const std::vector<LogicalCpu>& allowed, std::optional<double> quota) {
  struct Place {
    int sibling;  // 0 for the first CPU of its core, 1 for the second, …
    LogicalCpu cpu;
  };
  std::map<int, int> siblings;
  std::vector<Place> places;
  places.reserve(allowed.size());
  for (const LogicalCpu& cpu : allowed) places.push_back({siblings[cpu.core]++, cpu});
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.sibling < b.sibling; });

  CoreMap map;
  map.quota = quota;
  size_t count = places.size();
  if (quota && std::ceil(*quota) < static_cast<double>(count)) {
    count = std::max<size_t>(1, static_cast<size_t>(std::ceil(*quota)));
    map.may_pin = false;
  }
  std::set<int> physical;
  for (size_t i = 0; i < count; ++i) {
    map.cores.push_back(places[i].cpu.cpu);
    physical.insert(places[i].cpu.core);
  }
  map.physical = static_cast<int>(physical.size());
  return map;
}

CoreMap usable_cores() {
  const Topology topology = load_topology();
  std::vector<LogicalCpu> allowed;
  for (const int cpu : affinity()) {
    int core = cpu;
    if (topology) {
      hwloc_obj_t unit = hwloc_get_pu_obj_by_os_index(topology.get(), static_cast<unsigned>(cpu));
      hwloc_obj_t owner =
          unit ? hwloc_get_ancestor_obj_by_type(topology.get(), HWLOC_OBJ_CORE, unit) : nullptr;
      // Numbers beyond any CPU's, so that a CPU without a core never shares a number with one.
      if (owner) core = (1 << 24) + static_cast<int>(owner->logical_index);
    }
    allowed.push_back({cpu, core});
  }
  return arrange_cores(allowed, cgroup::cpu_quota());
}

CoreMap part_of(const CoreMap& map, int part, int parts) {
  if (parts <= 1) return map;
  const int cores = std::max(1, map.physical);
  CoreMap own;
  own.may_pin = map.may_pin && parts <= cores;
  const int first = parts <= cores ? cores * part / parts : part % cores;
  const int last = parts <= cores ? cores * (part + 1) / parts : first + 1;
  own.cores.assign(map.cores.begin() + first, map.cores.begin() + last);
  own.physical = own.size();
  if (map.quota) own.quota = *map.quota / parts;
  return own;
}

bool pin_this_thread(int core) {
  if (core < 0) return false;
  const int bits = std::max(CPU_SETSIZE, core + 1);
  const size_t bytes = CPU_ALLOC_SIZE(bits);
  const auto release = [](cpu_set_t* set) { CPU_FREE(set); };
  const std::unique_ptr<cpu_set_t, decltype(release)> set(CPU_ALLOC(bits), release);
  CPU_ZERO_S(bytes, set.get());
  CPU_SET_S(static_cast<size_t>(core), bytes, set.get());
  return pthread_setaffinity_np(pthread_self(), bytes, set.get()) == 0;
}

void hurry_this_thread() {
  // What sched_setattr(2) takes; the C library has no name for it. Since Linux 6.12 a thread of the
  // default policy may ask for short slices and is then put before those with long ones; older
  // kernels prefer threads that sleep anyway. A higher priority needs rights and was slower: lanes
  // then wait for every look.
  struct Attributes {
    uint32_t size = sizeof(Attributes);
    uint32_t policy = SCHED_OTHER;
    uint64_t flags = 0;
    int32_t nice = 0;
    uint32_t priority = 0;
    uint64_t slice = 100'000;  // ns
    uint64_t deadline = 0;
    uint64_t period = 0;
  };
  Attributes wanted;
  wanted.nice = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)));
  ::syscall(SYS_sched_setattr, 0, &wanted, 0);
}

std::string describe(const CoreMap& map, int lanes, int threads_per_lane) {
  std::string text = fmt::format("cores: {} ({})", plural(map.size(), "logical CPU"),
                                 plural(map.physical, "physical core"));
  if (map.quota) text += fmt::format(", CPU quota {:.4g}", *map.quota);
  std::vector<std::string> places;
  for (int lane = 0; lane < lanes; ++lane) {
    std::string cpus;
    for (int thread = 0; thread < threads_per_lane; ++thread) {
      cpus +=
          fmt::format("{}{}", thread == 0 ? "" : "+", map.core_of(lane, thread, threads_per_lane));
    }
    places.push_back(fmt::format("{}→{}", lane, cpus));
  }
  text += fmt::format("\nlanes: {}, {} each", plural(lanes, "lane"),
                      plural(threads_per_lane, "thread"));
  text += map.may_pin ? fmt::format(", on CPUs {}", join(places, " "))
                      : ", placed by the system (the quota does not say which CPUs)";
  const int threads = lanes * threads_per_lane;
  if (threads > map.size()) {
    text += fmt::format("\nwarning: {} share {}; {} would be faster", plural(threads, "thread"),
                        plural(map.size(), "CPU"),
                        plural(std::max(1, map.size() / threads_per_lane), "lane"));
  } else if (threads > map.physical) {
    text += fmt::format("\nnote: {} share {} (SMT)", plural(threads, "thread"),
                        plural(map.physical, "physical core"));
  }
  return text;
}

std::string cpu_name() {
  const Topology topology = load_topology();
  if (!topology) return "unknown CPU";
  hwloc_obj_t package = hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_PACKAGE, 0);
  const char* name = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : nullptr;
  return name ? name : "unknown CPU";
}

std::vector<Cache> caches() {
  const Topology topology = load_topology();
  std::vector<Cache> found;
  if (!topology) return found;
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE}) {
    hwloc_obj_t cache = hwloc_get_obj_by_type(topology.get(), type, 0);
    if (!cache) continue;
    found.push_back({static_cast<int>(cache->attr->cache.depth),
                     {static_cast<int64_t>(cache->attr->cache.size)},
                     hwloc_bitmap_weight(cache->cpuset)});
  }
  return found;
}

}  // namespace convoy
