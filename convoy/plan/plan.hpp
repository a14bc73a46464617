#pragma once
// A plan: what Convoy decided for a job on this machine, and why. Printed before the first step,
// saved as plan.yaml; whatever the job pins is taken as it is.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "convoy/base/threads.hpp"
#include "convoy/base/units.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/job/job.hpp"
#include "convoy/model/graph.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/plan/profile.hpp"
#include "convoy/sync/stepper.hpp"

namespace convoy::plan {

struct Plan {
  std::string model;
  int64_t batch = 0;
  int64_t grain = 0;
  int workers = 1;
  int lanes = 1;  ///< of each worker
  int threads_per_lane = 1;
  std::string isa;  ///< of our own kernels
  /// By layer; convolutions that are not listed are direct.
  std::map<model::LayerId, engine::ConvAlgorithms> algorithms;
  YAML::Node algorithms_by_name;     ///< the same for plan.yaml
  std::vector<ConvProfile> profile;  ///< what they were chosen from; empty if the job names them

  Seconds step;                  ///< predicted from measured rounds and updates; 0: not measured
  sync::Stepper::Memory memory;  ///< what training will allocate
  Bytes loader;                  ///< the ring of prepared grains
  Bytes samples;                 ///< packed samples held in memory, and on their way
  Bytes before;                  ///< resident before any of it (program, libraries, data set)
  Bytes limit;                   ///< what the job or the machine allows on top of `before`
  std::vector<std::string> reasons;  ///< one line for each decision

  Bytes allocated() const { return memory.total() + loader + samples; }
  Bytes peak() const { return before + allocated(); }

  /// Options for the Stepper that runs this plan.
  sync::StepperOptions stepper(const job::Train& train) const;

  std::vector<int> cores;  ///< one per lane; empty: not pinned
};

struct PlanOptions {
  /// Called before each measurement that is not in the cache, and with done == all after the last.
  std::function<void(int done, int all, const std::string& what)> progress;
  /// Gets a line when a cache is ignored.
  std::function<void(const std::string& line)> note;
  /// What is known of this machine; made from `profile_cache` if it is null.
  std::shared_ptr<Measurements> known;
  /// Where measurements are kept; empty: nowhere.
  std::filesystem::path profile_cache = cache_folder() / "profile.json";
  /// Measure steps: predicts their time, and decides about grain and lanes where the job leaves
  /// them open. Without, they follow from rules.
  bool measure = false;
  /// Measure steps also where there is nothing to decide, only to predict their time.
  bool predict = false;
  /// Measure all algorithms, also those that cannot be the fastest.
  bool thorough = false;
  /// How many workers step together, and how many of them are on this host: the plan is for one of
  /// them, with an equal share.
  int workers = 1;
  int locals = 1;
  /// All cores of the host, on which algorithms are measured: what is chosen decides about the bits
  /// of the result, and these shall not depend on the number of workers. None: those of the worker.
  std::optional<CoreMap> host = std::nullopt;
};

/// A plan and the program compiled for it.
struct Planned {
  Plan plan;
  std::unique_ptr<engine::Program> program;
};

/// Decides lanes (one per physical core) and grain (the largest divisor of the batch that keeps
/// every lane busy, at most 32; less where activations are so large that a smaller one is as fast)
/// within the memory limit: smaller grains are tried first, then fewer lanes. Throws InputError if
/// what is pinned does not fit, naming the largest grain or batch that would, and the least memory.
/// Algorithms are chosen by measurement (convoy/plan/profile.hpp) unless the job names them. With
/// PlanOptions::measure, plans that take no more memory (half the grain; fewer, wider lanes) are
/// tried, and taken if their steps are clearly faster.
Planned make_plan(const job::Job& job, const model::Graph& graph, const optim::Optimizer& optimizer,
                  const CoreMap& cores, const PlanOptions& options = {});

/// For people: a few lines.
std::string describe(const Plan& plan);
/// For plan.yaml.
std::string to_yaml(const Plan& plan);

/// How many workers have the grains of a batch among themselves: those that a step waits for, or
/// each by itself.
int sharers(const job::Job& job, int workers);

/// Divisors of `batch`, largest first.
std::vector<int64_t> divisors(int64_t batch);

}  // namespace convoy::plan
