#pragma once
// The training loop: steps, evaluations, checkpoints, events, and stopping in order.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "convoy/base/units.hpp"
#include "convoy/data/dataset.hpp"
#include "convoy/data/pack.hpp"
#include "convoy/job/job.hpp"
#include "convoy/model/graph.hpp"
#include "convoy/plan/plan.hpp"
#include "convoy/plan/store_plan.hpp"
#include "convoy/plan/workload.hpp"
#include "convoy/sync/team.hpp"
#include "convoy/train/run_folder.hpp"
#include "convoy/train/spreading.hpp"

namespace convoy::train {

/// Everything a job names, opened: the data set, the graph built for it, the plan.
struct Prepared {
  job::Job job;  ///< resolved: paths absolute
  data::Source source;
  model::Graph graph;
  std::unique_ptr<optim::Optimizer> optimizer;
  plan::Planned planned;
  std::vector<std::string>
      batch_table;        ///< what the batch was chosen from, if the job left it open
  plan::StorePlan store;  ///< of packed samples
  /// What the job says of groups and the classifier; `job` has what was decided where it is auto.
  job::Cluster asked_cluster;
  job::Parallel asked_parallel;
  Spread spread;  ///< what was decided about them
};

/// What preparing a job tells about itself.
struct Preparing {
  plan::PlanOptions planning;
  /// While a folder of images is packed, by worker 0.
  std::function<void(const data::PackStanding&)> packing = nullptr;
};

/// Opens data and model of a job and plans it; packs a folder of images first. Refuses data whose
/// shape or number of classes does not fit the model. Collective: all workers must have the same
/// job and data, or all refuse; the first one's plan is everybody's, but for the lanes, which are
/// by each worker's cores.
Prepared prepare_job(job::Job job, const Preparing& options = {},
                     const sync::Team& team = sync::Team::alone());

/// Worker 0 plans, the others take over its plan for what their job leaves open, and plan the rest
/// for their own cores; collective. `plan_here` plans `job` as it then is.
using PlanHere =
    std::function<plan::Planned(const CoreMap& cores, const plan::PlanOptions& options)>;
plan::Planned plan_together(const sync::Team& team, job::Job& job, plan::PlanOptions options,
                            const PlanHere& plan_here);

/// Fixes what the job leaves open of batch, grain, algorithms and threads per lane as the plan of a
/// run has it, wherever it goes on: they are part of the arithmetic, while the number of lanes,
/// from which a plan derives them, is not.
void keep_plan(job::Job& job, const std::filesystem::path& plan);

/// What a step of it is made of, measured on this worker: computing, update, preparing samples.
plan::Workload measure_workload(const Prepared& prepared);

/// How the stepper of a worker is to be made.
sync::StepperOptions stepper_options(const Prepared& prepared);

/// The graph a job's model asks for, with the data's shape and classes where it is silent.
model::Graph build_graph(const job::Job& job, const data::Source& source);

/// Evaluates every sample of `set` exactly once.
sync::EvalResult evaluate(sync::Stepper& stepper, const data::Source& source,
                          const data::Dataset& set, int64_t grain);
/// Where not all workers share one stepper: those of each evaluate a part.
struct EvalPart {
  const sync::Team* team = nullptr;  ///< all workers
  int part = 0;
  int parts = 1;
  bool counts = true;  ///< of those who share a stepper, one's result counts
};
/// Evaluates the test set. `part`: null where all share one stepper.
sync::EvalResult evaluate_together(sync::Stepper& stepper, const data::Source& source,
                                   int64_t grain, const EvalPart* part);

enum class Ending { finished, target, early, max_steps, max_time, signal };
std::string to_string(Ending ending);

struct Summary {
  Ending ending = Ending::finished;
  int signal = 0;     ///< that stopped it
  int64_t steps = 0;  ///< updates done in all sittings
  double epochs = 0;
  Seconds elapsed;                       ///< of this sitting, evaluations included
  double images_per_second = 0;          ///< of the training steps of this sitting
  std::optional<sync::EvalResult> last;  ///< last evaluation of the test set
  double best_accuracy = 0;
  int64_t best_step = 0;
  Bytes peak;                  ///< resident memory, measured
  Seconds waited;              ///< time lanes spent waiting for data, added up
  double waited_part = 0;      ///< of the lanes' time in training steps
  int64_t bad = 0;             ///< damaged samples that this worker left out
  Seconds exchanging;          ///< time during which something was exchanged with other hosts
  Seconds waited_for_weights;  ///< of it, what the lanes spent waiting
  std::string scheme;          ///< of modes that do not wait for everybody: what that came to
};

struct TrainOptions {
  bool resume = false;      ///< go on from the run's last checkpoint
  std::FILE* out = stdout;  ///< where this worker shows its progress
  bool json = false;
  /// Steps of this sitting, [first, last), that are written to the run's trace.json.
  std::optional<std::pair<int64_t, int64_t>> trace = std::nullopt;
  /// Set to a signal's number to make training save and stop after the step it is in.
  const std::atomic<int>* stop = nullptr;
  /// Makes workers as slow as a trace says (sync::Replay); empty: as fast as they are.
  std::string replay = {};
};

/// Trains until the job's goal, a limit or `stop` of any worker. A loss that is not finite throws
/// Error with the step; the checkpoints before it stay. Collective; only worker 0 has a `folder`
/// (the others give null) and writes to it.
Summary train(Prepared& prepared, RunFolder* folder, const TrainOptions& options,
              const sync::Team& team = sync::Team::alone());

}  // namespace convoy::train
