#include "convoy/sync/group_layout.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::sync {
namespace {

/// The numbers of groups that `workers` can be parted into which are nearest to `groups`.
std::string nearest(int workers, int groups) {
  int below = std::min(groups, workers);
  while (workers % below != 0) --below;
  int above = std::min(groups, workers);
  while (workers % above != 0) ++above;
  return below == above ? std::to_string(below) : fmt::format("{} or {}", below, above);
}

}  // namespace

GroupLayout lay_out(const Team& team, int groups, int servers, bool own_ranks) {
  const int workers = team.size() - (own_ranks ? servers : 0);
  if (groups < 1 || servers < 1) refuse("there are a group and a server at least");
  if (workers < 1) {
    refuse("{} leave no worker beside {} of their own", plural(team.size(), "process"),
           plural(servers, "server"));
  }
  if (servers > team.size()) {
    refuse("{} cannot be spread over {}", plural(servers, "server"), plural(workers, "worker"));
  }
  if (groups > workers || workers % groups != 0) {
    refuse("{} cannot be {} of equal size; {} can", plural(workers, "worker"),
           plural(groups, "group"), nearest(workers, groups));
  }
  GroupLayout layout;
  layout.group.assign(static_cast<size_t>(team.size()), GroupLayout::kNone);
  layout.members.resize(static_cast<size_t>(groups));
  std::vector<int> order;
  for (int node = 0; node < team.nodes(); ++node) {
    for (const int rank : team.members(node)) {
      if (rank < workers) order.push_back(rank);
    }
  }
  const int each = workers / groups;
  for (int i = 0; i < workers; ++i) {
    const int rank = order[static_cast<size_t>(i)];
    layout.group[static_cast<size_t>(rank)] = i / each;
    layout.members[static_cast<size_t>(i / each)].push_back(rank);
  }
  for (std::vector<int>& members : layout.members) std::ranges::sort(members);
  for (int s = 0; s < servers; ++s) {
    layout.servers.push_back(own_ranks ? workers + s
                                       : order[static_cast<size_t>(s * workers / servers)]);
  }
  return layout;
}

Bytes bucket_for_servers(Bytes model) {
  constexpr int64_t kMany = 16;
  constexpr int64_t kShort = int64_t{1} << 20;
  return {std::clamp(model.value / kMany, kShort, 4 * kShort)};
}

}  // namespace convoy::sync
