#pragma once
// Which algorithm sums a message fastest: by the cost formulas and what the links were measured to
// do, or, where the ranks are there to try it, by trying.

#include "convoy/comm/algorithm.hpp"

namespace convoy::comm {

/// The way with the least predicted time. The library is not among them: its time is not known
/// beforehand, and nobody says in which order it adds.
Way fastest(Form form, int ranks, int64_t count, const LinkSpeed& link);

/// The way that took least time when tried with so many values, or with 1 Mi if there are more:
/// for what the formulas leave out, such as how a library's long messages get in each other's way.
/// Collective; every rank gets the same. Takes a few sums of each promising way.
Way fastest_tried(Communicator& c, int64_t count, const LinkSpeed& link, Seconds patience);
/// The same among different trees.
Way fastest_trees_tried(Communicator& c, int64_t count, const LinkSpeed& link, Seconds patience);

/// The number of colors and the chunk with the least predicted time.
Colors best_colors(Form form, int ranks, int64_t count, const LinkSpeed& link);

/// This algorithm, with the best trees if it has any.
Way tuned(Algorithm algorithm, Form form, int ranks, int64_t count, const LinkSpeed& link);

/// Measures latency and bandwidth between neighbours, to one of them and to several, all ranks at
/// once, and how fast this core adds. Collective; every rank gets the same: the slowest of all.
LinkSpeed measure_links(Communicator& c, Seconds patience);

/// How long a communication thread should sleep between looks: `shortest`, or longer where the link
/// takes longer for a message anyway, because looks take a core from the lanes.
Seconds pause_for(const LinkSpeed& link, Seconds shortest);

/// A link as a training finds it.
struct LinkInUse {
  LinkSpeed link;  ///< while nobody computes
  /// Where lanes compute on all cores that there are, each has less while the other is busy: what
  /// of the link's speed is left, and what of theirs.
  double beside_lanes = 1;
  double lanes_left = 1;
};

/// The link as sums find it that a communication thread drives, which looks after them with this
/// pause: several at once are timed and compared with their formula, first with nothing beside
/// them, then with `lanes` threads that only compute. For predictions; collective, and every rank
/// gets the same.
LinkInUse measure_in_use(Communicator& c, const LinkSpeed& link, Seconds pause, int lanes,
                         Seconds patience);

}  // namespace convoy::comm
