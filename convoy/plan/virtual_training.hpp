#pragma once
// Training in virtual time: real gradients of a real model on real data, but groups, servers and
// their clock are simulated, so that any number of groups can be studied on one machine. The same
// seed gives the same bits.
//
// A group that begins a turn computes its gradient from the model as it is then; when its turn is
// over by the simulated clock, the gradient becomes an update of what the model has become.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/data/dataset.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/job/job.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/staleness.hpp"
#include "convoy/sync/stepper.hpp"

namespace convoy::plan {

/// How a turn's length varies.
enum class Turns {
  steady,      ///< all alike: groups take strict turns, and gradients are g − 1 updates old
  varied,      ///< log-normal, by a tenth
  memoryless,  ///< exponential: staleness is geometric, as the theory of momentum has it
};

struct VirtualSetting {
  int groups = 1;
  double momentum = 0.9;  ///< applied by the servers
  /// `momentum` is what shall be in force in all: servers begin with what the theory says, measure
  /// and correct (cluster.momentum: measured).
  bool measured = false;
  double learning_rate = 0.01;
  Seconds turn{1};  ///< of a group, on average
  Turns turns = Turns::varied;
  /// The linear layers at the end are updated at once, with the optimizer's own momentum:
  /// staleness 0 (parallel.classifier: merged).
  bool merged = false;
  int merged_layers = 0;  ///< only so many of them, the last; 0: all
};

struct VirtualPoint {
  int64_t update = 0;
  Seconds time;
  double loss = 0;  ///< of the batch, before the update
};

struct VirtualRun {
  std::vector<VirtualPoint> points;
  sync::Staleness staleness;
  double applied = 0;     ///< momentum, by the servers, in the end
  bool diverged = false;  ///< a loss was not finite; nothing after it counts

  /// Mean loss of the points from a time on; infinite if it diverged or there are none.
  double mean_loss(Seconds from) const;
};

struct VirtualOptions {
  int64_t batch = 64;
  uint64_t seed = 1;
  int threads = 1;        ///< that prepare samples
  bool decay_all = true;  ///< as train.decay_all
  const job::Augment* augment = nullptr;
};

class VirtualTraining {
 public:
  /// All must outlive it. `stepping`: lanes and cores of this machine.
  VirtualTraining(const engine::Program& program, const optim::Optimizer& optimizer,
                  const data::Source& source, const VirtualOptions& options,
                  sync::StepperOptions stepping);
  ~VirtualTraining();

  /// Where it stands between runs.
  struct State {
    std::vector<float> weights;
    std::vector<std::vector<float>> states;
    int64_t batches = 0;
    int64_t updates = 0;
    Seconds time;
  };
  State keep() const;
  void restore(const State& state);

  int64_t updates() const { return at_.updates; }
  Seconds time() const { return at_.time; }

  /// Goes on from where it stands until `stop` says so, which is asked after every update, or it
  /// diverges. What groups have under way then is dropped.
  using Stop = std::function<bool(const VirtualRun& so_far)>;
  VirtualRun run(const VirtualSetting& setting, const Stop& stop);

 private:
  class Sitting;

  const engine::Program& program_;
  const optim::Optimizer& optimizer_;
  const data::Source& source_;
  VirtualOptions options_;
  std::unique_ptr<sync::Stepper> stepper_;
  State at_;  // without the arrays
};

}  // namespace convoy::plan
