#pragma once
// The server of a worker: listens to every client and answers from its shard; that of worker 0 is
// the coordinator, too. It lives on the communication thread that it shares with the client of the
// same worker, which calls it without messages.
//
//   client                                   server
//   Call ─────────────────────────────────►  listens, one task per client
//   push: norms, gradient in pieces ───────► waits for what the scheme says, does it
//   ◄─────────────────────────────── Answer
//   ◄────────── pull: the weights in pieces
//
// A client makes one call at a time to a server, so a desk for each client is all there is.

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "convoy/base/memory.hpp"
#include "convoy/comm/comm_thread.hpp"
#include "convoy/comm/communicator.hpp"
#include "convoy/sync/model_shard.hpp"
#include "convoy/sync/team.hpp"
#include "convoy/sync/tickets.hpp"

namespace convoy::sync {

/// What a client wants of a server.
struct Call {
  enum class Kind : int64_t {
    // of the coordinator
    ticket,    ///< answer: a ticket, or kNone
    start,     ///< stale: answered when it may begin with a batch
    finished,  ///< stale: it is done with a batch; no answer
    report,    ///< backup: it has the gradient of `step`; answered with its fate
    close,     ///< no further tickets for anybody
    // of any server
    pull,   ///< answer: the version of the weights that follow, `version` at least
    push,   ///< answered when the update is made
    leave,  ///< it calls no more in this segment; no answer
  };
  static constexpr int64_t kNone = -1;

  Kind kind = Kind::ticket;
  int64_t step = 0;
  int64_t version = 0;  ///< push: of the weights that the gradient was computed from
  int64_t finite = 1;   ///< report
  double learning_rate = 0;
  double gradient_scale = 1;

  bool answered() const { return kind != Kind::finished && kind != Kind::leave; }
};

struct Answer {
  int64_t value = 0;
  int64_t updates = 0;  ///< ticket and report, with `backup`: those that the next pull has to see
};

/// What goes along with a call or its answer; each may be empty.
struct Parcel {
  std::span<const float> gradient;
  std::span<const double> norms;  ///< of the gradient by tensor, then of the weights
  std::span<float> weights;       ///< where pulled ones go
};

/// Tags of the servers' communicator.
inline constexpr int kCallTag = 1;
inline constexpr int kGradientTag = 2;
inline constexpr int kAnswerTag = 3;
inline constexpr int kWeightsTag = 4;
inline constexpr int kModelTag = 5;

/// Messages of at most `longest`, in order.
void send_pieces(comm::Communicator& c, int to, int tag, std::span<const std::byte> bytes,
                 Bytes longest, comm::Requests& requests);
void receive_pieces(comm::Communicator& c, int from, int tag, std::span<std::byte> bytes,
                    Bytes longest, comm::Requests& requests);

class ShardServer {
 public:
  /// `comm`: null for a worker alone. `tickets`: null but for the coordinator. `norms`: how many
  /// come with a push. Everything must outlive it; all but begin() is for the thread's tasks.
  ShardServer(const Team& team, comm::Communicator* comm, comm::CommThread& thread,
              ModelShard& shard, Tickets* tickets, size_t norms, Bytes piece);

  /// A segment: listens to all clients until they leave.
  void begin();
  /// From any thread: all have left.
  bool over() const { return left_.load(std::memory_order_acquire) == team_.size(); }

  /// Does what a client wants; all in the parcel must stay until it has.
  comm::Task answer(int client, Call call, Answer& to, Parcel parcel);

 private:
  /// Of a client: what it calls for, and room for its gradient or for the weights it pulls, which
  /// the next update must not change while they are on their way.
  struct Desk {
    Call call;
    Answer answer;
    AlignedBuffer strip;
    std::vector<double> norms;
  };

  void listen(int client);
  comm::Task serve(int client);
  comm::Task receive_gradient(int client);
  comm::Task start(int client);
  comm::Task report(int client, Call call, Answer& to);
  comm::Task give(Call call, Answer& to, std::span<float> weights);
  comm::Task take(int client, Call call, Answer& to, Parcel parcel);

  const Team& team_;
  comm::Communicator* comm_;
  comm::CommThread& thread_;
  ModelShard& shard_;
  Tickets* tickets_;
  Bytes piece_;
  std::vector<std::unique_ptr<Desk>> desks_;  // none for this worker's own client
  std::atomic<int> left_{0};
};

}  // namespace convoy::sync
