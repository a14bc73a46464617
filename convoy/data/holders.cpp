#include "convoy/data/holders.hpp"

#include <algorithm>
#include <numeric>

#include "convoy/base/error.hpp"
#include "convoy/data/prepare.hpp"

namespace convoy::data {
namespace {

constexpr int32_t kNobody = -1;

/// The level up to which something fills vessels: bytes / members, a fraction as a rule.
struct Level {
  int64_t bytes = 0;
  int64_t members = 1;
  /// How much of it is above a load, in parts of a byte: as many to a byte as there are members.
  int64_t above(int64_t load) const { return std::max(bytes - load * members, int64_t{0}); }
};

/// The level if `extra` is poured into vessels that already hold `loads`.
Level level_of(std::vector<int64_t> loads, int64_t extra) {
  std::sort(loads.begin(), loads.end());
  Level level{.bytes = extra, .members = 0};
  for (const int64_t load : loads) {
    if (level.members > 0 && level.above(load) == 0) break;
    level.bytes += load;
    ++level.members;
  }
  return level;
}

/// Gives the samples of nobody, in contiguous runs, to members that hold `loads` so far, so that
/// all come to the same level if they can: a sample goes where its middle falls.
void spread(std::span<const int64_t> lengths, const std::vector<int64_t>& loads, Holders& holders) {
  int64_t extra = 0;
  for (size_t s = 0; s < holders.size(); ++s) {
    if (holders[s] == kNobody) extra += lengths[s];
  }
  const Level level = level_of(loads, extra);
  size_t member = 0;
  int64_t edge = level.above(loads[0]);
  int64_t at = 0;
  for (size_t s = 0; s < holders.size(); ++s) {
    if (holders[s] != kNobody) continue;
    const int64_t twice_middle = (2 * at + lengths[s]) * level.members;
    while (member + 1 < loads.size() && twice_middle >= 2 * edge) {
      edge += level.above(loads[++member]);
    }
    holders[s] = static_cast<int32_t>(member);
    at += lengths[s];
  }
}

/// visit(sample, worker) for each sample of an epoch.
template <class Visit>
void for_epoch(const Shares& shares, int64_t epoch, const Visit& visit) {
  const std::vector<int> worker_of = shares.worker_of_grains();
  const int64_t first = epoch * shares.samples;
  for (int64_t position = first; position < first + shares.samples; ++position) {
    const auto grain = static_cast<size_t>(position % shares.batch / shares.grain);
    visit(static_cast<size_t>(stream_at(position, shares.samples, shares.seed).sample),
          worker_of[grain]);
  }
}

}  // namespace

void Shares::check() const {
  convoy::check(samples > 0 && batch > 0 && grain > 0 && batch % grain == 0,
                "there are samples, and the grain divides the batch");
  std::vector<int> times(static_cast<size_t>(batch / grain));
  for (const GrainRange& range : ranges) {
    convoy::check(range.is_within(batch / grain), "a worker's grains are grains of the batch");
    for (int64_t g = range.first; g < range.last; ++g) ++times[static_cast<size_t>(g)];
  }
  convoy::check(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }),
                "each grain of the batch has one worker");
}

std::vector<int> Shares::worker_of_grains() const {
  std::vector<int> worker_of(static_cast<size_t>(batch / grain));
  for (int worker = 0; worker < workers(); ++worker) {
    const GrainRange& range = ranges[static_cast<size_t>(worker)];
    for (int64_t g = range.first; g < range.last; ++g) worker_of[static_cast<size_t>(g)] = worker;
  }
  return worker_of;
}

DataGroup data_group(int worker, int workers, int copies) {
  check(copies >= 1 && copies <= workers, "there is a copy at least, and a worker for each");
  // Group g begins at ⌈g·workers/copies⌉, so a worker's is ⌊worker·copies/workers⌋.
  const auto begin = [&](int64_t g) {
    return static_cast<int>((g * workers + copies - 1) / copies);
  };
  const int64_t group = int64_t{worker} * copies / workers;
  return {.first = begin(group), .last = begin(group + 1)};
}

Holders runs(std::span<const int64_t> lengths, int members) {
  Holders holders(lengths.size(), kNobody);
  spread(lengths, std::vector<int64_t>(static_cast<size_t>(members)), holders);
  return holders;
}

Holders of_epoch(std::span<const int64_t> lengths, const Shares& shares, DataGroup group,
                 int64_t epoch) {
  Holders holders(lengths.size(), kNobody);
  std::vector<int64_t> loads(static_cast<size_t>(group.size()));
  for_epoch(shares, epoch, [&](size_t sample, int worker) {
    if (!group.has(worker)) return;
    holders[sample] = worker - group.first;
    loads[static_cast<size_t>(worker - group.first)] += lengths[sample];
  });
  spread(lengths, loads, holders);
  return holders;
}

int64_t era_of(int64_t step, const Shares& shares, int64_t every) {
  return every > 0 ? shares.epoch(step) / every : 0;
}

Holders of_era(std::span<const int64_t> lengths, const Shares& shares, DataGroup group, int64_t era,
               int64_t every) {
  return era == 0 ? runs(lengths, group.size()) : of_epoch(lengths, shares, group, era * every);
}

Bytes most_held(std::span<const int64_t> lengths, const Shares& shares, int copies, int64_t era,
                int64_t every) {
  std::vector<int64_t> used(static_cast<size_t>(shares.workers()));
  if (era > 0) {
    for_epoch(shares, era * every, [&](size_t sample, int worker) {
      used[static_cast<size_t>(worker)] += lengths[sample];
    });
  }
  const int64_t all = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  int64_t most = 0;
  for (int first = 0; first < shares.workers();) {
    const DataGroup group = data_group(first, shares.workers(), copies);
    const std::vector<int64_t> loads(used.begin() + group.first, used.begin() + group.last);
    const int64_t here = std::accumulate(loads.begin(), loads.end(), int64_t{0});
    // A run may end half a record beyond the level at either side.
    const Level level = level_of(loads, all - here);
    const int64_t spread_to = here < all ? level.bytes / level.members + longest : 0;
    most =
        std::max({most, std::min(spread_to, all), *std::max_element(loads.begin(), loads.end())});
    first = group.last;
  }
  return {most};
}

StepNeeds needs_of(int64_t step, const Shares& shares, DataGroup group, int member,
                   const Holders& holders) {
  StepNeeds needs;
  needs.sends.resize(static_cast<size_t>(group.size()));
  for (int user = 0; user < group.size(); ++user) {
    const int worker = group.first + user;
    const GrainRange& range = shares.ranges[static_cast<size_t>(worker)];
    const int64_t first = step * shares.batch + range.first * shares.grain;
    const int64_t last = step * shares.batch + range.last * shares.grain;
    for (int64_t position = first; position < last; ++position) {
      const int64_t sample = stream_at(position, shares.samples, shares.seed).sample;
      const int32_t holder = holders[static_cast<size_t>(sample)];
      if (user == member) {
        needs.mine.push_back(sample);
        needs.holders.push_back(holder);
      } else if (holder == member) {
        needs.sends[static_cast<size_t>(user)].push_back(sample);
      }
    }
  }
  return needs;
}

}  // namespace convoy::data
