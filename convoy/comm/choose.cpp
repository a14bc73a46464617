#include "convoy/comm/choose.hpp"

#include <algorithm>
#include <array>

#include "convoy/base/error.hpp"

namespace convoy::comm {
namespace {

Task around(Communicator& c, std::span<const float> mine, std::span<float> theirs, int tag) {
  const int n = c.size();
  Requests both;
  both.add(c.receive((c.rank() + n - 1) % n, tag, bytes_of(theirs)));
  both.add(c.send((c.rank() + 1) % n, tag, bytes_of(mine)));
  co_await std::move(both);
}

/// The least of several rounds of passing `count` values around, while all others do it too.
Seconds time_of(Communicator& c, int64_t count, int rounds, Seconds patience) {
  std::vector<float> mine(static_cast<size_t>(count), 1.0F);
  std::vector<float> theirs(mine.size());
  Seconds least{1e30};
  for (int i = 0; i < rounds + 2; ++i) {
    const Seconds begin = now();
    wait(around(c, mine, theirs, kTags - 1), patience, "measuring the links");
    if (i >= 2) least = std::min(least, now() - begin);
  }
  return least;
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

const char* to_string(Sum algorithm) {
  switch (algorithm) {
    case Sum::ring:
      return "ring";
    case Sum::halving:
      return "halving";
    case Sum::colors:
      return "colors";
  }
  return "";
}

Sum parse_sum(const std::string& name) {
  for (const Sum algorithm : kSums) {
    if (name == to_string(algorithm)) return algorithm;
  }
  refuse("'{}' is no way to sum; there are ring, halving and colors", name);
}

Colors best_colors(int ranks, int64_t count, const LinkSpeed& link) {
  Colors best;
  Seconds least{1e30};
  for (const int colors : {1, 2, 4}) {
    for (int64_t chunk = 1024; chunk <= 256 * 1024; chunk *= 2) {
      const Colors options{.colors = colors, .chunk = chunk};
      const Seconds time = colors_time(ranks, count, link, options);
      if (time < least) {
        least = time;
        best = options;
      }
    }
  }
  return best;
}

Seconds predicted_time(int ranks, int64_t count, Sum algorithm, const LinkSpeed& link) {
  switch (algorithm) {
    case Sum::ring:
      return ring_time(ranks, count, link);
    case Sum::halving:
      return halving_time(ranks, count, link);
    case Sum::colors:
      return colors_time(ranks, count, link, best_colors(ranks, count, link));
  }
  return {};
}

Sum fastest(int ranks, int64_t count, const LinkSpeed& link) {
  return *std::min_element(std::begin(kSums), std::end(kSums), [&](Sum a, Sum b) {
    return predicted_time(ranks, count, a, link) < predicted_time(ranks, count, b, link);
  });
}

Task allreduce(Communicator& c, std::span<float> values, int tag, Sum algorithm,
               const LinkSpeed& link) {
  switch (algorithm) {
    case Sum::ring:
      return ring_allreduce(c, values, tag);
    case Sum::halving:
      return halving_allreduce(c, values, tag);
    case Sum::colors:
      break;
  }
  return colors_allreduce(c, values, tag,
                          best_colors(c.size(), static_cast<int64_t>(values.size()), link));
}

LinkSpeed measure_links(Communicator& c, Seconds patience) {
  constexpr int64_t kLarge = 256 * 1024;
  LinkSpeed link;
  const Seconds small = time_of(c, 2, 20, patience);
  const Seconds large = time_of(c, kLarge, 5, patience);
  // Everybody must choose alike, so all take the slowest: the maximum, passed around as a sum of
  // one-hot columns.
  std::vector<float> all(static_cast<size_t>(3 * c.size()), 0.0F);
  const auto own = static_cast<size_t>(3 * c.rank());
  all[own] = static_cast<float>(small.value);
  all[own + 1] = static_cast<float>((large.value - small.value) / (4.0 * kLarge));
  all[own + 2] = static_cast<float>(time_to_add(kLarge).value / (4.0 * kLarge));
  wait(ring_allreduce(c, all, 0), patience, "exchanging what the links do");
  for (int r = 0; r < c.size(); ++r) {
    const auto at = static_cast<size_t>(3 * r);
    link.latency.value = std::max<double>(link.latency.value, all[at]);
    link.per_byte.value = std::max<double>(link.per_byte.value, all[at + 1]);
    link.add_per_byte.value = std::max<double>(link.add_per_byte.value, all[at + 2]);
  }
  return link;
}

}  // namespace convoy::comm
