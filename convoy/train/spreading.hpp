#pragma once
// What a job leaves open about how it is spread over workers: groups, servers, and where the linear
// layers at the end are computed. Decided from the measured links and the measured computing.

#include <string>
#include <vector>

#include "convoy/job/job.hpp"
#include "convoy/plan/placement.hpp"
#include "convoy/plan/plan.hpp"
#include "convoy/sync/team.hpp"

namespace convoy::train {

/// True if `workers` workers need decide_spread.
bool leaves_spread_open(const job::Job& job, int workers);

/// What was decided, and from what; of the first worker.
struct Spread {
  std::vector<std::string> reasons;         ///< a line for each decision
  std::vector<plan::Placement> placements;  ///< of the classifier, if that was open; the best first
};

/// Writes into the job what it leaves open. Collective: links are measured by all, the first worker
/// decides. `planned`: of the job as if its groups were 1, with the predicted time of a step.
Spread decide_spread(job::Job& job, const plan::Planned& planned, const sync::Team& team);

}  // namespace convoy::train
