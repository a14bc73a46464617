#include "convoy/plan/plan.hpp"

#include <algorithm>

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/data/loader.hpp"

namespace convoy::plan {
namespace {

/// Beyond this a larger grain no longer makes kernels faster, but takes memory in every lane.
constexpr int64_t kLargestAutoGrain = 32;
/// Batches prepared ahead of the one in use.
constexpr int kBatchesAhead = 1;

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
          const CoreMap& cores)
      : job_(job), graph_(graph), optimizer_(optimizer), cores_(cores) {
    before_ = resident_memory();
    limit_ = available_memory();
    if (job.engine.memory.value > 0) {
      limit_ = std::min(limit_, Bytes{std::max<int64_t>(0, (job.engine.memory - before_).value)});
    }
  }

  Planned run() {
    const int threads = static_cast<int>(job_.engine.threads_per_lane);
    const bool lanes_pinned = job_.engine.lanes > 0;
    int lanes =
        lanes_pinned ? static_cast<int>(job_.engine.lanes) : std::max(1, cores_.size() / threads);
    lanes = static_cast<int>(std::min<int64_t>(lanes, job_.train.batch));
    const bool grain_pinned = job_.engine.grain > 0;
    const int64_t first = grain_pinned ? job_.engine.grain : auto_grain(job_.train.batch, lanes);

    Planned best = attempt(first, lanes);
    if (fits(best.plan)) return finish(std::move(best), lanes_pinned, grain_pinned);
    const Planned wanted = std::move(best);
    for (int fewer = lanes; fewer >= 1; --fewer) {
      for (const int64_t grain : divisors(job_.train.batch)) {
        if (grain > first || (grain_pinned && grain != first)) continue;
        Planned next = attempt(grain, fewer);
        if (!fits(next.plan)) continue;
        next.plan.reasons.push_back(fmt::format(
            "grain {} on {} lane(s) instead of {} on {}: those would take {}, and {} "
            "may be used",
            grain, fewer, first, lanes, to_string(wanted.plan.allocated()), to_string(limit_)));
        return finish(std::move(next), lanes_pinned, grain_pinned);
      }
      if (lanes_pinned) break;
    }
    refuse_with_advice(wanted.plan);
  }

 private:
  bool fits(const Plan& plan) const { return plan.allocated() <= limit_; }

  Planned attempt(int64_t grain, int lanes) const {
    return attempt(grain, lanes, job_.train.batch);
  }

  Planned attempt(int64_t grain, int lanes, int64_t batch) const {
    Planned p;
    engine::CompileOptions options;
    options.grain = grain;
    options.threads_per_lane = static_cast<int>(job_.engine.threads_per_lane);
    p.program = std::make_unique<engine::Program>(graph_, options);
    p.plan.model = graph_.name();
    p.plan.batch = batch;
    p.plan.grain = grain;
    p.plan.lanes = static_cast<int>(std::min<int64_t>(lanes, batch / grain));
    p.plan.threads_per_lane = options.threads_per_lane;
    p.plan.recompute_norm = options.recompute_norm;
    p.plan.isa = engine::select_kernels().isa;
    p.plan.before = before_;
    p.plan.limit = limit_;
    p.plan.memory = sync::Stepper::memory(*p.program, optimizer_, p.plan.stepper(job_.train));
    data::LoaderOptions loader;
    loader.batch = batch;
    loader.grain = grain;
    loader.ahead = kBatchesAhead;
    p.plan.loader = data::TrainLoader::memory(loader, graph_.input_shape());
    return p;
  }

  Planned finish(Planned p, bool lanes_pinned, bool grain_pinned) const {
    Plan& plan = p.plan;
    plan.reasons.insert(
        plan.reasons.begin(),
        {lanes_pinned ? fmt::format("{} lane(s): pinned by the job", plan.lanes)
                      : fmt::format("{} lane(s): {} usable core(s), {} thread(s) per lane{}",
                                    plan.lanes, cores_.size(), plan.threads_per_lane,
                                    plan.batch / plan.grain < cores_.size() / plan.threads_per_lane
                                        ? ", no more grains in a batch"
                                        : ""),
         grain_pinned ? fmt::format("grain {}: pinned by the job", plan.grain)
                      : fmt::format("grain {}: largest divisor of batch {} that keeps the lanes "
                                    "busy, at most {}",
                                    plan.grain, plan.batch, kLargestAutoGrain)});
    if (cores_.may_pin && plan.lanes * plan.threads_per_lane <= cores_.size() &&
        plan.threads_per_lane == 1) {
      plan.cores.assign(cores_.cores.begin(), cores_.cores.begin() + plan.lanes);
    }
    return p;
  }

  [[noreturn]] void refuse_with_advice(const Plan& wanted) const {
    std::string advice = "not even one sample at a time would fit";
    for (int64_t batch = wanted.batch; batch >= 1; batch /= 2) {
      bool found = false;
      for (const int64_t grain : divisors(batch)) {
        if (grain > kLargestAutoGrain || !fits(attempt(grain, 1, batch).plan)) continue;
        advice = batch == wanted.batch
                     ? fmt::format("engine.grain: {} with engine.lanes: 1 would fit", grain)
                     : fmt::format(
                           "train.batch: {} with engine.grain: {} and engine.lanes: 1 "
                           "would fit",
                           batch, grain);
        found = true;
        break;
      }
      if (found) break;
    }
    refuse(
        "not enough memory for {} with batch {}, grain {} on {} lane(s): it takes {} "
        "(weights {}, optimizer {}, gradients {}, activations {}, inputs {}), and {} may be "
        "used; {}",
        wanted.model, wanted.batch, wanted.grain, wanted.lanes, to_string(wanted.allocated()),
        to_string(wanted.memory.weights), to_string(wanted.memory.optimizer),
        to_string(wanted.memory.gradients), to_string(wanted.memory.activations),
        to_string(wanted.memory.inputs + wanted.loader), to_string(limit_), advice);
  }

  const job::Job& job_;
  const model::Graph& graph_;
  const optim::Optimizer& optimizer_;
  const CoreMap& cores_;
  Bytes before_;
  Bytes limit_;
};

}  // namespace

std::vector<int64_t> divisors(int64_t batch) {
  std::vector<int64_t> all;
  for (int64_t d = batch; d >= 1; --d) {
    if (batch % d == 0) all.push_back(d);
  }
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
                  const CoreMap& cores) {
  const std::vector<int64_t> ok = divisors(job.train.batch);
  const int64_t grain = job.engine.grain;
  if (grain > 0 && job.train.batch % grain != 0) {
    refuse("engine.grain: {} does not divide train.batch: {}; grains that do: {}", grain,
           job.train.batch, fmt::join(ok, ", "));
  }
  return Planner(job, graph, optimizer, cores).run();
}

std::string describe(const Plan& plan) {
  std::string text = fmt::format(
      "plan    batch {} in {} grains of {} on {} lane{}{}\n", plan.batch, plan.batch / plan.grain,
      plan.grain, plan.lanes, plan.lanes == 1 ? "" : "s",
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
  out << YAML::Key << "recompute_norm" << YAML::Value << plan.recompute_norm;
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
