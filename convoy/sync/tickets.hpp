#pragma once
// Who trains on which batch, and who has to wait for whom: what the coordinator (the server of
// worker 0) knows. No messages here; shard_server.hpp brings them.
//
// A ticket is the number of a batch of the one training stream. With `stale` and `asynchronous`
// every ticket goes to one worker, whoever asks first. With `backup` a ticket is the number of a
// step, in which all take part.

#include <cstdint>
#include <optional>
#include <vector>

#include "convoy/sync/schemes.hpp"

namespace convoy::sync {

class Tickets {
 public:
  Tickets(const ServerOptions& options, int workers);

  /// Tickets [first, last) from now on, and everybody is back at clock 0.
  void begin(int64_t first, int64_t last);
  /// The next one for a worker; none: the segment is over. backup: the step that is under way, or
  /// the one after that which the worker has already.
  std::optional<int64_t> next(int worker);
  /// Hands out no more. With `backup` steps that anybody has a ticket for still take place.
  void close();
  /// The first ticket that nobody got.
  int64_t unused() const { return next_; }
  /// This worker comes no more in this segment.
  void leave(int worker) { present_[static_cast<size_t>(worker)] = false; }

  // ---- stale: a worker's clock counts the batches it is done with
  void finish(int worker) { ++clocks_[static_cast<size_t>(worker)]; }
  /// clock − (least clock of those that have not left) ≤ bound: it may pull weights for its next
  /// batch.
  bool may_start(int worker) const;
  /// Those with the least clock, for whom others wait.
  std::vector<int> slowest() const;

  // ---- backup: a worker reports that it has a step's gradient, and then learns its fate
  void report(int worker, int64_t step, bool finite);
  /// Known when enough have reported, or when too many gradients were not finite for that ever to
  /// happen. A late one's is known at once.
  std::optional<Fate> fate(int worker) const { return fates_[static_cast<size_t>(worker)]; }
  /// Steps, since the beginning, that enough workers contribute to.
  int64_t updates() const { return updates_; }

 private:
  enum class Report { none, finite, refused };

  int64_t least_clock() const;
  void decide(bool enough);

  Scheme scheme_;
  int64_t bound_;
  int backups_;
  int64_t next_ = 0;
  int64_t last_ = 0;
  std::vector<bool> present_;
  std::vector<int64_t> clocks_;

  int64_t step_ = 0;            // under way
  std::vector<int64_t> given_;  // by worker: the last step it has a ticket for
  std::vector<Report> reports_;
  std::vector<std::optional<Fate>> fates_;
  int64_t updates_ = 0;
};

}  // namespace convoy::sync
