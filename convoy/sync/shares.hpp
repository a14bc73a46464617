#pragma once
// How many grains each worker gets (LB-BSP, Chen et al. 2020): over whole numbers x_i,
//
//   minimise max_i t_i(x_i)   with   Σ x_i = grains   and   least_i ≤ x_i ≤ most_i
//
// for a worker of speed v_i, t_i(x) = x / v_i; for one that takes as long for a few grains as for
// one, t_i(x) = max(flat_i, offset_i + slope_i x). A worker with no grains takes no time, which is
// legal. All functions here are pure: workers that are told the same decide alike.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy::sync {

/// What a worker must take, and what fits into its memory.
struct ShareBounds {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};

/// By memory: as many grains as fit into `available` when each takes `per_grain`.
ShareBounds memory_bounds(Bytes available, Bytes per_grain);

struct Shares {
  std::vector<int64_t> grains;  ///< by worker
  /// Workers that would have got more if their memory let them, ascending.
  std::vector<int> clamped;
};

/// "worker 2 has room for 3 grains only", one for each clamped worker.
std::vector<std::string> describe_clamped(const Shares& shares);

/// How long a worker takes for x grains: 0 for none, else max(flat, offset + slope·x).
struct TimeProfile {
  Seconds flat;
  Seconds offset;
  Seconds slope;  ///< of one grain more; not negative, as the others

  Seconds at(int64_t grains) const;
  static TimeProfile of_speed(double grains_per_second);
};

/// The time of the slowest worker.
Seconds slowest(std::span<const int64_t> grains, std::span<const TimeProfile> profiles);

/// As equal as can be; the first workers get what is left over.
Shares equal_shares(int64_t grains, std::span<const ShareBounds> bounds);

/// x_i ∝ v_i, rounded by largest remainder (the first of equal ones), what bounds take away spread
/// over the others in proportion. A worker of speed 0 gets its least.
///
/// Here and below: one of `bounds` per worker. Throws Error if they cannot be met: together fewer
/// than `grains` fit, or more are asked for.
Shares proportional_shares(int64_t grains, std::span<const double> speeds,
                           std::span<const ShareBounds> bounds);

/// The same where some speeds are not known: such workers get an equal share, the rest is
/// proportional among the others.
Shares proportional_shares(int64_t grains, std::span<const std::optional<double>> speeds,
                           std::span<const ShareBounds> bounds);

/// All finish together, as nearly as whole grains allow: the least max_i t_i(x_i) there is. Of
/// several workers that would be done at the same time with one grain more, the one with the fewest
/// gets it, then the first.
Shares equal_finish(int64_t grains, std::span<const TimeProfile> profiles,
                    std::span<const ShareBounds> bounds);

}  // namespace convoy::sync
