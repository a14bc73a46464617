#pragma once
// How long a step takes in a configuration: a small simulation of one step after the other, of what
// lanes compute, what links carry meanwhile, and who waits for what. The collectives' own formulas
// say how long a message takes; what is hidden behind computing follows from the simulation.
//
//   lanes    forward 0 1 2 … │ linear layers │ backward … 2 1 0 │ forward 0 waits for bucket 0
//   link                                        bucket 2 │ bucket 1 │ bucket 0
//   servers  (groups)                                        pushes and pulls of all groups, in
//   turn
//
// Simplified: workers of a group are as fast as the slowest of them, which all wait for, and a
// bucket starts when that one has it. Groups are of neighbours, the fastest nodes first. Workers of
// one host are one to the others, and share its link.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/plan/cluster.hpp"
#include "convoy/plan/stragglers.hpp"
#include "convoy/plan/workload.hpp"

namespace convoy::plan {

/// How a job is spread over a cluster.
struct Configuration {
  int workers = 1;  ///< on the fastest nodes; servers of their own come on top
  int groups = 1;
  int servers = 0;  ///< 0: as many as workers, beside them
  bool own_servers = false;
  std::string classifier = "data";  ///< data | model | hybrid | merged
  int layers = 0;                   ///< of the tail, the last ones; 0: all
  int copies = 1;
  int64_t batch = 0;
  int64_t grain = 1;
  int lanes = 1;
  bool balanced = true;  ///< shares follow speeds; else they are equal
  bool overlap = true;
  Bytes bucket{-1};  ///< 0: one for each layer; less: the best size, as the exchange finds it
  std::string collective = "auto";  ///< how gradients are summed: as sync.allreduce, auto: fastest

  /// Against servers, which own the model.
  bool served() const { return groups > 1 || servers > 0; }
  int together() const { return workers / groups; }
  /// Workers, and servers of their own.
  int processes() const { return workers + (own_servers ? servers : 0); }
};

/// Something that took time, for a picture of a step.
struct Span {
  std::string lane;  ///< "lanes", "link", "servers"
  std::string what;
  Seconds begin;
  Seconds end;
};

struct StepForecast {
  Seconds step;             ///< of a group, from step to step
  Seconds update;           ///< between updates of the model: step/groups
  Seconds computing;        ///< of it, the slowest worker's lanes
  Seconds waiting;          ///< of it, its lanes for others
  Seconds data;             ///< in it, samples are prepared, beside the computing
  Seconds link;             ///< in it, the worker's link is busy
  Seconds server;           ///< between updates, the servers are busy
  Bytes sent;               ///< by a worker in a step
  Bytes memory;             ///< of a worker
  std::vector<Span> spans;  ///< of one step of the first group

  /// What it would be faster with less of: "computing", "data", "link", "servers", "latency".
  std::string bottleneck() const;
};

struct ForecastOptions {
  int steps = 12;  ///< of each group; the first third is not counted
  Stragglers stragglers;
  bool spans = false;
};

/// Something that predicts a step's time.
class Estimator {
 public:
  virtual ~Estimator() = default;
  virtual StepForecast forecast(const Configuration& configuration) const = 0;
  virtual std::string name() const = 0;
};

/// The simulation described above.
class EventModel final : public Estimator {
 public:
  /// Both must outlive it.
  EventModel(const Workload& workload, const Cluster& cluster, ForecastOptions options = {});
  StepForecast forecast(const Configuration& configuration) const override;
  std::string name() const override { return "events"; }

 private:
  StepForecast with_buckets(const Configuration& configuration) const;

  const Workload& workload_;
  const Cluster& cluster_;
  ForecastOptions options_;
};

/// What the papers' formulas say, without overlap between layers: Zou17's overhead for one group,
/// Omnivore's hardware efficiency for several, Das16's bytes for split layers.
class LemmaModel final : public Estimator {
 public:
  LemmaModel(const Workload& workload, const Cluster& cluster)
      : workload_(workload), cluster_(cluster) {}
  StepForecast forecast(const Configuration& configuration) const override;
  std::string name() const override { return "lemmas"; }

 private:
  const Workload& workload_;
  const Cluster& cluster_;
};

/// Samples of each worker of a group on these nodes: whole grains, all of the batch.
std::vector<int64_t> shares_of(const Workload& workload, const Configuration& configuration,
                               const std::vector<const NodeType*>& nodes);

/// Of a worker: the model, and what its lanes hold of their grains.
Bytes worker_memory(const Workload& workload, const Configuration& configuration);

/// "4 workers", "8 workers in 2 groups, classifier model (3 layers)".
std::string describe(const Configuration& configuration);

}  // namespace convoy::plan
