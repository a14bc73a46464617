#pragma once
// Which algorithm sums a message fastest, from the cost formulas and what the links were measured
// to do.

#include "convoy/comm/algorithm.hpp"

namespace convoy::comm {

/// The way with the least predicted time. The library is not among them: its time is not known
/// beforehand, and nobody says in which order it adds.
Way fastest(Form form, int ranks, int64_t count, const LinkSpeed& link);

/// The number of colors and the chunk with the least predicted time.
Colors best_colors(Form form, int ranks, int64_t count, const LinkSpeed& link);

/// This algorithm, with the best trees if it has any.
Way tuned(Algorithm algorithm, Form form, int ranks, int64_t count, const LinkSpeed& link);

/// Measures latency and bandwidth between neighbours, all at once, and how fast this core adds.
/// Collective; every rank gets the same: the slowest of all.
LinkSpeed measure_links(Communicator& c, Seconds patience);

}  // namespace convoy::comm
