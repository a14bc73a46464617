#pragma once
// A model that workers train without waiting for all others in every step (schemes.hpp). Every
// worker runs a server, which owns a shard of the weights and of the optimizer's state, beside its
// client, by which it trains: it takes a ticket (the number of a batch), pulls the newest weights
// of all shards, computes the batch's gradient by itself, and pushes it.
//
//   worker 0: client ─┬─ pull, push ─► server 0: shard 0, and tickets
//   worker 1: client ─┼─ pull, push ─► server 1: shard 1
//   worker 2: client ─┴─ pull, push ─► server 2: shard 2          (every client with every server)
//
// Training goes by segments of tickets; between them nothing is under way, and everybody has the
// whole model. What to call, and in which order:
//
//   ModelServers servers(team, program, optimizer, options);   // collective
//   servers.load(weights, states);                              // collective
//   servers.begin_segment(first, last);                         // collective
//   while (const auto ticket = servers.ticket()) {              // each worker by itself
//     servers.pull(weights);
//     …
//     servers.push({*ticket, learning_rate, loss}, gradient);
//   }
//   const SegmentEnd end = servers.end_segment(weights, states);  // collective
//
// To fetch samples ahead, ticket() may be called once more before the present one is pushed. Every
// ticket is pushed, in the order in which they came, and pulled for before that. A segment is left
// when ticket() has said that there are no more, soon after; close() makes it say so.
//
// A pull sees every shard at one version, but shards may differ: a push that is under way may have
// reached one and not another. With `backup`, and with one worker, they never do.
//
// Clipping and LARS need norms of the whole gradient. A worker measures its own, and the weights it
// pulled, and sends them along. With `backup` the gradient is a mean that nobody has as a whole, so
// there they are refused.
//
// One thread of a worker at a time may call. What is thrown ends it: it is of no use afterwards.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convoy/comm/comm_thread.hpp"
#include "convoy/comm/communicator.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/model_shard.hpp"
#include "convoy/sync/schemes.hpp"
#include "convoy/sync/shard_server.hpp"
#include "convoy/sync/staleness.hpp"
#include "convoy/sync/team.hpp"
#include "convoy/sync/tickets.hpp"
#include "convoy/sync/updater.hpp"

namespace convoy::sync {

/// What a segment came to; the same for all workers.
struct SegmentEnd {
  int64_t last = 0;     ///< tickets from the segment's first to before this one were handed out
  int64_t pushes = 0;   ///< gradients that became part of an update
  int64_t updates = 0;  ///< of every shard
  int64_t late = 0;
  int64_t refused = 0;
  double loss = 0;      ///< mean over those that became part of an update
  Staleness staleness;  ///< of all shards together: `pushes` for each
};

/// All that messages depend on.
struct ServerLayout {
  Scheme scheme = Scheme::asynchronous;
  comm::Strips shards;  ///< of the arena, by worker
  Bytes piece;
  size_t norms = 0;   ///< sent along with a gradient
  size_t arrays = 1;  ///< weights and states
};

class ModelServers {
 public:
  /// Collective over the team; all must outlive it. Throws InputError for what a scheme cannot do.
  ModelServers(const Team& team, const engine::Program& program, const optim::Optimizer& optimizer,
               const ServerOptions& options);
  ~ModelServers();

  using States = std::vector<std::span<float>>;

  /// Collective, outside segments: worker 0's arenas become the model. Nobody else's are read.
  void load(std::span<const float> weights, const States& states);

  /// Collective. All say the same; waits for the others with the team's patience().
  void begin_segment(int64_t first, int64_t last);
  /// This worker's next batch; none: there are no more in this segment. backup: the next step, in
  /// which this worker computes its part; steps may be left out by those who were late.
  std::optional<int64_t> ticket();
  /// The newest weights of all shards. Waits where a scheme says so: `stale` until the bound
  /// allows to begin with the batch, `backup` until the last step's update is made.
  void pull(std::span<float> weights);

  struct Push {
    int64_t ticket = 0;  ///< the optimizer's step, too
    double learning_rate = 0;
    double loss = 0;  ///< mean over the gradient's samples
  };
  /// The mean gradient of a batch (backup: of this worker's part of it) as the tree of grains sums
  /// it, scaled by 1 / samples; running statistics are sums over grains. Returns when all shards
  /// are updated. `late`: a ticket that was taken early is void, too.
  Fate push(const Push& push, std::span<const float> gradient);
  /// Norm of the last gradient pushed; only measured for clipping, LARS and where options say so.
  double gradient_norm() const;
  /// No further tickets for anybody in this segment. Those handed out are still trained on.
  void close();

  /// Collective: when everybody has left and every push was applied (counts at both ends are
  /// compared; throws Error), brings the whole model to all.
  SegmentEnd end_segment(std::span<float> weights, const States& states);

  /// Since the beginning, up to the last end of a segment, of all shards.
  const Staleness& staleness() const { return staleness_; }

  const ServerLayout& layout() const { return layout_; }
  static ServerLayout layout(const engine::Program& program, const optim::Optimizer& optimizer,
                             const ServerOptions& options, int workers);
  /// What worker `from` sends for one batch of worker `worker`, from ticket to update: as its
  /// client if they are the same, else as its server.
  static comm::Traffic traffic(const ServerLayout& layout, int from, int worker);
  /// What it sends beyond that in every segment.
  static comm::Traffic segment_traffic(const ServerLayout& layout, int from);
  /// Outside segments: what this worker has sent since the beginning.
  comm::Traffic sent() const { return comm_ ? comm_->sent() : comm::Traffic{}; }

 private:
  struct Counts;

  void run(const std::string& what, const std::function<comm::Task()>& make);
  void await(const std::function<bool()>& holds);
  Answer ask(Call call, const std::string& what);
  comm::Task call_one(int server, Call call, Answer& answer, Parcel parcel);
  comm::Task call_all(Call call, std::span<float> weights, std::span<const float> gradient);
  comm::Task scatter(std::vector<std::span<const float>> model);
  comm::Task collect(std::vector<std::span<float>> model);

  bool finite(std::span<const float> gradient) const;
  void measure(std::span<const float> values, bool parameters_only, std::span<double> norm2) const;
  Fate fate(const Push& push, bool finite);
  void send(const Push& push, std::span<const float> gradient);
  SegmentEnd add_up(const std::vector<Counts>& all) const;

  const Team& team_;
  const engine::Program& program_;
  ServerOptions options_;
  ServerLayout layout_;
  std::vector<Chunk> chunks_;

  // Of the client.
  std::vector<double> gradient_norm2_, weight_norm2_;  // by chunk
  std::unique_ptr<Updater> norms_;                     // adds them up; null: nothing is measured
  std::vector<double> sent_norms_;
  Answer answer_;                  // of the coordinator
  std::vector<Answer> answers_;    // by shard
  std::vector<int64_t> versions_;  // pulled, by shard
  int64_t needed_ = 0;             // backup: updates that the next pull must see
  std::deque<int64_t> held_;       // tickets
  bool pulled_ = false;
  bool over_ = true;  // there are no more tickets

  // Of the segment.
  int64_t pushes_ = 0;
  int64_t late_ = 0;
  int64_t refused_ = 0;
  double losses_ = 0;
  int64_t version_before_ = 0;

  Staleness staleness_;
  std::unique_ptr<comm::Communicator> comm_;  // null for a worker alone
  ModelShard shard_;
  std::unique_ptr<Tickets> tickets_;  // only the coordinator's
  std::unique_ptr<comm::CommThread> thread_;
  std::unique_ptr<ShardServer> server_;
};

}  // namespace convoy::sync
