#include "convoy/comm/choose.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "convoy/base/random.hpp"

namespace convoy::comm {
namespace {

/// Passes `messages` messages on to the next rank, all at once, while all others do it too.
Task around(Communicator& c, std::span<const float> mine, std::span<float> theirs, int messages) {
  const int n = c.size();
  const size_t each = mine.size() / static_cast<size_t>(messages);
  Requests all;
  for (size_t i = 0; i < static_cast<size_t>(messages); ++i) {
    all.add(c.receive((c.rank() + n - 1) % n, kTags - 1, bytes_of(theirs.subspan(i * each, each))));
  }
  for (size_t i = 0; i < static_cast<size_t>(messages); ++i) {
    all.add(c.send((c.rank() + 1) % n, kTags - 1, bytes_of(mine.subspan(i * each, each))));
  }
  co_await std::move(all);
}

/// The median of several rounds.
Seconds time_of(Communicator& c, int64_t count, int messages, int rounds, Seconds patience) {
  std::vector<float> mine(static_cast<size_t>(count), 1.0F);
  std::vector<float> theirs(mine.size());
  std::vector<Seconds> times;
  for (int i = 0; i < rounds + 2; ++i) {
    const Seconds begin = now();
    wait(around(c, mine, theirs, messages), patience, "measuring the links");
    if (i >= 2) times.push_back(now() - begin);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

Seconds time_to_add(int64_t count) {
  std::vector<float> a(static_cast<size_t>(count), 1.0F);
  std::vector<float> b(a.size(), 1.0F);
  Seconds least{1e30};
  for (int i = 0; i < 5; ++i) {
    const Seconds begin = now();
    add_to(a, b);
    least = std::min(least, now() - begin);
  }
  return least;
}

/// Everybody must choose alike, so all take the slowest.
std::vector<float> largest_of_all(Communicator& c, std::span<const float> own, Seconds patience) {
  std::vector<float> all(own.size() * static_cast<size_t>(c.size()));
  Strips strips;
  for (int64_t r = 0; r < c.size(); ++r) {
    const auto each = static_cast<int64_t>(own.size());
    strips.push_back({r * each, (r + 1) * each});
  }
  std::ranges::copy(own, at(all, strips[static_cast<size_t>(c.rank())]).begin());
  wait(direct_part_broadcast(c, all, strips, 0), patience, "exchanging what the links do");
  std::vector<float> largest(own.begin(), own.end());
  for (size_t i = 0; i < all.size(); ++i) {
    float& most = largest[i % own.size()];
    most = std::max(most, all[i]);
  }
  return largest;
}

std::vector<Way> trees(int ranks, int64_t count, const LinkSpeed& link) {
  std::vector<Way> ways;
  const auto add = [&](const Colors& options) {
    const bool known =
        std::ranges::any_of(ways, [&](const Way& way) { return way.colors == options; });
    if (!known) ways.emplace_back(Algorithm::colors, options);
  };
  add(best_colors(Form::allreduce, ranks, count, link));
  for (const int colors : {2, 4, std::min(ranks, kTags / 2)}) {
    if (colors > ranks) continue;
    // Longer chunks than a color has values are all the same.
    const auto whole =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count / colors + 1)));
    for (const int64_t chunk : {8 * 1024, 32 * 1024}) {
      add({.colors = colors, .chunk = std::min(chunk, whole)});
    }
  }
  return ways;
}

/// A way, and what its sums took so far; all ranks have the same times.
struct Tried {
  Way way;
  std::vector<float> times = {};

  float least() const { return *std::ranges::min_element(times); }
  /// The median without the first, which is often slow.
  float typical() const {
    std::vector<float> sorted(times.begin() + 1, times.end());
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
};

void drop_hopeless(std::vector<Tried>& all) {
  constexpr float kHopeless = 1.5F;
  float best = all.front().least();
  for (const Tried& tried : all) best = std::min(best, tried.least());
  std::erase_if(all, [&](const Tried& tried) { return tried.least() > kHopeless * best; });
}

Way least_time(Communicator& c, int64_t count, const std::vector<Way>& ways, Seconds patience) {
  constexpr int64_t kEnough = 1024 * 1024;
  constexpr int kAtLeast = 4;
  constexpr int kAtMost = 100;
  constexpr double kBudget = 0.5;  // seconds for each way
  std::vector<float> values(static_cast<size_t>(std::min(count, kEnough)));
  std::vector<Tried> all;
  for (const Way& way : ways) all.push_back({way});
  double spent = 0;
  for (int round = 0; round < kAtLeast || (round < kAtMost && spent < kBudget); ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      // No way always follows the same one, whose messages may still fill a link's queue.
      Tried& tried = all[permuted(i, all.size(), 1, static_cast<uint64_t>(round))];
      const Seconds begin = now();
      wait(allreduce(c, values, 0, tried.way), patience, "trying ways to sum");
      const float took[] = {static_cast<float>((now() - begin).value)};
      tried.times.push_back(largest_of_all(c, took, patience)[0]);
      spent += static_cast<double>(tried.times.back()) / static_cast<double>(all.size());
    }
    drop_hopeless(all);
  }
  return std::ranges::min_element(all, {}, &Tried::typical)->way;
}

}  // namespace

Colors best_colors(Form form, int ranks, int64_t count, const LinkSpeed& link) {
  constexpr int64_t kLongest = 256 * 1024;
  Colors best;
  Seconds least{1e30};
  for (const int colors : {1, 2, 4, 8, 16, ranks}) {
    if (colors > std::min(ranks, kTags / 2)) continue;
    for (int64_t chunk = 1024; chunk <= std::min(kLongest, link.longest.value / 4); chunk *= 2) {
      const Colors options{.colors = colors, .chunk = chunk};
      const Seconds time = colors_time(form, ranks, count, link, options);
      if (time < least) {
        least = time;
        best = options;
      }
    }
  }
  return best;
}

Way tuned(Algorithm algorithm, Form form, int ranks, int64_t count, const LinkSpeed& link) {
  if (algorithm != Algorithm::colors) return algorithm;
  return {algorithm, best_colors(form, ranks, count, link)};
}

Way fastest(Form form, int ranks, int64_t count, const LinkSpeed& link) {
  Way best = Algorithm::direct;
  Seconds least{1e30};
  for (const Algorithm algorithm : kAlgorithms) {
    if (algorithm == Algorithm::library) continue;
    const Way way = tuned(algorithm, form, ranks, count, link);
    const Seconds time = predicted_time(way, form, ranks, count, link);
    if (time < least) {
      least = time;
      best = way;
    }
  }
  return best;
}

Way fastest_trees_tried(Communicator& c, int64_t count, const LinkSpeed& link, Seconds patience) {
  return least_time(c, count, trees(c.size(), count, link), patience);
}

Way fastest_tried(Communicator& c, int64_t count, const LinkSpeed& link, Seconds patience) {
  std::vector<Way> ways = trees(c.size(), count, link);
  for (const Algorithm other : {Algorithm::direct, Algorithm::ring, Algorithm::halving}) {
    ways.emplace_back(other);
  }
  return least_time(c, count, ways, patience);
}

LinkSpeed measure_links(Communicator& c, Seconds patience) {
  constexpr int64_t kLarge = 256 * 1024;
  constexpr int kMany = 32;
  const Seconds small = time_of(c, 2, 1, 20, patience);
  const Seconds many = time_of(c, 2 * kMany, kMany, 10, patience);
  // The same bytes in one message and in several: by the first lengths that are hardly slower than
  // the best, how long messages should be.
  constexpr int kPieces[] = {1, 8, 32};
  std::vector<float> own = {
      static_cast<float>(small.value),
      static_cast<float>(std::max(0.0, many.value - small.value) / (kMany - 1)),
      static_cast<float>(time_to_add(kLarge).value)};
  for (const int pieces : kPieces) {
    own.push_back(static_cast<float>(time_of(c, kLarge, pieces, 5, patience).value));
  }
  const std::vector<float> slowest = largest_of_all(c, own, patience);

  constexpr double kBytes = 4.0 * kLarge;
  LinkSpeed link;
  link.latency.value = slowest[0];
  link.per_message.value = slowest[1];
  link.add_per_byte.value = slowest[2] / kBytes;
  const std::span<const float> large = std::span(slowest).subspan(3);
  const float least = *std::ranges::min_element(large);
  const auto per_byte = [&](float time) {
    return Seconds{std::max(0.0, time - link.latency.value) / kBytes};
  };
  link.long_per_byte = per_byte(large[0]);
  for (size_t i = 0; i < large.size(); ++i) {
    constexpr float kHardly = 1.05F;
    if (large[i] > kHardly * least) continue;
    link.longest = {i == 0 ? std::numeric_limits<int64_t>::max() : 4 * kLarge / kPieces[i]};
    link.per_byte = per_byte(large[i]);
    break;
  }
  return link;
}

}  // namespace convoy::comm
