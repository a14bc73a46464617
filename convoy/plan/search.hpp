#pragma once
// Which configuration of a cluster trains a job fastest: every one that fits is predicted, and they
// are ranked by the time to the target, which is the time of an update (hardware efficiency) times
// how many it takes (statistical efficiency).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/job/job.hpp"
#include "convoy/plan/cluster.hpp"
#include "convoy/plan/plan.hpp"
#include "convoy/plan/step_model.hpp"
#include "convoy/plan/workload.hpp"

namespace convoy::plan {

/// How many updates a training takes, in those of the job as it stands on one group.
struct Statistics {
  int64_t batch = 0;       ///< of the job
  double noise_scale = 0;  ///< samples; 0: not known, so that samples count, not updates
  double momentum = 0.9;   ///< in all

  /// Batches: updates(X) ∝ 1 + noise/X. Groups: group_penalty.
  double updates(int64_t batch, int groups) const;
};

/// How many times as many updates g groups take as one, with their momentum tuned, to first order.
/// Groups bring 1 − 1/g. As long as that is less than the momentum μ that is best, servers make up
/// for it; beyond, the model has more than is best and its distance to a minimum shrinks by √(1 −
/// 1/g) with an update instead of √μ, which takes g·(1 − μ) times as many. A twentieth comes on top
/// with each doubling, because what is made up for is an average.
double group_penalty(int groups, double momentum);

/// What the user pins; none: it is searched.
struct Pins {
  std::optional<int> workers;
  std::optional<int> groups;
  std::optional<int> servers;
  std::optional<std::string> classifier;
  std::optional<int> layers;  ///< of it, if it is not data
  std::optional<int> copies;  ///< of hybrid
  std::optional<int64_t> batch;
  std::optional<int> lanes;
  std::optional<int64_t> grain;
  bool reproducible = false;  ///< one group, classifier data
};

/// Lanes and grain, if the job names them.
Pins pins_of(const job::Job& job);

struct Candidate {
  Configuration configuration;
  StepForecast forecast;
  double updates = 1;  ///< relative, by Statistics
  Seconds time;        ///< update · updates, for what one update of the job is worth
};

struct SearchOptions {
  /// Grain and lanes as they would be on one worker, bucket, overlap, collective; own_servers: only
  /// with servers of their own.
  Configuration start;
  Statistics statistics;
  Pins pins;
  std::function<void(int done, int all)> progress = nullptr;
};

struct SearchResult {
  std::vector<Candidate> ranked;  ///< those that fit, the fastest first
  int tried = 0;
  int too_large = 0;                  ///< did not fit into memory
  std::vector<Candidate> by_workers;  ///< the best for each number of workers, ascending
  const Candidate& best() const { return ranked.front(); }
};

/// A job on one worker of this cluster, as it would begin: with the plan's grain, and a lane for
/// every core of its nodes if they are described; else with the plan's.
Configuration configuration_of(const job::Job& job, const Plan& plan, const Cluster& cluster);

/// Lanes and grain of a configuration where they are open: as they are, but a grain for every lane
/// at least, and no more than fits into `room` (0: any) with smaller grains, then with fewer, wider
/// lanes. False if nothing does.
bool fit(const Workload& workload, const Pins& pins, Bytes room, Configuration& configuration);

/// Throws InputError if nothing fits, with the least memory that would do.
SearchResult search(const Workload& workload, const Cluster& cluster, const SearchOptions& options);

/// What would help most: the best of the same search if links, latency, nodes or memory were
/// better.
struct Advice {
  std::string what;  ///< "links of twice the bandwidth"
  Seconds time;      ///< then
  double gain = 1;   ///< times as fast
};
std::vector<Advice> advise(const Workload& workload, const Cluster& cluster,
                           const SearchOptions& options, const SearchResult& found);

/// Numbers of workers that are tried of `most`: all up to 16, then by steps of at most a fifth.
std::vector<int> worker_counts(int most);

}  // namespace convoy::plan
