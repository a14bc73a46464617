#include "convoy/comm/choose.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <limits>
#include <numeric>
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

/// Threads that compute as lanes do, with nothing to wait for, and how much they get done.
class BusyLanes {
 public:
  explicit BusyLanes(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] { compute(); });
    }
  }
  ~BusyLanes() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  BusyLanes(const BusyLanes&) = delete;
  BusyLanes& operator=(const BusyLanes&) = delete;

  /// In units of its own.
  int64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  void compute() {
    constexpr int kUnit = 4096;  // a few microseconds
    volatile float kept = 1;
    while (!stop_.load(std::memory_order_relaxed)) {
      float value = kept;
      for (int i = 0; i < kUnit; ++i) value = value * 0.999F + 0.001F;
      kept = value;
      done_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<int64_t> done_{0};
  std::vector<std::thread> threads_;
};

/// So many sums at once, of so many floats, by a thread of their own.
struct DrivenSums {
  int sums = 4;
  int64_t count = 0;
  Way way = Algorithm::direct;
  Seconds pause;
};

/// What they take, typically, and what lanes beside them get done in a second.
struct Driven {
  double seconds = 0;  // of the slowest rank
  double lanes = 0;    // of this one
};

Driven time_driven(Communicator& c, const DrivenSums& what, const BusyLanes* lanes,
                   Seconds patience) {
  std::vector<std::vector<float>> values(static_cast<size_t>(what.sums),
                                         std::vector<float>(static_cast<size_t>(what.count)));
  std::atomic<int> done{0};
  CommThread thread(patience, what.pause);
  std::array<float, 4> took{};
  int64_t computed = 0;
  for (size_t round = 0; round < took.size(); ++round) {
    const Seconds begin = now();
    const int64_t before = lanes != nullptr ? lanes->done() : 0;
    for (int i = 0; i < what.sums; ++i) {
      thread.post("measuring sums",
                  [&, i] { return counted(c, values[static_cast<size_t>(i)], i, what.way, done); });
    }
    while (done.load(std::memory_order_acquire) < static_cast<int>(round + 1) * what.sums) {
      thread.rethrow();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    took[round] = static_cast<float>((now() - begin).value);
    if (lanes != nullptr) computed += lanes->done() - before;
  }
  thread.stop();
  const double all = std::accumulate(took.begin(), took.end(), 0.0);
  std::vector<float> slowest = largest_of_all(c, took, patience);
  slowest.erase(slowest.begin());  // the first time is often slow
  std::ranges::sort(slowest);
  return {slowest[slowest.size() / 2], static_cast<double>(computed) / all};
}

}  // namespace

Seconds pause_for(const LinkSpeed& link, Seconds shortest) {
  constexpr double kMessage = 16 * 1024;  // bytes: what may have come meanwhile, unseen
  constexpr Seconds kLongest{1.2e-3};
  return std::max(shortest, std::min(kLongest, Seconds{kMessage * link.per_byte.value}));
}

LinkInUse measure_in_use(Communicator& c, const LinkSpeed& link, Seconds pause, int lanes,
                         Seconds patience) {
  LinkInUse used{link};
  if (c.size() < 2) return used;
  constexpr double kLongEnough = 0.2;  // seconds, for one
  DrivenSums sums;
  sums.pause = pause;
  sums.count = int64_t{1} << 20;
  const auto predicted = [&](const LinkSpeed& of) {
    return predicted_time(fastest(Form::allreduce, c.size(), sums.count, of), Form::allreduce,
                          c.size(), sums.count, of);
  };
  while (sums.count > 16 * 1024 && predicted(link).value > kLongEnough) sums.count /= 2;
  sums.way = fastest(Form::allreduce, c.size(), sums.count, link);
  const double took = time_driven(c, sums, nullptr, patience).seconds;
  LinkSpeed at_once = link;
  at_once.latency = {0};
  const Seconds one = predicted_time(sums.way, Form::allreduce, c.size(), sums.count, link);
  const Seconds others = predicted_time(sums.way, Form::allreduce, c.size(), sums.count, at_once);
  const double times = std::clamp(took / (one.value + (sums.sums - 1) * others.value), 0.5, 5.0);
  used.link.per_byte.value *= times;
  used.link.long_per_byte.value *= times;
  used.link.to_one_per_byte.value *= times;
  if (lanes < 1) return used;

  const BusyLanes busy(lanes);
  const Driven beside = time_driven(c, sums, &busy, patience);
  // Alone, for as long; all ranks at once, because hosts may share cores.
  const Seconds begin = now();
  const int64_t before = busy.done();
  std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(took, 0.3, 1.0)));
  const double alone = static_cast<double>(busy.done() - before) / (now() - begin).value;
  const float lost[] = {static_cast<float>(1 - beside.lanes / std::max(1.0, alone))};
  const double most = largest_of_all(c, lost, patience)[0];
  constexpr double kLeast = 0.1;
  used.lanes_left = std::clamp(1 - most, kLeast, 1.0);
  used.beside_lanes = std::clamp(took / beside.seconds, kLeast, 1.0);
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
