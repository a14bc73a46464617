#pragma once
// Which algorithm sums a message fastest, from the cost formulas and what the links were measured
// to do.

#include <string>
#include <vector>

#include "convoy/comm/collectives.hpp"

namespace convoy::comm {

enum class Sum { ring, halving, colors };
inline constexpr Sum kSums[] = {Sum::ring, Sum::halving, Sum::colors};
const char* to_string(Sum algorithm);
/// Throws InputError for anything but "ring", "halving" or "colors".
Sum parse_sum(const std::string& name);

/// Starts the named one; colors with the best chunk for this link.
Task allreduce(Communicator& c, std::span<float> values, int tag, Sum algorithm,
               const LinkSpeed& link);
Seconds predicted_time(int ranks, int64_t count, Sum algorithm, const LinkSpeed& link);
Sum fastest(int ranks, int64_t count, const LinkSpeed& link);

/// The number of colors and the chunk with the least predicted time.
Colors best_colors(int ranks, int64_t count, const LinkSpeed& link);

/// Measures latency and bandwidth between neighbours, all at once, and how fast this core adds.
/// Collective; every rank gets the same: the slowest of all.
LinkSpeed measure_links(Communicator& c, Seconds patience);

}  // namespace convoy::comm
