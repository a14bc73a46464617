#pragma once
// Everything that the workers of a host see of each other: the model, the gradients' partial sums,
// and the counters by which they wait for one another. One block of memory (team.hpp).

#include <cstdint>
#include <span>
#include <vector>

#include "convoy/engine/program.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/division.hpp"
#include "convoy/sync/reports.hpp"
#include "convoy/sync/team.hpp"
#include "convoy/sync/updater.hpp"

namespace convoy::sync {

/// What a worker tells all others in every step.
struct Report {
  int64_t vote = 0;   ///< the largest is everybody's (to stop, say)
  Seconds last_step;  ///< from the beginning of the one before; zero: there was none
};

struct NodeState {
  std::span<Counter> arrivals;   ///< by local worker: meetings it came to
  std::span<Counter> completed;  ///< by bucket: lanes whose gradients are complete
  std::span<Counter> released;   ///< by bucket: lanes that are done with the weights
  std::span<Counter> ready;      ///< by bucket: channels that brought new weights
  std::span<Counter> claimed;    ///< by preparation: units that somebody makes
  std::span<Counter> made;       ///< by preparation: units that are made
  std::span<Counter> reported;   ///< [0]: grains whose loss is known, and workers' reports
  std::span<Counter> agreed;     ///< [0]: steps whose results are known from all hosts
  std::span<Counter> measured;   ///< [0]: channels that know all norms
  std::span<Counter> finished;   ///< [0]: channels that are done with a step
  std::span<Counter> spoken;     ///< [0]: workers that said how fast they were
  std::span<Counter> informed;   ///< [0]: steps of which that is known from all hosts
  /// Of two steps in turn: a fast worker may be a step ahead of one that still reads.
  std::span<engine::GrainResult> results[2];  ///< by grain of the batch
  std::span<Report> reports[2];               ///< by rank
  std::span<WorkerReport> speeds[2];          ///< by rank, at the end of the step
  std::span<double> grain_norm2;              ///< by grain, of what it adds to the batch's gradient
  ModelArrays model;
  std::span<float> prepared;
  std::vector<std::span<float>> slots;  ///< by lane of the host: its partial sums

  /// Lays it out; with an empty carver it only counts. `lane_slots`: by lane of the host, how many
  /// partial sums there is room for. Memory that nobody writes to is not taken from the machine.
  NodeState(Carver& carver, const engine::Program& program, const optim::Optimizer& optimizer,
            std::span<const int64_t> lane_slots, int workers, int locals, int64_t grains);

  /// What the lanes of the host hold when all grains are done.
  std::vector<HeldSum> held(const LaneTable& lanes, int64_t arena) const;
};

}  // namespace convoy::sync
