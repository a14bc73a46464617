#pragma once
// Ways to train that do not wait for everybody in every step, to compare with those that do
// (stepper.hpp). All train against a model that is spread over servers (model_servers.hpp);
// docs/schemes.md has their messages and costs.

#include <cstdint>

#include "convoy/base/units.hpp"
#include "convoy/sync/updater.hpp"

namespace convoy::sync {

enum class Scheme {
  stale,         ///< one update per batch of a worker; nobody gets more than `bound` ahead
  asynchronous,  ///< one update per batch of a worker; nobody waits for anybody
  backup,        ///< one update per step, of the first workers; the last `backups` are dropped
};

/// What becomes of a gradient.
enum class Fate : int64_t {
  applied,
  late,     ///< backup: the step was decided before it came
  refused,  ///< it, or its loss, was NaN or infinite (backup: that of too many workers)
};

struct ServerOptions {
  Scheme scheme = Scheme::asynchronous;
  int64_t bound = 0;  ///< stale: batches that a worker may be ahead of the slowest
  int backups = 0;    ///< backup: workers whose gradients no step waits for
  /// Of one update: with `backup` its grains are those of all gradients that make it up.
  UpdateOptions update;
  /// A worker that says nothing for so long is taken for dead; one batch must take less.
  Seconds deadline{60};
  /// Of the communication thread, between looks (comm_thread.hpp).
  Seconds pause{300e-6};
  /// Longest message; the same on all workers.
  Bytes piece{8 << 20};
};

}  // namespace convoy::sync
