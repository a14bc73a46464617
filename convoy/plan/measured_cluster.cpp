#include "convoy/plan/measured_cluster.hpp"

#include <limits>
#include <sstream>

#include <fmt/format.h>

#include "convoy/base/memory.hpp"
#include "convoy/base/text.hpp"
#include "convoy/base/threads.hpp"
#include "convoy/comm/choose.hpp"
#include "convoy/sync/exchange.hpp"

namespace convoy::plan {
namespace {

/// What one worker says of itself and, if it measured them, of links.
struct Told {
  double seconds = 0;  // for a sample
  Bytes memory;        // of its host
  int cores = 0;
  NodeLink link;
  double adding = 0;

  std::string text() const {
    return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", seconds, memory.value, cores,
                       link.latency.value, link.bandwidth, link.connection, link.longest.value,
                       link.long_bandwidth, link.per_message.value, link.beside_lanes,
                       link.lanes_left, adding);
  }
  static Told of(const std::string& line) {
    Told t;
    std::istringstream in(line);
    in >> t.seconds >> t.memory.value >> t.cores >> t.link.latency.value >> t.link.bandwidth >>
        t.link.connection >> t.link.longest.value >> t.link.long_bandwidth >>
        t.link.per_message.value >> t.link.beside_lanes >> t.link.lanes_left >> t.adding;
    return t;
  }
};

/// The first workers of all hosts measure between them, while the others wait.
void measure_links(const sync::Team& team, Told& own) {
  if (team.world() == nullptr || (team.nodes() > 1 && team.local() > 0)) return;
  comm::Communicator& between = team.nodes() > 1 ? *team.across() : *team.world();
  const comm::LinkSpeed idle = comm::measure_links(between, team.deadline());
  const comm::LinkInUse used =
      comm::measure_in_use(between, idle, comm::pause_for(idle, sync::ExchangeOptions{}.pause),
                           team.nodes() > 1 ? own.cores : 0, team.deadline());
  const comm::LinkSpeed& measured = used.link;
  own.link.beside_lanes = used.beside_lanes;
  own.link.lanes_left = used.lanes_left;
  own.link.latency = measured.latency;
  own.link.bandwidth = 1 / std::max(1e-13, measured.per_byte.value);
  own.link.connection = 1 / std::max(1e-13, measured.to_one_per_byte.value);
  if (measured.longest.value < std::numeric_limits<int64_t>::max()) {
    own.link.longest = measured.longest;
    own.link.long_bandwidth = 1 / std::max(1e-13, measured.long_per_byte.value);
  }
  own.link.per_message = measured.per_message;
  own.adding = 1 / std::max(1e-13, measured.add_per_byte.value);
}

}  // namespace

Cluster measure_cluster(const sync::Team& team, const Workload& own) {
  Told mine;
  mine.seconds = own.sample().value;
  mine.memory = available_memory() + Bytes{team.locals() * resident_memory().value};
  mine.cores = static_cast<int>(usable_cores().size());
  measure_links(team, mine);
  std::vector<Told> all;
  for (const std::string& line : team.gather_text(mine.text(), "measuring the cluster")) {
    all.push_back(Told::of(line));
  }
  Cluster cluster;
  cluster.name = "this cluster";
  if (all.front().adding > 0) cluster.adding = all.front().adding;
  for (int host = 0; host < team.nodes(); ++host) {
    const std::vector<int>& ranks = team.members(host);
    const Told& first = all[static_cast<size_t>(ranks.front())];
    NodeType node;
    node.name = team.world() == nullptr ? "this"
                                        : team.world()->hosts()[static_cast<size_t>(ranks.front())];
    node.workers = static_cast<int>(ranks.size());
    node.cores = first.cores;
    node.memory = first.memory;
    node.link = all.front().link;
    node.speed = 0;
    for (const int rank : ranks) {
      const double seconds = all[static_cast<size_t>(rank)].seconds;
      node.speed += seconds > 0 ? all.front().seconds / seconds : 1;
    }
    cluster.nodes.push_back(node);
  }
  cluster.note =
      fmt::format("measured on {} while all of them worked", plural(team.size(), "worker"));
  return cluster;
}

}  // namespace convoy::plan
