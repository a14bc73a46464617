#pragma once
// Sums over several nodes with several ranks each: in shared memory within a node, by messages
// between nodes. Each value crosses the network once per node, not once per rank.
//
//   node a: rank 0 ┐ shared  strip 0 ◄── any algorithm ──► strip 0  shared ┌ rank 2  node b
//           rank 1 ┘ memory  strip 1 ◄── any algorithm ──► strip 1  memory ├ rank 3
//                                                                          └ rank 4
//
//   1. every rank: ready → waits for its node
//   2. with m the least ranks on any node, local rank j < m sums strip j of its node's values,
//   3. sums that over the ranks with the same j on the other nodes, and writes it to its node
//   4. done → waits for its node

#include <memory>

#include "convoy/comm/algorithm.hpp"
#include "convoy/comm/shared.hpp"

namespace convoy::comm {

class TwoLevelSum {
 public:
  /// Collective over all ranks of `c`: `count` values for each. Ranks with the same host name are a
  /// node.
  TwoLevelSum(Communicator& c, int64_t count);

  /// This rank's values, in memory that its node sees.
  std::span<float> own() const { return node_sum_->own(); }
  int nodes() const { return nodes_; }
  /// How many ranks of each node send and receive.
  int senders() const { return senders_; }
  /// Those that sum this rank's strip, one of each node; null on ranks that have none.
  Communicator* between() { return between_.get(); }

  /// Everybody's values become the sum; by `way` between nodes.
  Task allreduce(int tag, Way way);

  /// The strips of one node go through one link together.
  static Seconds time(int nodes, int ranks_per_node, int64_t count, const Way& way,
                      const LinkSpeed& link, Seconds memory_per_byte);

 private:
  int nodes_ = 0;
  int senders_ = 0;
  Strip strip_;
  std::vector<int> others_;  // of this node
  std::unique_ptr<Communicator> node_;
  std::unique_ptr<Communicator> between_;
  std::unique_ptr<SharedSum> node_sum_;
};

}  // namespace convoy::comm
