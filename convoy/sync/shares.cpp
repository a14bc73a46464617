#include "convoy/sync/shares.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <tuple>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::sync {
namespace {

void check_bounds(int64_t grains, std::span<const ShareBounds> bounds) {
  check(!bounds.empty() && grains >= 0, "there are workers, and no fewer than 0 grains");
  int64_t least = 0;
  int64_t most = 0;
  for (const ShareBounds& b : bounds) {
    check(b.least >= 0 && b.least <= b.most, "a share's bounds are in order");
    least += b.least;
    most += std::min(b.most, grains);  // cannot overflow
  }
  if (least > grains) {
    fail("a batch of {} cannot be shared: the workers must take {} together",
         plural(grains, "grain"), least);
  }
  if (most < grains) {
    fail("a batch of {} cannot be shared: the workers' memory holds {} together",
         plural(grains, "grain"), most);
  }
}

struct Parts {
  std::vector<double> grains;
  std::vector<bool> clamped;  // to their most
};

/// Real-valued shares within bounds, Σ = grains: clamp(c·v_i) with the one c that fits. Bounds are
/// met by fixing the workers that violate them, on the side that is violated more, until nobody
/// does.
Parts bounded_parts(int64_t grains, std::span<const double> speeds,
                    std::span<const ShareBounds> bounds) {
  const size_t n = speeds.size();
  Parts result{.grains = std::vector<double>(n), .clamped = std::vector<bool>(n)};
  std::vector<double>& parts = result.grains;
  std::vector<bool> fixed(n);
  for (;;) {
    double rest = static_cast<double>(grains);
    double speed = 0;
    size_t open = 0;
    for (size_t i = 0; i < n; ++i) {
      if (fixed[i]) rest -= parts[i];
      if (!fixed[i]) speed += speeds[i], ++open;
    }
    if (open == 0) return result;
    double over = 0;
    double under = 0;
    for (size_t i = 0; i < n; ++i) {
      if (fixed[i]) continue;
      // Among workers that all stand still, equal parts.
      parts[i] = speed > 0 ? rest * (speeds[i] / speed) : rest / static_cast<double>(open);
      over += std::max(0.0, parts[i] - static_cast<double>(bounds[i].most));
      under += std::max(0.0, static_cast<double>(bounds[i].least) - parts[i]);
    }
    if (over == 0 && under == 0) return result;
    for (size_t i = 0; i < n; ++i) {
      const auto least = static_cast<double>(bounds[i].least);
      const auto most = static_cast<double>(bounds[i].most);
      if (fixed[i] || (over >= under ? parts[i] <= most : parts[i] >= least)) continue;
      parts[i] = over >= under ? most : least;
      fixed[i] = true;
      result.clamped[i] = over >= under;
    }
  }
}

/// Whole grains for real-valued parts, by largest remainder, within bounds.
std::vector<int64_t> round_parts(int64_t grains, const std::vector<double>& parts,
                                 std::span<const ShareBounds> bounds) {
  const size_t n = parts.size();
  std::vector<int64_t> shares(n);
  std::vector<double> remainders(n);
  int64_t left = grains;
  for (size_t i = 0; i < n; ++i) {
    // Rounding errors of the parts may have carried them over a bound.
    shares[i] = std::clamp(static_cast<int64_t>(parts[i]), bounds[i].least, bounds[i].most);
    remainders[i] = parts[i] - static_cast<double>(shares[i]);
    left -= shares[i];
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  // One round is enough but for rounding errors.
  while (left > 0) {
    for (const size_t i : order) {
      if (left > 0 && shares[i] < bounds[i].most) ++shares[i], --left;
    }
  }
  while (left < 0) {
    for (size_t k = n; k-- > 0;) {
      if (left < 0 && shares[order[k]] > bounds[order[k]].least) --shares[order[k]], ++left;
    }
  }
  return shares;
}

/// The most grains, within bounds, that are done by `deadline`; its least if not even those are.
int64_t done_by(Seconds deadline, const TimeProfile& profile, ShareBounds bounds) {
  // t is monotonic, and bisection sees exactly the values that at() computes.
  int64_t low = bounds.least;
  int64_t high = bounds.most;
  if (profile.at(low) > deadline) return low;
  while (low < high) {
    const int64_t middle = high - (high - low) / 2;
    if (profile.at(middle) <= deadline) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

std::vector<ShareBounds> at_most(int64_t grains, std::span<const ShareBounds> bounds) {
  std::vector<ShareBounds> all(bounds.begin(), bounds.end());
  for (ShareBounds& b : all) b.most = std::min(b.most, grains);
  return all;
}

}  // namespace

ShareBounds memory_bounds(Bytes available, Bytes per_grain) {
  check(per_grain.value > 0, "a grain takes memory");
  return {.least = 0, .most = std::max<int64_t>(0, available.value) / per_grain.value};
}

std::vector<std::string> describe_clamped(const Shares& shares) {
  std::vector<std::string> lines;
  for (const int worker : shares.clamped) {
    const int64_t grains = shares.grains[static_cast<size_t>(worker)];
    lines.push_back(
        fmt::format("worker {} has memory for {} only", worker, plural(grains, "grain")));
  }
  return lines;
}

Seconds TimeProfile::at(int64_t grains) const {
  if (grains == 0) return {};
  return std::max(flat, Seconds{offset.value + slope.value * static_cast<double>(grains)});
}

TimeProfile TimeProfile::of_speed(double grains_per_second) {
  return {.flat = {}, .offset = {}, .slope = {1 / grains_per_second}};
}

Seconds slowest(std::span<const int64_t> grains, std::span<const TimeProfile> profiles) {
  Seconds most{};
  for (size_t i = 0; i < grains.size(); ++i) most = std::max(most, profiles[i].at(grains[i]));
  return most;
}

Shares equal_shares(int64_t grains, std::span<const ShareBounds> bounds) {
  return proportional_shares(grains, std::vector<double>(bounds.size(), 1.0), bounds);
}

Shares proportional_shares(int64_t grains, std::span<const double> speeds,
                           std::span<const ShareBounds> bounds) {
  check(speeds.size() == bounds.size(), "every worker has a speed and bounds");
  for (const double speed : speeds) {
    check(std::isfinite(speed) && speed >= 0, "a speed is a number, not below 0");
  }
  check_bounds(grains, bounds);
  const Parts parts = bounded_parts(grains, speeds, bounds);
  Shares shares{.grains = round_parts(grains, parts.grains, bounds), .clamped = {}};
  for (size_t i = 0; i < parts.clamped.size(); ++i) {
    if (parts.clamped[i]) shares.clamped.push_back(static_cast<int>(i));
  }
  return shares;
}

Shares proportional_shares(int64_t grains, std::span<const std::optional<double>> speeds,
                           std::span<const ShareBounds> bounds) {
  check(speeds.size() == bounds.size(), "every worker has bounds");
  // As fast as the average of the others is an equal share.
  double sum = 0;
  int64_t known = 0;
  for (const auto& speed : speeds) {
    if (speed) sum += *speed, ++known;
  }
  const double mean = known > 0 ? sum / static_cast<double>(known) : 1;
  std::vector<double> all;
  all.reserve(speeds.size());
  for (const auto& speed : speeds) all.push_back(speed.value_or(mean));
  return proportional_shares(grains, all, bounds);
}

Shares equal_finish(int64_t grains, std::span<const TimeProfile> profiles,
                    std::span<const ShareBounds> given) {
  check(profiles.size() == given.size(), "every worker has a profile and bounds");
  for (const TimeProfile& p : profiles) {
    check(std::isfinite(p.flat.value) && std::isfinite(p.offset.value) &&
              std::isfinite(p.slope.value) && p.slope.value >= 0,
          "a profile is made of numbers, and more grains take no less time");
  }
  check_bounds(grains, given);
  const std::vector<ShareBounds> bounds = at_most(grains, given);
  const size_t n = profiles.size();
  Shares shares;
  shares.grains.resize(n);
  const auto fill = [&](Seconds deadline) {
    int64_t sum = 0;
    for (size_t i = 0; i < n; ++i) {
      sum += shares.grains[i] = done_by(deadline, profiles[i], bounds[i]);
    }
    return sum;
  };
  // Bisection on T: by `early` not all grains are done, by `late` they are.
  Seconds early{};
  Seconds late{};
  for (size_t i = 0; i < n; ++i) late = std::max(late, profiles[i].at(bounds[i].most));
  constexpr int kHalvings = 60;
  for (int k = 0; k < kHalvings; ++k) {
    const Seconds middle{(early.value + late.value) / 2};
    const int64_t done = fill(middle);
    if (done == grains) break;
    (done < grains ? early : late) = middle;
  }
  int64_t left = grains;
  for (const int64_t x : shares.grains) left -= x;
  if (left < 0) left = grains - fill(early);
  if (left < 0) {  // more grains cost nothing than there are: start with those that must be taken
    left = grains;
    for (size_t i = 0; i < n; ++i) left -= shares.grains[i] = bounds[i].least;
  }
  // The next grain always goes where it is done first. Times never fall with more grains, so this
  // takes the cheapest grains of all, and the last one taken is the least maximum.
  using Next = std::tuple<Seconds, int64_t, size_t>;  // done at, grains already there, worker
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  const auto offer = [&](size_t i) {
    const int64_t x = shares.grains[i];
    if (x < bounds[i].most) next.emplace(profiles[i].at(x + 1), x, i);
  };
  for (size_t i = 0; i < n; ++i) offer(i);
  for (; left > 0; --left) {
    const size_t i = std::get<size_t>(next.top());
    next.pop();
    ++shares.grains[i];
    offer(i);
  }
  const Seconds end = slowest(shares.grains, profiles);
  for (size_t i = 0; i < n; ++i) {
    const bool full = given[i].most < grains && shares.grains[i] == given[i].most;
    if (full && profiles[i].at(given[i].most + 1) < end) {
      shares.clamped.push_back(static_cast<int>(i));
    }
  }
  return shares;
}

}  // namespace convoy::sync
