#pragma once
// Sums over the ranks of a communicator, each algorithm in its own file with its cost beside it.
// docs/collectives.md has their steps and diagrams; algorithm.hpp picks one by name.
//
// Three forms. allreduce: everybody gets the sum. part_reduce: rank r gets its strip of the sum
// (the rest of its values is used as scratch). part_broadcast: everybody gets all strips, of which
// rank r brings its own. part_reduce followed by part_broadcast is an allreduce.
//
// Not every algorithm can leave a sum with every rank: each says by its `…_strips` which rank may
// own what. Every rank calls the same functions with as many values, the same strips and the same
// tag; collectives that are under way at the same time have different tags.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/comm/communicator.hpp"
#include "convoy/comm/task.hpp"

namespace convoy::comm {

/// A collective with tag t uses the tags [t·kTags, (t + 1)·kTags) of its communicator.
inline constexpr int kTags = 32;

enum class Form { allreduce, part_reduce, part_broadcast };

/// Values [begin, end) of a rank.
struct Strip {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Strip&) const = default;
};

/// Strip r belongs to rank r. Together they cover all values, in ascending order; any may be empty.
using Strips = std::vector<Strip>;

/// Where values may be cut, ascending; if there are none, at whole cache lines of 16 values.
using Edges = std::span<const int64_t>;

/// `count` values in `parts` strips as equal as the edges allow.
Strips even_strips(int64_t count, int parts, Edges edges = {});
/// Strip `part` of even_strips(count, parts).
Strip strip_of(int64_t count, int part, int parts);
/// The values that all strips cover together.
int64_t count_of(const Strips& strips);

/// The values of one strip.
inline std::span<float> at(std::span<float> values, const Strip& s) {
  return values.subspan(static_cast<size_t>(s.begin), static_cast<size_t>(s.size()));
}

/// What a link and a core can do: a message of n bytes takes latency + n·per_byte, each further one
/// that is under way at the same time takes per_message of a core, and adding n bytes takes
/// n·add_per_byte. Messages over `longest` take long_per_byte: MPI libraries then ask the receiver
/// first, and the answer waits behind what else is on its way. per_byte is of a link that is full,
/// to several others; what goes to a single one takes to_one_per_byte, because a connection has
/// only so much under way.
struct LinkSpeed {
  Seconds latency;
  Seconds per_byte;
  Seconds add_per_byte;
  Seconds per_message;
  Seconds long_per_byte;
  Bytes longest;
  Seconds to_one_per_byte{0};  ///< less than per_byte: no other than that
  /// Of all `bytes`, in messages of this length.
  Seconds transfer(double bytes, double message) const {
    return {bytes *
            (message > static_cast<double>(longest.value) ? long_per_byte : per_byte).value};
  }
  /// The same to one rank.
  Seconds transfer_to_one(double bytes, double message) const {
    return std::max(transfer(bytes, message), Seconds{bytes * to_one_per_byte.value});
  }
};

// ---- direct (direct.cpp): least bytes, two steps, a message for every pair of ranks -------------
Strips direct_strips(int64_t count, int ranks, Edges edges = {});
Task direct_part_reduce(Communicator& c, std::span<float> values, Strips strips, int tag);
Task direct_part_broadcast(Communicator& c, std::span<float> values, Strips strips, int tag);
Task direct_allreduce(Communicator& c, std::span<float> values, int tag);
/// What rank `rank` sends; an allreduce has the strips of direct_strips(count, ranks).
Traffic direct_traffic(Form form, int rank, const Strips& strips);
Seconds direct_time(Form form, int ranks, int64_t count, const LinkSpeed& link);

// ---- ring (ring.cpp): least bytes, 2(N−1) steps
Strips ring_strips(int64_t count, int ranks, Edges edges = {});
Task ring_part_reduce(Communicator& c, std::span<float> values, Strips strips, int tag);
Task ring_part_broadcast(Communicator& c, std::span<float> values, Strips strips, int tag);
Task ring_allreduce(Communicator& c, std::span<float> values, int tag);
Traffic ring_traffic(Form form, int rank, const Strips& strips);
Seconds ring_time(Form form, int ranks, int64_t count, const LinkSpeed& link);

// ---- recursive halving and doubling (halving.cpp): least bytes, 2·log2 N steps
/// Where N is no power of two, the odd ones of the first ranks own nothing.
Strips halving_strips(int64_t count, int ranks, Edges edges = {});
Task halving_part_reduce(Communicator& c, std::span<float> values, Strips strips, int tag);
Task halving_part_broadcast(Communicator& c, std::span<float> values, Strips strips, int tag);
Task halving_allreduce(Communicator& c, std::span<float> values, int tag);
Traffic halving_traffic(Form form, int rank, const Strips& strips);
Seconds halving_time(Form form, int ranks, int64_t count, const LinkSpeed& link);

// ---- multi-color trees (colors.cpp): few hops, every link busy both ways
struct Colors {
  int colors = 4;             ///< at most kTags / 2, and no more than ranks
  int64_t chunk = 16 * 1024;  ///< values that go up or down a tree at a time
  bool operator==(const Colors&) const = default;
};
/// Only the roots of the trees own anything: rank ⌊color·N/k⌋ the values of that color.
Strips colors_strips(int64_t count, int ranks, const Colors& options, Edges edges = {});
Task colors_part_reduce(Communicator& c, std::span<float> values, Strips strips, int tag,
                        Colors options);
Task colors_part_broadcast(Communicator& c, std::span<float> values, Strips strips, int tag,
                           Colors options);
Task colors_allreduce(Communicator& c, std::span<float> values, int tag, Colors options);
Traffic colors_traffic(Form form, int rank, const Strips& strips, const Colors& options);
Seconds colors_time(Form form, int ranks, int64_t count, const LinkSpeed& link,
                    const Colors& options);

/// Rank `rank`'s place in the tree of `color`: v = (rank − ⌊color·N/k⌋) mod N, the parent of v is
/// (v − 1)/k.
struct TreePlace {
  int parent = -1;  ///< −1: the root
  std::vector<int> children;
};
TreePlace tree_place(int rank, int ranks, int color, int colors);

// ---- the MPI library's own (library.cpp)
// They know no tags: all ranks must start
// them in the same order. They need a communicator of MPI, and cannot be given up: after a wait
// that was too long, the job must end.
Strips library_strips(int64_t count, int ranks, Edges edges = {});
Task library_part_reduce(Communicator& c, std::span<float> values, Strips strips);
Task library_part_broadcast(Communicator& c, std::span<float> values, Strips strips);
Task library_allreduce(Communicator& c, std::span<float> values);

/// to[i] += from[i]
void add_to(std::span<const float> from, std::span<float> to);

}  // namespace convoy::comm
