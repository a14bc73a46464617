#pragma once
// Between hosts: gradients are exchanged bucket by bucket as the backward pass completes them, each
// worker updates its strips, and the next forward pass starts layer by layer as weights arrive. A
// communication thread does it all beside the lanes.
//
//   lanes          backward: bucket 0 … bucket 1 … bucket 2 | forward: bucket 2 … 1 … 0
//   communication           0: reduce, update, broadcast
//                                  2: reduce, update, broadcast     (needed first: overtakes 1)
//                                                1: …

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "convoy/base/trace.hpp"
#include "convoy/base/units.hpp"
#include "convoy/comm/choose.hpp"
#include "convoy/comm/comm_thread.hpp"
#include "convoy/comm/gate.hpp"
#include "convoy/sync/bucket_exchange.hpp"
#include "convoy/sync/bucket_tuner.hpp"
#include "convoy/sync/buckets.hpp"
#include "convoy/sync/division.hpp"
#include "convoy/sync/node_state.hpp"
#include "convoy/sync/remote_model.hpp"
#include "convoy/sync/team.hpp"
#include "convoy/sync/tree_exchange.hpp"
#include "convoy/sync/updater.hpp"

namespace convoy::sync {

struct ExchangeOptions {
  /// Sizes of buckets, ascending. Of several, the one with the shortest steps is found by trying.
  std::vector<Bytes> buckets = {{64 << 10}, {256 << 10}, {1 << 20},
                                {4 << 20},  {16 << 20},  {64 << 20}};
  /// False: gradients are exchanged when the backward pass is over, and waited for.
  bool overlap = true;
  /// Sums in the order of the tree, which gives the bits of one worker; by a given collective; or
  /// by the one that the measured links make the fastest.
  enum class Order { tree, given, fastest };
  Order order = Order::tree;
  comm::Way way = comm::Algorithm::ring;
  /// Of the communication thread, between looks; longer on slow links.
  Seconds pause{300e-6};
  /// What may be on its way from a worker at once; 0: by the measured links.
  Bytes in_flight{0};
  /// Updates the model instead of this worker; must outlive the exchange. Buckets have one size
  /// then.
  RemoteModel* remote = nullptr;
};

class Exchange {
 public:
  /// `grains` are those of a batch. Everything must outlive it.
  Exchange(const Team& team, Updater& updater, NodeState& node, int64_t grains,
           const ExchangeOptions& options, Trace* trace = nullptr);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// Null: there was nothing to choose from.
  const BucketTuner* tuner() const { return tuner_ ? &*tuner_ : nullptr; }

  /// A step begins, with the grains divided so, and this worker's report stands in the node's.
  void begin(int64_t step, double learning_rate, std::shared_ptr<const Division> division);

  // ---- lanes of this worker, in this order
  // --------------------------------------------------------
  /// Waits until the weights of floats [begin, end) have arrived.
  void await_weights(int64_t begin, int64_t end) const;
  /// A grain's loss is in the node's results, the lane's last one if `last`. Waits until gradients
  /// may be written again.
  void loss_known(bool last);
  /// Gradients of the floats before `end` are complete and, of those before `begin`, the weights
  /// are no longer needed, in this lane. `from` is where it had got to before; returns where it is
  /// now.
  struct Passed {
    size_t completed = 0;
    size_t released = 0;
  };
  Passed passed(const Passed& from, int64_t begin, int64_t end);

  // ---- the worker's main thread
  // -------------------------------------------------------------------
  /// Waits until everybody's results of the step are known.
  void await_results() const;
  /// Waits until all norms are known, and returns that of the whole gradient. Only if the updater
  /// measures.
  double await_norm();
  /// This worker's grains are done, and how fast it was stands in the node's speeds: waits until
  /// everybody's does. Nobody's new weights are complete before that, so nothing is lost by it.
  void swap_speeds();
  /// The step is over for this worker; `updated` unless something was not finite. `took` is how
  /// long the slowest worker took for the one before it, zero if there was none.
  void end(bool updated, Seconds took);
  /// Waits until all weights are here and nothing is under way.
  void settle() const;
  /// Settles, and brings the optimizer's state, of which each host has its strips, to all hosts.
  void share_states();
  /// Time during which something was under way.
  Seconds busy() const { return thread_.busy(); }

 private:
  /// A step, as tasks see it that outlive the worker's part in it.
  struct Step {
    uint64_t index = 0;  // of this exchange
    int64_t step = 0;
    double learning_rate = 0;
    std::shared_ptr<const Division> division;
    uint64_t lanes = 0;    // that have run grains when the step is over, since the beginning
    uint64_t reports = 0;  // of grains and workers of this host, likewise
  };

  void await(const std::function<bool()>& holds, const std::function<std::string()>& what) const;
  void await_sent() const;
  void cut(Bytes bucket);
  void cut_again();
  bool finite(const Step& at) const;
  bool updates(const Step& at) const;
  bool brings_weights(const Step& at) const { return options_.remote != nullptr || updates(at); }
  comm::Task update(Step at, size_t bucket);
  std::unique_ptr<BucketExchange> way_of(size_t bucket);
  void post_results();
  void post_bucket(size_t bucket);
  comm::Task exchange_bucket(Step at, size_t bucket);
  void trace(size_t bucket, const char* what, Seconds begin) const;
  comm::Task verdict(Step at);
  comm::Task norms_known(Step at);
  comm::Task weights_free(Step at, size_t bucket);
  comm::Task give(Step at, size_t bucket);
  comm::Task take(Step at, size_t bucket);
  comm::Task exchange_results(Step at);
  comm::Task exchange_norms(Step at);
  comm::Task exchange_speeds(Step at);
  comm::Task share(size_t bucket, std::span<float> state);
  template <class Visit>
  void each_chunk(size_t bucket, int node, const Visit& visit) const;
  template <class Visit>
  void each_sum(size_t bucket, const Visit& visit);
  /// What the next forward pass needs first goes first.
  int priority(size_t bucket) const { return -static_cast<int>(bucket); }
  uint64_t channels_target(const Step& at) const {
    return (at.index + 1) * static_cast<uint64_t>(team_.channels());
  }

  const Team& team_;
  Updater& updater_;
  NodeState& node_;
  int64_t grains_;
  Trace* trace_;
  ExchangeOptions options_;
  comm::LinkSpeed link_;  // if it was needed
  std::optional<BucketTuner> tuner_;
  std::vector<Bucket> buckets_;
  std::vector<std::unique_ptr<BucketExchange>> ways_;    // by bucket; none if not a channel
  std::vector<std::vector<comm::Strip>> strips_;         // by bucket and host, of this channel
  std::vector<std::unique_ptr<std::atomic<int>>> done_;  // by bucket: lanes here, in this step
  std::atomic<int> losses_{0};  // lanes here whose losses are all known, in this step
  uint64_t steps_ = 0;
  uint64_t updates_ = 0;
  Step at_;
  size_t first_piece_ = 0;  // at the remote model

  // Of the communication thread.
  std::vector<float> workspace_;
  optim::StepContext context_;
  size_t summed_ = 0;  // buckets in this step
  size_t ended_ = 0;   // buckets in this step
  std::atomic<uint64_t> contexts_{0};
  comm::Gate gate_;
  std::unique_ptr<comm::CommThread> own_thread_;  // none with a remote model
  comm::CommThread& thread_;
};

}  // namespace convoy::sync
