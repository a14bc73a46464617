#pragma once
// The collectives by name: one place that knows them all.

#include <string>

#include "convoy/comm/collectives.hpp"

namespace convoy::comm {

enum class Algorithm { direct, ring, halving, colors, library };
inline constexpr Algorithm kAlgorithms[] = {Algorithm::direct, Algorithm::ring, Algorithm::halving,
                                            Algorithm::colors, Algorithm::library};
const char* to_string(Algorithm algorithm);
/// Throws InputError for anything but the names above.
Algorithm parse_algorithm(const std::string& name);

/// An algorithm, and how the trees are if it has any.
struct Way {
  Way(Algorithm which, const Colors& trees = {}) : algorithm(which), colors(trees) {}
  Algorithm algorithm;
  Colors colors;
};

/// The strips that this algorithm can serve, cut at `edges` (none: at whole cache lines).
Strips strips_for(const Way& way, int64_t count, int ranks, Edges edges = {});

Task part_reduce(Communicator& c, std::span<float> values, const Strips& strips, int tag,
                 const Way& way);
Task part_broadcast(Communicator& c, std::span<float> values, const Strips& strips, int tag,
                    const Way& way);
Task allreduce(Communicator& c, std::span<float> values, int tag, const Way& way);

/// What rank `rank` sends; an allreduce has the strips strips_for(way, count, ranks). The library
/// sends by itself, which is not counted: nothing.
Traffic traffic(const Way& way, Form form, int rank, const Strips& strips);
/// The library's is not known: it is taken for as good as the better of ring and halving.
Seconds predicted_time(const Way& way, Form form, int ranks, int64_t count, const LinkSpeed& link);

}  // namespace convoy::comm
