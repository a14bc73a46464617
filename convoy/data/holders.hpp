#pragma once
// Who holds which sample, and who needs it when: pure functions of the job, so that every worker
// knows without asking what any other has and wants. docs/store.md shows how the store uses them.

#include <cstdint>
#include <span>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy::data {

/// Grains [first, last) of every batch.
struct GrainRange {
  int64_t first = 0;
  int64_t last = 0;
  bool empty() const { return first >= last; }
  int64_t size() const { return empty() ? 0 : last - first; }
  bool has(int64_t grain) const { return grain >= first && grain < last; }
  /// All are grains of a batch of `grains`.
  bool is_within(int64_t grains) const { return empty() || (first >= 0 && last <= grains); }
  bool operator==(const GrainRange&) const = default;
};

/// How the training stream (prepare.hpp) falls to the workers: step s takes the positions
/// [s·batch, (s + 1)·batch), its grain g those from s·batch + g·grain on.
struct Shares {
  int64_t samples = 0;
  int64_t batch = 0;
  int64_t grain = 0;
  uint64_t seed = 0;
  /// By worker; together they are all grains of a batch, each once. Any may be empty.
  std::vector<GrainRange> ranges;

  int workers() const { return static_cast<int>(ranges.size()); }
  /// Throws std::logic_error unless grains and ranges fit together.
  void check() const;
  /// The worker of each grain of a batch.
  std::vector<int> worker_of_grains() const;
  /// The epoch in which a step begins.
  int64_t epoch(int64_t step) const { return step * batch / samples; }
};

/// Workers [first, last), which hold one copy of all samples together. Within a group, workers are
/// called members and counted from 0.
struct DataGroup {
  int first = 0;
  int last = 0;
  int size() const { return last - first; }
  bool has(int worker) const { return worker >= first && worker < last; }
  bool operator==(const DataGroup&) const = default;
};
/// The group of `worker` if `workers` are cut into `copies` groups as equal as can be.
DataGroup data_group(int worker, int workers, int copies);

/// The member that holds each sample.
using Holders = std::vector<int32_t>;

/// To each member a contiguous run of samples, with as many bytes as the others' as can be.
Holders runs(std::span<const int64_t> lengths, int members);

/// Each sample is with the member that uses it in `epoch`. Those that another group uses go to the
/// members with the fewest bytes, in contiguous runs, so that most of them stay where they are from
/// one epoch to another.
Holders of_epoch(std::span<const int64_t> lengths, const Shares& shares, DataGroup group,
                 int64_t epoch);

/// Records change hands every `every` epochs (0: never), before the first step that begins in such
/// an epoch; which of these times a step comes after. 0: the time of runs().
int64_t era_of(int64_t step, const Shares& shares, int64_t every);
/// The holders in that era: runs(), or of_epoch() for its first epoch.
Holders of_era(std::span<const int64_t> lengths, const Shares& shares, DataGroup group, int64_t era,
               int64_t every);

/// The most bytes that a worker of any group holds in that era, or up to one record more, because
/// it is found without making the maps.
Bytes most_held(std::span<const int64_t> lengths, const Shares& shares, int copies, int64_t era,
                int64_t every);

/// What one step means for one member.
struct StepNeeds {
  std::vector<int64_t> mine;                ///< samples it trains on, in the order of the stream
  std::vector<int32_t> holders;             ///< of each of these
  std::vector<std::vector<int64_t>> sends;  ///< samples it sends to each other member, in order
};
StepNeeds needs_of(int64_t step, const Shares& shares, DataGroup group, int member,
                   const Holders& holders);

}  // namespace convoy::data
