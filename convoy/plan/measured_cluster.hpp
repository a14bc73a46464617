#pragma once
// The cluster that a team of workers is: what each computes while all do, and what their links do.

#include "convoy/plan/cluster.hpp"
#include "convoy/plan/workload.hpp"
#include "convoy/sync/team.hpp"

namespace convoy::plan {

/// Collective; all get the same, one node for each worker, speeds in those of worker 0. `own`: what
/// was measured on each while all measured (measure_workload, after a meeting).
Cluster measure_cluster(const sync::Team& team, const Workload& own);

}  // namespace convoy::plan
