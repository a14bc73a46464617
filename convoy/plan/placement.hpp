#pragma once
// Where the linear layers at the end of a network are best computed by a team of workers, and how
// many groups these should form: what a step sends and takes, by the collectives' own cost formulas
// and the links as they were measured.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/comm/collectives.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/plan/step_time.hpp"

namespace convoy::plan {

/// What is known of a job before its steps are spread over workers.
struct StepFacts {
  Seconds computing;     ///< of a batch, by one worker with all its lanes
  double tail_part = 0;  ///< of that, by the linear layers at the end
  LinearTime linear;     ///< of these layers; split, each worker brings its slice of the weights
  int64_t weights = 0;   ///< of the model: arena floats
  std::optional<engine::Tail> tail;
  int64_t batch = 0;
  int64_t grain = 0;
  int lanes = 1;   ///< of a worker
  int groups = 1;  ///< that a merged classifier serves in turn, and whose slices servers update
};

/// The part of a program's arithmetic that its tail does; 0 if it has none.
double tail_part(const engine::Program& program);

/// A way to compute the linear layers (docs/classifier.md), and what it comes to.
struct Placement {
  std::string classifier = "data";  ///< data | model | hybrid | merged
  int layers = 0;                   ///< the last ones, as parallel.layers; of data: 0
  int copies = 1;                   ///< hybrid
  Bytes sent;                       ///< in a step, by the worker that sends most
  Bytes sent_in_line;               ///< of that, while lanes wait
  Seconds beside;                   ///< exchanging gradients and weights, while lanes compute
  Seconds in_line;                  ///< while lanes wait: activations, and what follows
  Seconds merged;                   ///< of that, the merged layers' arithmetic
  Seconds between;                  ///< of that, sums between copies, when a step is over
  Seconds update;                   ///< of these layers' weights, by the one who has them or each
  Seconds saved;                    ///< of computing: weights that are others' to bring from memory
  Seconds step;                     ///< predicted
};

/// One of them, on `workers` that step together.
Placement place(const StepFacts& facts, const std::string& classifier, int layers, int copies,
                int workers, const comm::LinkSpeed& link);

/// All that there are, the fastest first; of equal ones, those that keep more layers as they are.
std::vector<Placement> placements(const StepFacts& facts, int workers, const comm::LinkSpeed& link);

/// "model, the last 2 linear layers: 14.2 MiB, 1.53 s a step".
std::string describe(const Placement& placement);

/// What g groups of N/g workers come to.
struct GroupForecast {
  int groups = 1;
  Seconds turn;    ///< of a group, from batch to batch
  Seconds update;  ///< between updates of the model, of whatever group
};

/// For every g that divides the workers, 1 first. `servers`: whose links carry the model.
std::vector<GroupForecast> forecast_groups(const StepFacts& facts, int workers, int servers,
                                           const comm::LinkSpeed& link);

/// As few groups as are within a tenth of the most updates, because each update is worth less with
/// more of them (Omnivore), and no more than bring `momentum`, the total that is wanted.
int choose_groups(const std::vector<GroupForecast>& forecasts, double momentum);

}  // namespace convoy::plan
