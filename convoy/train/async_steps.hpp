#pragma once
// Trainings whose workers do not wait for everybody in every step (sync::Scheme): each takes the
// next batch of the one training stream, or its part of a step, pulls weights, and pushes the
// gradient to the servers.

#include <cstdint>
#include <functional>
#include <string>

#include "convoy/base/memory.hpp"
#include "convoy/sync/model_servers.hpp"
#include "convoy/sync/stepper.hpp"
#include "convoy/sync/team.hpp"
#include "convoy/train/feeding.hpp"
#include "convoy/train/trainer.hpp"

namespace convoy::train {

/// True for the modes stale, asynchronous and backup of several workers.
bool is_asynchronous(const job::Sync& sync, int workers);

/// What a worker computes by itself in these modes. Refuses a batch that cannot be parted so.
int64_t batch_of_worker(const job::Sync& sync, const plan::Plan& plan, int workers);

class AsyncSteps {
 public:
  /// Collective. `stepper` is of this worker alone, and of worker 0 has the model.
  AsyncSteps(const Prepared& prepared, const sync::Team& team, sync::Stepper& stepper,
             Feeding& feeding);

  /// Trains on the steps [first, last) together with the others; collective. Then the stepper has
  /// the whole model.
  sync::SegmentEnd run(int64_t first, int64_t last, const SegmentCalls& calls);

  /// "updates were 1.03 steps behind on average, at most 5".
  std::string describe() const;

 private:
  int64_t stream_step(int64_t ticket) const;
  void want(int64_t ticket);
  sync::StepResult compute(int64_t ticket);

  const sync::Team& team_;
  sync::Stepper& stepper_;
  Feeding& feeding_;
  sync::ServerOptions options_;
  sync::ModelServers servers_;
  AlignedBuffer gradient_;
  int64_t late_ = 0;
  int64_t refused_ = 0;
};

}  // namespace convoy::train
