#pragma once
// train.batch: auto. The batch with the least predicted time to the target: for each candidate the
// measured time of a step, with the grain, lanes and algorithms planned for it within memory, times
// the updates it needs by the gradient noise of the training's first steps (noise.hpp).

#include <cstdint>
#include <string>
#include <vector>

#include "convoy/base/threads.hpp"
#include "convoy/base/units.hpp"
#include "convoy/data/dataset.hpp"
#include "convoy/job/job.hpp"
#include "convoy/model/graph.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/plan/noise.hpp"
#include "convoy/plan/plan.hpp"

namespace convoy::plan {

struct BatchCandidate {
  int64_t batch = 0;
  int64_t grain = 0;
  int lanes = 0;
  Seconds step;
  Bytes memory;               ///< what training allocates
  std::string obstacle;       ///< why it cannot be; empty if it can
  double updates = 0;         ///< relative to an endless batch: 1 + noise / batch
  double time_to_target = 0;  ///< step × updates: relative, for comparing candidates
};

struct BatchChoice {
  std::vector<BatchCandidate> candidates;  ///< ascending
  int64_t batch = 0;                       ///< the chosen one
  double noise = 0;                        ///< B in the middle of the training, in samples
  NoiseGrowth growth;                      ///< what it was worked out from
  int64_t steps = 0;                       ///< of the trial
};

/// Two steps of a batch do what one of twice the batch does, with an update more: lowers the steps
/// of candidates (same grain, same lanes) that were measured to be slower than that.
void never_slower_in_a_larger_batch(std::vector<BatchCandidate>& candidates);

/// Fills in `updates` and `time_to_target` and takes the largest batch within 5 % of the least time
/// among the candidates that are possible. Throws InputError if none is.
BatchChoice choose(std::vector<BatchCandidate> candidates, double noise);

/// Measures and chooses for a job whose batch is open.
BatchChoice choose_batch(const job::Job& job, const model::Graph& graph, const data::Source& source,
                         const optim::Optimizer& optimizer, const CoreMap& cores,
                         const PlanOptions& options);

/// The table, one line per candidate.
std::vector<std::string> describe(const BatchChoice& choice);

}  // namespace convoy::plan
