#include "convoy/comm/choose.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "convoy/base/random.hpp"
#include "convoy/comm/comm_thread.hpp"

namespace convoy::comm {
namespace {

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

/// What is sent at once, to see how long it takes: `messages` messages, in turn to the `peers`
/// ranks that follow, while all others do the same.
struct Load {
  int64_t count = 0;  // floats
  int messages = 1;
  int peers = 1;
};

Task around(Communicator& c, std::span<const float> mine, std::span<float> theirs,
            const Load& load) {
  const int n = c.size();
  const size_t each = mine.size() / static_cast<size_t>(load.messages);
  Requests all;
  for (int i = 0; i < load.messages; ++i) {
    const int from = (c.rank() + n - 1 - i % load.peers) % n;
    const auto to = theirs.subspan(static_cast<size_t>(i) * each, each);
    all.add(c.receive(from, kTags - 1, bytes_of(to)));
  }
  for (int i = 0; i < load.messages; ++i) {
    const int to = (c.rank() + 1 + i % load.peers) % n;
    all.add(c.send(to, kTags - 1, bytes_of(mine.subspan(static_cast<size_t>(i) * each, each))));
  }
  co_await std::move(all);
}

/// The median of several rounds, of the slowest rank.
float time_of(Communicator& c, const Load& load, int rounds, Seconds patience) {
  std::vector<float> mine(static_cast<size_t>(load.count), 1.0F);
  std::vector<float> theirs(mine.size());
  std::vector<float> times;
  for (int i = 0; i < rounds + 1; ++i) {
    const Seconds begin = now();
    wait(around(c, mine, theirs, load), patience, "measuring the links");
    if (i >= 1) times.push_back(static_cast<float>((now() - begin).value));
  }
  std::sort(times.begin(), times.end());
  const float own[] = {times[times.size() / 2]};
  return largest_of_all(c, own, patience)[0];
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
  all.reserve(ways.size());
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

Task counted(Communicator& c, std::span<float> values, int tag, const Way& way,
             std::atomic<int>& done) {
  co_await allreduce(c, values, tag, way);
  done.fetch_add(1, std::memory_order_release);
}

/// Seconds of so many sums at once, by a thread of their own: typically, of the slowest rank.
float time_driven(Communicator& c, int sums, int64_t count, const Way& way, Seconds pause,
                  Seconds patience) {
  std::vector<std::vector<float>> values(static_cast<size_t>(sums),
                                         std::vector<float>(static_cast<size_t>(count)));
  std::atomic<int> done{0};
  CommThread thread(patience, pause);
  std::array<float, 4> took{};
  for (size_t round = 0; round < took.size(); ++round) {
    const Seconds begin = now();
    for (int i = 0; i < sums; ++i) {
      thread.post("measuring sums",
                  [&, i] { return counted(c, values[static_cast<size_t>(i)], i, way, done); });
    }
    while (done.load(std::memory_order_acquire) < static_cast<int>(round + 1) * sums) {
      thread.rethrow();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    took[round] = static_cast<float>((now() - begin).value);
  }
  thread.stop();
  std::vector<float> slowest = largest_of_all(c, took, patience);
  slowest.erase(slowest.begin());  // the first time is often slow
  std::ranges::sort(slowest);
  return slowest[slowest.size() / 2];
}

}  // namespace

LinkSpeed measure_in_use(Communicator& c, const LinkSpeed& link, Seconds pause, Seconds patience) {
  if (c.size() < 2) return link;
  constexpr int kSums = 4;
  constexpr double kLongEnough = 0.2;  // seconds, for one
  int64_t count = int64_t{1} << 20;
  const auto predicted = [&](const LinkSpeed& of) {
    return predicted_time(fastest(Form::allreduce, c.size(), count, of), Form::allreduce, c.size(),
                          count, of);
  };
  while (count > 16 * 1024 && predicted(link).value > kLongEnough) count /= 2;
  const Way way = fastest(Form::allreduce, c.size(), count, link);
  const double took = time_driven(c, kSums, count, way, pause, patience);
  LinkSpeed at_once = link;
  at_once.latency = {0};
  const Seconds one = predicted_time(way, Form::allreduce, c.size(), count, link);
  const Seconds others = predicted_time(way, Form::allreduce, c.size(), count, at_once);
  const double times = std::clamp(took / (one.value + (kSums - 1) * others.value), 0.5, 5.0);
  LinkSpeed used = link;
  used.per_byte.value *= times;
  used.long_per_byte.value *= times;
  used.to_one_per_byte.value *= times;
  return used;
}

Colors best_colors(Form form, int ranks, int64_t count, const LinkSpeed& link) {
  constexpr int64_t kLongest = 256 * 1024;
  // Long messages wait for their receiver to ask for them, behind whatever the connection carries
  // already: on slow links chunks of 128 KiB take half as long again as those of 32 KiB, which
  // formulas do not know. So none is longer than keeps messages cheap.
  constexpr int64_t kShort = 8 * 1024;  // floats, as kLongest
  constexpr double kCheap = 50;         // times what a message costs
  const double cheap = kCheap * link.per_message.value / std::max(1e-13, link.per_byte.value) / 4;
  const int64_t longest = std::min({kLongest, link.longest.value / 4,
                                    std::max(kShort, static_cast<int64_t>(std::min(cheap, 1e9)))});
  Colors best;
  Seconds least{1e30};
  for (const int colors : {1, 2, 4, 8, 16, ranks}) {
    if (colors > std::min(ranks, kTags / 2)) continue;
    for (int64_t chunk = 1024; chunk <= longest; chunk *= 2) {
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
  constexpr int kMany = 32;
  constexpr float kSoon = 30e-3F;  // seconds: a shorter round says little
  const int peers = std::clamp(c.size() - 1, 1, 4);
  LinkSpeed link;
  link.latency.value = time_of(c, {2, 1, 1}, 20, patience);
  const double many = time_of(c, {2 * kMany, kMany, 1}, 10, patience);
  link.per_message.value = std::max(0.0, many - link.latency.value) / (kMany - 1);

  // As much as takes a while, to one rank and to several, in messages of different lengths. By the
  // first length that is hardly slower than the best, how long messages should be.
  int64_t count = 256 * 1024;
  if (time_of(c, {count, kMany, 1}, 1, patience) < kSoon) count *= 4;
  const double bytes = 4.0 * static_cast<double>(count);
  const float own_add[] = {static_cast<float>(time_to_add(256 * 1024).value)};
  link.add_per_byte.value = largest_of_all(c, own_add, patience)[0] / (4.0 * 256 * 1024);
  std::vector<Seconds> to_one;
  std::vector<Seconds> spread;
  // Messages of a peer's whole part, of 128 KiB and of 32 KiB, as many for each of the peers.
  const auto pieces = [&](int64_t floats) {
    return static_cast<int>(std::max<int64_t>(1, count / floats / peers)) * peers;
  };
  const int lengths[] = {peers, pieces(32 * 1024), pieces(8 * 1024)};
  for (const int messages : lengths) {
    const auto per_byte = [&](int others) {
      const float time = time_of(c, {count / messages * messages, messages, others}, 3, patience);
      return Seconds{std::max(0.0, time - link.latency.value) / bytes};
    };
    to_one.push_back(per_byte(1));
    spread.push_back(peers > 1 ? std::min(to_one.back(), per_byte(peers)) : to_one.back());
  }
  link.to_one_per_byte = *std::ranges::min_element(to_one);
  link.long_per_byte = spread.front();
  const Seconds least = *std::ranges::min_element(spread);
  for (size_t i = 0; i < spread.size(); ++i) {
    constexpr double kHardly = 1.05;
    if (spread[i].value > kHardly * least.value) continue;
    link.per_byte = spread[i];
    link.longest = {i == 0 ? std::numeric_limits<int64_t>::max()
                           : static_cast<int64_t>(bytes) / lengths[i]};
    break;
  }
  return link;
}

}  // namespace convoy::comm
