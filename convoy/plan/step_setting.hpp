#pragma once
// Everything of a configuration that does not change from step to step, as both models of a step
// (step_model.hpp) see it: who has how many grains, what travels in which buckets, for how long.

#include <cstdint>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/comm/collectives.hpp"
#include "convoy/plan/placement.hpp"
#include "convoy/plan/step_model.hpp"

namespace convoy::plan {

/// What of a gradient travels together: of the layers from `lowest` to `highest`.
struct BucketWork {
  int64_t floats = 0;
  size_t highest = 0;
  size_t lowest = 0;  ///< its backward pass completes the bucket, its forward pass needs it first
  Seconds busy;       ///< on the worker's link
  Seconds delay;      ///< until it has arrived, while others may be on the link
  Seconds served;     ///< at the servers
};

/// Of one group, whose workers are neighbours.
struct StepSetting {
  StepSetting(const Workload& workload, const Cluster& cluster, const Configuration& configuration,
              int group);

  const Workload& w;
  Configuration c;
  std::vector<const NodeType*> nodes;  ///< by worker
  std::vector<int> host_of;            ///< by worker, ascending
  int hosts = 1;                       ///< that they are on
  comm::LinkSpeed link;
  std::vector<int64_t> shares;  ///< grains, by worker
  std::vector<double> speeds;
  int64_t rounds = 1;
  double beside_lanes = 1;  ///< of the link's speed, what lanes leave that compute
  double lanes_left = 1;    ///< of theirs, while something travels
  double slowest = 1;       ///< its time for a sample, in those of the reference
  Placement placement;
  std::vector<bool> elsewhere;  ///< by layer: not the lanes' to compute
  std::vector<BucketWork> buckets;
  BucketWork slices;  ///< of split layers, to servers: when a step is over, before the next tail
  Seconds update;     ///< where lanes do it: of all but split layers, when the step is over
  Bytes sent;         ///< by a worker in a step

  int together() const { return c.together(); }
  /// Workers that share a host and its link.
  double locals() const { return static_cast<double>(together()) / hosts; }
  bool served() const { return c.served(); }
  /// Whoever prepares samples has no core of its own, so that the lanes lose what it takes.
  bool crowded() const;
  /// To prepare what the slowest worker has of a batch.
  Seconds preparing() const;
  int servers() const { return c.servers > 0 ? c.servers : c.workers; }
  /// Seconds of a worker's lanes for so many grains, at the speed of the reference.
  Seconds computing(int64_t grains) const;
  /// Of the slowest worker, for a round of something that takes so long for a sample.
  Seconds round(Seconds sample) const;

 private:
  void cut_buckets();
  void cost_buckets();
  BucketWork slices_of(int layers) const;
  Seconds shared_update() const;
  int64_t held() const;
};

}  // namespace convoy::plan
