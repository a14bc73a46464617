#pragma once
// Who trains together: the workers of a job, on which hosts they are, and which grains each runs.
//
//   host a: ranks 0, 1     host b: ranks 2, 3      locals 2, nodes 2
//   across: ranks 0 and 2; ranks 1 and 3           workers of the same place on every host
//
// Workers of one host share memory (NodeMemory) and meet in it; sums between hosts go `across`.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convoy/base/memory.hpp"
#include "convoy/base/units.hpp"
#include "convoy/comm/communicator.hpp"
#include "convoy/sync/gradient_tree.hpp"

namespace convoy::sync {

class Team {
 public:
  /// One worker, alone.
  Team() = default;
  static const Team& alone();
  /// Collective over all ranks of `world`, which must outlive it. No wait lasts longer than
  /// `deadline`. With `exchanges`, workers of a single host are channels, too: what is exchanged
  /// with others than the team's workers goes the same way as between hosts.
  Team(comm::Communicator& world, Seconds deadline, bool exchanges = false);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(order_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  /// This worker's host, and its place among that host's workers.
  int node() const { return node_; }
  int local() const { return local_; }
  int locals() const { return static_cast<int>(members_[static_cast<size_t>(node_)].size()); }
  /// The ranks on host `node`, ascending.
  const std::vector<int>& members(int node) const { return members_[static_cast<size_t>(node)]; }
  /// How many workers of each host take part in sums between hosts: as many as every host has.
  int channels() const { return channels_; }
  Seconds deadline() const { return deadline_; }
  /// For what may take one worker long while the others wait: planning, reading and writing files.
  Seconds patience() const { return {10 * deadline_.value}; }
  void set_deadline(Seconds deadline);
  /// "worker 3 (host b)".
  std::string name(int rank) const;

  /// Null for a worker alone.
  comm::Communicator* world() const { return world_; }
  /// The workers of this host; null if there are no others.
  comm::Communicator* node_comm() const { return node_comm_.get(); }
  /// The workers of this place on every host, by host; null if there is one host only (and the team
  /// does not exchange with others) or this worker is not among the `channels`.
  comm::Communicator* across() const { return across_.get(); }

  /// The grains of each rank. `shares` says how many, by rank; empty: as equal as can be. Workers
  /// of one host get neighbouring grains, so that their sums are whole subtrees where possible.
  std::vector<GrainRange> ranges(int64_t grains, std::span<const int64_t> shares = {}) const;
  /// The grains of the workers of host `node`, given everybody's.
  GrainRange node_range(const std::vector<GrainRange>& ranges, int node) const;

  /// Everybody's bytes, by rank; collective. All bring the same number. `what` names the wait.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> own,
                                             const std::string& what) const {
    return gather(own, what, deadline_);
  }
  /// Everybody's number, by rank; collective.
  std::vector<int64_t> gather_numbers(int64_t own, const std::string& what) const;
  /// Everybody's text, by rank; collective. Waits with patience().
  std::vector<std::string> gather_text(const std::string& own, const std::string& what) const;
  /// The bytes of rank 0 for everybody; collective. The others' vector is resized.
  void from_first(std::vector<std::byte>& bytes, const std::string& what) const;
  std::string text_from_first(const std::string& own, const std::string& what) const;
  /// The same over the ranks of `c`, into memory that everybody has, `bytes` long.
  void from_first(comm::Communicator& c, std::span<std::byte> bytes, const std::string& what) const;
  /// Returns when all workers have come here.
  void meet(const std::string& what) const;

 private:
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> own,
                                             const std::string& what, Seconds patience) const;

  comm::Communicator* world_ = nullptr;
  std::unique_ptr<comm::Communicator> node_comm_;
  std::unique_ptr<comm::Communicator> across_;
  int rank_ = 0;
  int node_ = 0;
  int local_ = 0;
  int channels_ = 1;
  std::vector<std::vector<int>> members_ = {{0}};
  std::vector<int> order_ = {0};  // ranks, host by host
  Seconds deadline_{60};
};

/// A zeroed block that all workers of a host see.
class NodeMemory {
 public:
  /// Collective over the workers of the host.
  NodeMemory(const Team& team, Bytes size);
  std::byte* data() const { return data_; }

 private:
  AlignedBuffer own_;
  std::unique_ptr<comm::SharedMemory> shared_;
  std::byte* data_ = nullptr;
};

/// Cuts a block into arrays, each on a cache line of its own. Without a block it only counts.
class Carver {
 public:
  explicit Carver(std::byte* block = nullptr) : block_(block) {}
  template <class T>
  std::span<T> take(int64_t count) {
    constexpr int64_t kLine = 64;
    const int64_t at = used_;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + kLine - 1) / kLine * kLine;
    if (block_ == nullptr) return {};
    return {reinterpret_cast<T*>(block_ + at), static_cast<size_t>(count)};
  }
  Bytes used() const { return {used_}; }

 private:
  std::byte* block_;
  int64_t used_ = 0;
};

/// A number in memory that several workers see; only ever grows.
using Counter = std::atomic<uint64_t>;
static_assert(Counter::is_always_lock_free, "it works between processes");

/// Waits until `holds`, which other threads or workers bring about; throws comm::TimeoutError that
/// says `what()` is missing after `deadline`. Eager at first, then it leaves the core to others.
void await(const std::function<bool()>& holds, Seconds deadline,
           const std::function<std::string()>& what);

}  // namespace convoy::sync
