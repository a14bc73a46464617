#pragma once
// A server of groups: owns a shard of the model and updates it piece by piece, as the gradients of
// buckets come in from any group, and answers each with the piece's new weights.
//
//   client (a worker's channel of its group)      server
//   Push, gradient of a piece ──────────────────► updates the piece
//   ◄───────────────────────── Pull, new weights of the piece
//
// A line is a client's piece of one bucket, which is of one server: one exchange at a time goes
// over it, again and again. Lines are served side by side by tasks of one communication thread.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "convoy/base/memory.hpp"
#include "convoy/comm/collectives.hpp"
#include "convoy/comm/comm_thread.hpp"
#include "convoy/comm/communicator.hpp"
#include "convoy/comm/turnstile.hpp"
#include "convoy/optim/asynchrony.hpp"
#include "convoy/sync/model_shard.hpp"
#include "convoy/sync/team.hpp"

namespace convoy::sync {

/// Before a gradient.
struct Push {
  enum class Kind : int64_t {
    gradient,  ///< norms, if there are any, and the piece's gradient follow
    refused,   ///< the group's step was not finite; nothing follows
    leave,     ///< no more in this segment; nothing follows, and nothing comes back
  };
  Kind kind = Kind::gradient;
  int64_t version = 0;  ///< of the weights that it was computed from
  int64_t step = 0;
  double learning_rate = 0;
  double gradient_scale = 1;
  double momentum = 0;
};

/// Before the new weights.
struct Pull {
  int64_t version = 0;
  int64_t applied = 0;
};

/// Tags of a client's line of that number.
inline int push_tag(size_t line) {
  return 16 + 2 * static_cast<int>(line);
}
inline int pull_tag(size_t line) {
  return push_tag(line) + 1;
}

/// Pieces that are on their way at once between a client and a server, each way: one that is sent
/// while the other waits for its receiver. More would only arrive later, all at once.
constexpr int kInTurn = 2;

struct Line {
  int client = 0;
  size_t number = 0;  ///< among the client's, to all servers
  comm::Strip floats;
};

class ShardLines {
 public:
  struct Counts {
    int64_t applied = 0;  ///< pieces
    int64_t refused = 0;
    Staleness staleness;
  };

  /// `norms`: how many come with a gradient. `servers`: so many clients, and one, push at once:
  /// each has its link to share between all servers, and one more is there when another is done.
  /// All must outlive it.
  ShardLines(const Team& team, comm::Communicator& comm, comm::CommThread& thread,
             ModelShard& shard, size_t norms, int servers);

  /// Once, outside segments.
  void set_lines(const std::vector<Line>& lines);
  /// A segment: serves every line until its client leaves.
  void begin();
  /// From any thread: all have left.
  bool over() const { return left_.load(std::memory_order_acquire) == lines_.size(); }
  /// Outside segments: what came to pass since the last call.
  Counts take_counts();

  /// Measures the momentum in force from now on, in updates of this shard.
  void watch_momentum();
  /// Of the thread's tasks.
  std::optional<double> momentum() const;

 private:
  struct Desk {
    Line line;
    Push push;
    Pull pull;
    std::vector<double> norms;
    AlignedBuffer floats;  // a gradient, then the weights that go back
  };
  /// A chunk whose movements are measured.
  struct Watched {
    size_t chunk = 0;
    optim::MomentumMeter meter;
  };

  void listen(size_t index);
  comm::Task serve(size_t index);
  comm::Task receive_gradient(Desk& desk);
  bool apply(Desk& desk);
  void watch(const Desk& desk);

  const Team& team_;
  comm::Communicator& comm_;
  comm::CommThread& thread_;
  ModelShard& shard_;
  size_t norms_;
  comm::ClientTurns pushing_;
  std::vector<comm::Turnstile> turns_;  // by client, of weights that go back
  std::vector<std::unique_ptr<Desk>> lines_;
  std::vector<Watched> watched_;
  std::atomic<size_t> left_{0};
  Counts counts_;
};

}  // namespace convoy::sync
