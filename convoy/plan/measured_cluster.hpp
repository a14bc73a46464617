#pragma once
// The cluster that a team of workers is: what each computes while all do, and what their links do.

#include "convoy/plan/cluster.hpp"
#include "convoy/plan/workload.hpp"
#include "convoy/sync/team.hpp"

namespace convoy::plan {

/// Collective; all get the same, a node for each host, speeds in those of worker 0. `own`: what was
/// measured on each worker while all measured (measure_workload, after a meeting). Links are those
/// between hosts; of a single one, what its workers can send each other.
Cluster measure_cluster(const sync::Team& team, const Workload& own);

}  // namespace convoy::plan
