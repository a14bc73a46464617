#include "convoy/plan/measured_cluster.hpp"

#include <sstream>

#include <fmt/format.h>

#include "convoy/base/memory.hpp"
#include "convoy/base/text.hpp"
#include "convoy/base/threads.hpp"
#include "convoy/comm/choose.hpp"

namespace convoy::plan {

Cluster measure_cluster(const sync::Team& team, const Workload& own) {
  Cluster cluster;
  cluster.name = "this cluster";
  NodeLink link;
  if (team.world() != nullptr) {
    const comm::LinkSpeed measured = comm::measure_links(*team.world(), team.deadline());
    link.latency = measured.latency;
    link.bandwidth = 1 / std::max(1e-13, measured.per_byte.value);
    link.per_message = measured.per_message;
    cluster.adding = 1 / std::max(1e-13, measured.add_per_byte.value);
  }
  const std::string text = fmt::format(
      "{} {} {}", own.sample().value,
      (available_memory().value + resident_memory().value) / team.locals(), usable_cores().size());
  double first = 0;
  int rank = 0;
  for (const std::string& line : team.gather_text(text, "measuring the cluster")) {
    std::istringstream in(line);
    double seconds = 0;
    NodeType node;
    in >> seconds >> node.memory.value >> node.cores;
    if (first == 0) first = seconds;
    node.name = team.name(rank++);
    node.speed = seconds > 0 ? first / seconds : 1;
    node.link = link;
    cluster.nodes.push_back(node);
  }
  cluster.note =
      fmt::format("measured on {} while all of them worked", plural(team.size(), "worker"));
  return cluster;
}

}  // namespace convoy::plan
