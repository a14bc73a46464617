#pragma once
// Sums between the ranks of one node, straight out of each other's memory: nothing is copied, and
// no message is sent.
//
//   every rank: ready → waits for all → sums its strip of everybody's values, writes it to
//   everybody → done → waits for all
//
// A rank's strip is read and written by that rank only, so there is nothing to lock. All values are
// read once and written once, N·S in each direction for N ranks: the memory's bandwidth is the
// limit.

#include <cstdint>
#include <memory>
#include <span>

#include "convoy/comm/collectives.hpp"

namespace convoy::comm {

class SharedSum {
 public:
  /// Collective over the ranks of `node`, which are on one node: `count` values for each.
  SharedSum(Communicator& node, int64_t count);

  /// A rank's values: everybody may read them, between its turns.
  std::span<float> values(int rank) const;
  std::span<float> own() const { return values(rank_); }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// Everybody's values become the sum, added in the order of the ranks: the same bits each time.
  Task allreduce();
  /// Ends when all ranks have come here as often as this one.
  Task barrier();

  /// The sum of everybody's values in this strip, written to those ranks' values.
  void sum(const Strip& strip, std::span<const int> to) const;

  /// Bytes that a rank reads and writes.
  static Bytes moved(int ranks, int64_t count);
  static Seconds time(int ranks, int64_t count, Seconds per_byte);

 private:
  int rank_;
  int ranks_;
  int64_t count_;
  uint64_t turns_ = 0;
  std::vector<int> everybody_;
  std::unique_ptr<SharedMemory> memory_;
};

}  // namespace convoy::comm
