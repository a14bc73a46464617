#include "convoy/comm/choose.hpp"

#include <algorithm>

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

}  // namespace

Colors best_colors(Form form, int ranks, int64_t count, const LinkSpeed& link) {
  Colors best;
  Seconds least{1e30};
  for (const int colors : {1, 2, 4, 8, 16, ranks}) {
    if (colors > std::min(ranks, kTags / 2)) continue;
    for (int64_t chunk = 1024; chunk <= 256 * 1024; chunk *= 2) {
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

LinkSpeed measure_links(Communicator& c, Seconds patience) {
  constexpr int64_t kLarge = 256 * 1024;
  constexpr int kMany = 32;
  constexpr size_t kColumns = 4;
  const Seconds small = time_of(c, 2, 1, 20, patience);
  const Seconds many = time_of(c, 2 * kMany, kMany, 10, patience);
  const Seconds large = time_of(c, kLarge, 1, 5, patience);
  // Everybody must choose alike, so all take the slowest: the maximum, passed around as a sum of
  // one-hot rows.
  std::vector<float> all(kColumns * static_cast<size_t>(c.size()), 0.0F);
  const std::span<float> own = std::span(all).subspan(kColumns * static_cast<size_t>(c.rank()));
  own[0] = static_cast<float>(small.value);
  own[1] = static_cast<float>(std::max(0.0, large.value - small.value) / (4.0 * kLarge));
  own[2] = static_cast<float>(time_to_add(kLarge).value / (4.0 * kLarge));
  own[3] = static_cast<float>(std::max(0.0, many.value - small.value) / (kMany - 1));
  wait(ring_allreduce(c, all, 0), patience, "exchanging what the links do");
  LinkSpeed link;
  double* const slowest[kColumns] = {&link.latency.value, &link.per_byte.value,
                                     &link.add_per_byte.value, &link.per_message.value};
  for (size_t i = 0; i < all.size(); ++i) {
    *slowest[i % kColumns] = std::max<double>(*slowest[i % kColumns], all[i]);
  }
  return link;
}

}  // namespace convoy::comm
