#pragma once
// Who is in which group, and who serves the model. Groups are asynchronous to each other; the
// workers of a group step together on one batch.
//
//   6 workers, 3 groups, 2 servers           ranks  0 1 | 2 3 | 4 5      servers beside 0 and 3
//   the same with servers of their own       ranks  0 1 | 2 3 | 4 5 | servers 6 and 7

#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/sync/team.hpp"

namespace convoy::sync {

struct GroupLayout {
  static constexpr int kNone = -1;

  std::vector<int> group;                 ///< by rank; kNone: only a server
  std::vector<std::vector<int>> members;  ///< by group: its ranks, ascending
  std::vector<int> servers;               ///< by shard: the rank that serves it

  int groups() const { return static_cast<int>(members.size()); }
  /// Asks for batches on behalf of its group.
  int leader(int g) const { return members[static_cast<size_t>(g)].front(); }
};

/// Neighbours (host by host) are grouped. With `own_ranks` the last `servers` ranks do nothing but
/// serve; else servers are spread over the workers. Throws InputError with the nearest that would
/// be right if the groups cannot be equal or there are too few ranks.
GroupLayout lay_out(const Team& team, int groups, int servers, bool own_ranks);

/// Of a model of so many bytes, where nobody says otherwise: some sixteen buckets, so that the
/// first are back from the servers while the last are on their way, but none so short that messages
/// cost more than what is in them.
Bytes bucket_for_servers(Bytes model);

}  // namespace convoy::sync
