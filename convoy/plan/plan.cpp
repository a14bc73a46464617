#include "convoy/plan/plan.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/base/text.hpp"
#include "convoy/data/loader.hpp"
#include "convoy/plan/algorithms.hpp"

namespace convoy::plan {
namespace {

/// Beyond this a larger grain no longer makes kernels faster, but takes memory in every lane.
constexpr int64_t kLargestAutoGrain = 32;
/// Where a lane's activations are larger than this and outweigh the weights several times, its
/// kernels are busy long before the grain ends: a grain of half the size is as fast (bench/README)
/// and takes half the memory. Where the weights dominate, every further grain costs another pass
/// over their gradients, so the grain stays.
constexpr int64_t kAmpleActivations = int64_t{512} << 20;
constexpr int64_t kActivationsPerWeight = 4;
constexpr int64_t kSmallestLeanGrain = 8;

int64_t auto_grain(int64_t batch, int lanes) {
  const int64_t most = std::clamp<int64_t>(batch / lanes, 1, kLargestAutoGrain);
  for (const int64_t d : divisors(batch)) {
    if (d <= most) return d;
  }
  return 1;
}

class Planner {
 public:
  Planner(const job::Job& job, const model::Graph& graph, const optim::Optimizer& optimizer,
          const CoreMap& cores, const PlanOptions& options)
      : job_(job), graph_(graph), optimizer_(optimizer), cores_(cores), options_(options) {
    before_ = resident_memory();
    limit_ = available_memory();
    if (job.engine.memory.value > 0) {
      const Bytes asked{std::max<int64_t>(0, (job.engine.memory - before_).value)};
      limited_by_job_ = asked < limit_;
      limit_ = std::min(limit_, asked);
    }
  }

  Planned run() {
    const bool lanes_pinned = job_.engine.lanes > 0;
    const int lanes = static_cast<int>(std::min(wanted_lanes(), job_.train.batch));
    const bool grain_pinned = job_.engine.grain > 0;

    const int64_t first = grain_pinned ? job_.engine.grain : auto_grain(job_.train.batch, lanes);
    Plan wanted = attempt(first, lanes);
    if (!grain_pinned) wanted = leaner(std::move(wanted), lanes);
    if (fits(wanted)) return finish(std::move(wanted), "");
    for (int fewer = lanes; fewer >= 1; --fewer) {
      for (const int64_t grain : divisors(job_.train.batch)) {
        if (grain > wanted.grain || (grain_pinned && grain != first)) continue;
        Plan next = attempt(grain, fewer);
        if (!fits(next)) continue;
        return finish(std::move(next),
                      fmt::format("memory: grain {} on {} would take {}, {} may be used",
                                  wanted.grain, plural(wanted.lanes, "lane"),
                                  to_string(wanted.allocated()), to_string(limit_)));
      }
      if (lanes_pinned) break;
    }
    refuse_with_advice(wanted);
  }

 private:
  /// Compiling has grown the process, too: kernels are generated at run time.
  bool fits(const Plan& plan) const {
    const Bytes grown{std::max<int64_t>(0, (resident_memory() - before_).value)};
    return plan.allocated() + grown <= limit_;
  }

  int64_t wanted_lanes() const {
    if (job_.engine.lanes > 0) return job_.engine.lanes;
    return std::max<int64_t>(1, cores_.physical / job_.engine.threads_per_lane);
  }

  /// The same plan with a smaller grain, if that saves much memory for nothing.
  Plan leaner(Plan plan, int lanes) {
    for (const int64_t grain : divisors(job_.train.batch)) {
      if (grain >= plan.grain) continue;
      const int64_t lane = plan.memory.activations.value / plan.lanes;
      const bool ample =
          lane > kAmpleActivations && lane > kActivationsPerWeight * plan.memory.weights.value;
      if (!ample || grain < kSmallestLeanGrain) break;
      plan = attempt(grain, lanes);
    }
    return plan;
  }

  /// The program for a grain; compiled once.
  std::unique_ptr<engine::Program>& program(int64_t grain) {
    auto& compiled = programs_[grain];
    if (!compiled) {
      compiled = compile(grain, {});
    }
    return compiled;
  }

  Plan attempt(int64_t grain, int lanes) { return attempt(grain, lanes, job_.train.batch); }

  Plan attempt(int64_t grain, int lanes, int64_t batch) {
    Plan plan;
    plan.model = graph_.name();
    plan.batch = batch;
    plan.grain = grain;
    plan.lanes = static_cast<int>(std::min<int64_t>(lanes, batch / grain));
    plan.threads_per_lane = static_cast<int>(job_.engine.threads_per_lane);
    plan.isa = engine::select_kernels().isa;
    plan.before = before_;
    plan.limit = limit_;
    plan.memory = sync::Stepper::memory(*program(grain), optimizer_, plan.stepper(job_.train));
    data::LoaderOptions loader;
    loader.batch = batch;
    loader.grain = grain;
    plan.loader = data::TrainLoader::memory(loader, graph_.input_shape());
    return plan;
  }

  std::string lanes_reason(const Plan& plan) const {
    const int64_t wanted = wanted_lanes();
    std::string why = job_.engine.lanes > 0
                          ? fmt::format("{} pinned by the job", wanted)
                          : fmt::format("{}, {} per lane", plural(cores_.physical, "usable core"),
                                        plural(plan.threads_per_lane, "thread"));
    if (plan.lanes < wanted) {
      why += plan.lanes == plan.batch / plan.grain
                 ? fmt::format(", but a batch has only {}", plural(plan.lanes, "grain"))
                 : ", but not enough memory for them";
    }
    return fmt::format("{}: {}", plural(plan.lanes, "lane"), why);
  }

  std::string grain_reason(const Plan& plan, bool short_of_memory) const {
    if (job_.engine.grain > 0) return fmt::format("grain {}: pinned by the job", plan.grain);
    if (short_of_memory) {
      return fmt::format("grain {}: largest divisor of batch {} that fits into memory", plan.grain,
                         plan.batch);
    }
    if (plan.grain < auto_grain(plan.batch, plan.lanes)) {
      return fmt::format("grain {}: a larger one takes more memory and is no faster", plan.grain);
    }
    return fmt::format(
        "grain {}: largest divisor of batch {} that keeps the lanes busy, at most {}", plan.grain,
        plan.batch, kLargestAutoGrain);
  }

  /// `shortage` says what did not fit; empty if the first choice did.
  Planned finish(Plan plan, const std::string& shortage) {
    plan.before = resident_memory();
    plan.reasons = {lanes_reason(plan), grain_reason(plan, !shortage.empty())};
    if (!shortage.empty()) plan.reasons.push_back(shortage);
    if (cores_.may_pin && plan.lanes * plan.threads_per_lane <= cores_.size() &&
        plan.threads_per_lane == 1) {
      plan.cores.assign(cores_.cores.begin(), cores_.cores.begin() + plan.lanes);
    }
    std::unique_ptr<engine::Program> chosen = choose_algorithms(plan);
    plan.before = resident_memory();
    return {std::move(plan), std::move(chosen)};
  }

  std::unique_ptr<engine::Program> compile(int64_t grain, const Algorithms& algorithms) const {
    engine::CompileOptions options;
    options.grain = grain;
    options.threads_per_lane = static_cast<int>(job_.engine.threads_per_lane);
    options.algorithms = algorithms;
    return std::make_unique<engine::Program>(graph_, options);
  }

  /// Compiles with the algorithms that the job names, or else with the best that fit into what
  /// memory the plan, all direct so far, leaves.
  std::unique_ptr<engine::Program> choose_algorithms(Plan& plan) {
    const auto take = [&](const Algorithms& algorithms, std::unique_ptr<engine::Program> compiled) {
      plan.algorithms = algorithms;
      plan.algorithms_by_name = to_yaml(algorithms, graph_);
      plan.memory = sync::Stepper::memory(*compiled, optimizer_, plan.stepper(job_.train));
      return compiled;
    };
    if (const auto named = read_algorithms(job_.engine.algorithms, graph_, plan.grain)) {
      auto compiled = take(*named, compile(plan.grain, *named));
      plan.reasons.push_back(fmt::format("algorithms: {}", job_.engine.algorithms));
      if (!fits(plan)) {
        refuse("engine.algorithms: {} takes {}, {} may be used; auto chooses what fits",
               job_.engine.algorithms, to_string(plan.allocated()), to_string(limit_));
      }
      return compiled;
    }
    ProfileOptions profiling;
    profiling.grain = plan.grain;
    profiling.lanes = plan.lanes;
    profiling.threads_per_lane = plan.threads_per_lane;
    profiling.cores = plan.cores;
    profiling.exact = job_.engine.precision == "exact";
    profiling.cache = options_.profile_cache;
    profiling.progress = options_.progress;
    profiling.note = options_.note;
    plan.profile = profile_convolutions(graph_, profiling);
    const std::vector<Item> items =
        items_of(plan.profile, graph_, plan.batch, plan.grain, plan.lanes);
    const Choice direct = tally(items, std::vector<size_t>(items.size(), 0), Workspace::shared);
    Bytes spare = limit_ - plan.allocated();
    constexpr int kTries = 3;
    for (int i = 0; i < kTries; ++i) {
      const auto choice = choose_exactly(items, Workspace::shared, direct.memory + spare);
      if (!choice) break;
      const Algorithms algorithms = algorithms_of(plan.profile, *choice);
      auto compiled = take(algorithms, compile(plan.grain, algorithms));
      if (fits(plan)) {
        plan.reasons.push_back(fmt::format(
            "algorithms: convolutions take {:.1f} ms per grain, {:.1f} ms if all were direct",
            choice->time.value * 1e3, direct.time.value * 1e3));
        return compiled;
      }
      spare = Bytes{spare.value - (plan.allocated() - limit_).value - spare.value / 8};
    }
    plan.reasons.push_back("algorithms: direct, for there is no memory for others");
    return take({}, std::move(program(plan.grain)));
  }

  /// What to write into the job to make it fit.
  std::string advice(const Plan& wanted) {
    for (int64_t batch = wanted.batch; batch >= 1; batch /= 2) {
      for (const int64_t grain : divisors(batch)) {
        if (grain > kLargestAutoGrain || !fits(attempt(grain, 1, batch))) continue;
        return batch == wanted.batch
                   ? fmt::format("engine.grain: {} with engine.lanes: 1 would fit", grain)
                   : fmt::format(
                         "train.batch: {} with engine.grain: {} and engine.lanes: 1 "
                         "would fit",
                         batch, grain);
      }
    }
    return "not even one sample at a time would fit";
  }

  /// "; engine.memory: 96MiB would do for all of it" where the job sets the limit.
  std::string memory_advice(const Plan& wanted) const {
    if (!limited_by_job_) return "";
    // What is resident before planning differs a little from run to run.
    constexpr int64_t kMib = int64_t{1} << 20;
    return fmt::format("; engine.memory: {}MiB would do for all of it",
                       ((resident_memory() + wanted.allocated()).value + 3 * kMib) / kMib);
  }

  [[noreturn]] void refuse_with_advice(const Plan& wanted) {
    const std::string allowed =
        limited_by_job_ ? fmt::format(
                              "engine.memory is {}, of which the program and the data take "
                              "{}",
                              to_string(job_.engine.memory), to_string(before_))
                        : fmt::format("the machine has {} left", to_string(limit_));
    refuse(
        "not enough memory for {} with batch {}, grain {} on {}: it takes {} (weights {}, "
        "optimizer {}, gradients {}, activations {}, inputs {}), and {}; {}{}",
        wanted.model, wanted.batch, wanted.grain, plural(wanted.lanes, "lane"),
        to_string(wanted.allocated()), to_string(wanted.memory.weights),
        to_string(wanted.memory.optimizer), to_string(wanted.memory.gradients),
        to_string(wanted.memory.activations), to_string(wanted.memory.inputs + wanted.loader),
        allowed, advice(wanted), memory_advice(wanted));
  }

  const job::Job& job_;
  const model::Graph& graph_;
  const optim::Optimizer& optimizer_;
  const CoreMap& cores_;
  const PlanOptions& options_;
  Bytes before_;
  Bytes limit_;
  bool limited_by_job_ = false;
  std::map<int64_t, std::unique_ptr<engine::Program>> programs_;  ///< by grain
};

}  // namespace

std::vector<int64_t> divisors(int64_t batch) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d * d <= batch; ++d) {
    if (batch % d != 0) continue;
    all.push_back(d);
    if (d * d != batch) all.push_back(batch / d);
  }
  std::sort(all.begin(), all.end(), std::greater<>());
  return all;
}

sync::StepperOptions Plan::stepper(const job::Train& train) const {
  sync::StepperOptions options;
  options.batch = batch;
  options.lanes = lanes;
  options.cores = cores;
  options.seed = train.seed;
  options.decay_all = train.decay_all;
  options.clip_norm = train.clip_norm;
  return options;
}

Planned make_plan(const job::Job& job, const model::Graph& graph, const optim::Optimizer& optimizer,
                  const CoreMap& cores, const PlanOptions& options) {
  const std::vector<int64_t> ok = divisors(job.train.batch);
  const int64_t grain = job.engine.grain;
  if (grain > 0 && job.train.batch % grain != 0) {
    refuse("engine.grain: {} does not divide train.batch: {}; grains that do: {}", grain,
           job.train.batch, fmt::join(ok, ", "));
  }
  return Planner(job, graph, optimizer, cores, options).run();
}

std::string describe(const Plan& plan) {
  std::string text = fmt::format(
      "plan    batch {} in {} of {} on {}{}\n", plan.batch,
      plural(plan.batch / plan.grain, "grain"), plan.grain, plural(plan.lanes, "lane"),
      plan.threads_per_lane > 1 ? fmt::format(" of {} threads", plan.threads_per_lane) : "");
  text += fmt::format(
      "memory  {} at the peak: {} now, weights {}, optimizer {}, gradients {}, "
      "activations {}, inputs {}\n",
      to_string(plan.peak()), to_string(plan.before), to_string(plan.memory.weights),
      to_string(plan.memory.optimizer), to_string(plan.memory.gradients),
      to_string(plan.memory.activations), to_string(plan.memory.inputs + plan.loader));
  return text;
}

std::string to_yaml(const Plan& plan) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  out << YAML::Key << "model" << YAML::Value << plan.model;
  out << YAML::Key << "batch" << YAML::Value << plan.batch;
  out << YAML::Key << "grain" << YAML::Value << plan.grain;
  out << YAML::Key << "lanes" << YAML::Value << plan.lanes;
  out << YAML::Key << "threads_per_lane" << YAML::Value << plan.threads_per_lane;
  out << YAML::Key << "cores" << YAML::Value << YAML::Flow << plan.cores;
  out << YAML::Key << "isa" << YAML::Value << plan.isa;
  out << YAML::Key << "algorithms" << YAML::Value << plan.algorithms_by_name;
  out << YAML::Key << "memory_bytes" << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "before" << YAML::Value << plan.before.value;
  out << YAML::Key << "weights" << YAML::Value << plan.memory.weights.value;
  out << YAML::Key << "optimizer" << YAML::Value << plan.memory.optimizer.value;
  out << YAML::Key << "gradients" << YAML::Value << plan.memory.gradients.value;
  out << YAML::Key << "activations" << YAML::Value << plan.memory.activations.value;
  out << YAML::Key << "inputs" << YAML::Value << (plan.memory.inputs + plan.loader).value;
  out << YAML::Key << "peak" << YAML::Value << plan.peak().value;
  out << YAML::Key << "limit" << YAML::Value << plan.limit.value << YAML::EndMap;
  out << YAML::Key << "reasons" << YAML::Value << plan.reasons;
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

}  // namespace convoy::plan
