#pragma once
// Which hosts take part in a job, and how many workers each of them runs.

#include <optional>
#include <string>
#include <vector>

namespace convoy::app {

/// A host and how many workers it has room for, or runs.
struct Host {
  std::string name;  ///< a name or an address, without the brackets of IPv6
  int slots = 1;
  bool operator==(const Host&) const = default;
};

/// Reads "a:2,b:2,10.0.0.7,[fd00::2]:4"; a host without a number has one slot. Refuses what is not
/// such a list, and a host that stands there twice.
std::vector<Host> parse_hosts(const std::string& text);

/// The hosts that get workers, each with how many: they are filled in the order given. Without
/// `workers` every slot gets one; without hosts all workers are on this machine. Refuses more
/// workers than slots.
std::vector<Host> place_workers(std::optional<int> workers, std::vector<Host> hosts);

/// The places that are left without those of some workers, counted as they are placed.
std::vector<Host> without_workers(std::vector<Host> hosts, const std::vector<int>& gone);

/// All workers of a placement.
int worker_count(const std::vector<Host>& hosts);

/// True if `name` is an IPv6 address.
bool is_ipv6(const std::string& name);

}  // namespace convoy::app
