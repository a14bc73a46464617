#pragma once
// Sums over the ranks of a communicator, each algorithm in its own file with its cost beside it.
// docs/collectives.md has their steps and diagrams.
//
// Three forms. allreduce: everybody gets the sum. part_reduce: rank r gets its strip of the sum
// (the rest of its values is used as scratch). part_broadcast: everybody gets all strips, of which
// rank r brings its own. part_reduce followed by part_broadcast is an allreduce.
//
// Every rank calls the same functions with as many values and the same tag; collectives that are
// under way at the same time have different tags.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/comm/communicator.hpp"
#include "convoy/comm/task.hpp"

namespace convoy::comm {

/// A collective with tag t uses the tags [t·kTags, (t + 1)·kTags) of its communicator.
inline constexpr int kTags = 32;

/// Values [begin, end) of a rank.
struct Strip {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

/// Strip `part` of `count` values cut into `parts`: nearly equal, at whole cache lines.
Strip strip_of(int64_t count, int part, int parts);

/// What a link and a core can do: a message of n bytes takes latency + n·per_byte, adding n bytes
/// takes n·add_per_byte.
struct LinkSpeed {
  Seconds latency;
  Seconds per_byte;
  Seconds add_per_byte;
};

// ---- ring (ring.cpp): least bytes, 2(N−1) steps
// ---------------------------------------------------
Task ring_part_reduce(Communicator& c, std::span<float> values, int tag);
Task ring_part_broadcast(Communicator& c, std::span<float> values, int tag);
Task ring_allreduce(Communicator& c, std::span<float> values, int tag);
/// What rank `rank` of `ranks` sends in an allreduce.
Traffic ring_traffic(int rank, int ranks, int64_t count);
Seconds ring_time(int ranks, int64_t count, const LinkSpeed& link);

// ---- recursive halving and doubling (halving.cpp): least bytes, 2·log2 N steps
// ---------------------
Task halving_allreduce(Communicator& c, std::span<float> values, int tag);
Traffic halving_traffic(int rank, int ranks, int64_t count);
Seconds halving_time(int ranks, int64_t count, const LinkSpeed& link);

// ---- multi-color trees (colors.cpp): few hops, every link busy both ways
// ---------------------------
struct Colors {
  int colors = 4;
  int64_t chunk = 16 * 1024;  ///< values that go up or down a tree at a time
};
Task colors_allreduce(Communicator& c, std::span<float> values, int tag, const Colors& options);
Traffic colors_traffic(int rank, int ranks, int64_t count, const Colors& options);
Seconds colors_time(int ranks, int64_t count, const LinkSpeed& link, const Colors& options);

/// Rank `rank`'s place in the tree of `color`: v = (rank − ⌊color·N/k⌋) mod N, the parent of v is
/// (v − 1)/k.
struct TreePlace {
  int parent = -1;  ///< −1: the root
  std::vector<int> children;
};
TreePlace tree_place(int rank, int ranks, int color, int colors);

/// to[i] += from[i]
void add_to(std::span<const float> from, std::span<float> to);

}  // namespace convoy::comm
