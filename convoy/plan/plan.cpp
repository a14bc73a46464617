#include "convoy/plan/plan.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/base/text.hpp"
#include "convoy/data/loader.hpp"
#include "convoy/model/yaml.hpp"
#include "convoy/plan/algorithms.hpp"
#include "convoy/plan/step_time.hpp"

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
/// Of each lane, where shares follow speeds: a grain more or less is then at most a quarter of a
/// share.
constexpr int kGrainsToMove = 4;
/// A grain with fewer operations than this for each weight takes noticeably longer for its samples
/// than a larger one, because the weights' gradients are summed once a grain (docs/balance.md). No
/// grain is made smaller than that only to let shares move.
constexpr double kFlopsPerWeight = 2000;

/// The largest divisor of the batch that is no larger than this, nor than any automatic grain.
int64_t largest_grain(int64_t batch, int64_t most) {
  most = std::clamp<int64_t>(most, 1, kLargestAutoGrain);
  for (const int64_t d : divisors(batch)) {
    if (d <= most) return d;
  }
  return 1;
}

/// What of a plan decides how long it takes and how much memory.
struct Layout {
  int64_t grain = 1;
  int lanes = 1;
  int threads = 1;  ///< per lane
};

std::string to_string(const Layout& l) {
  return fmt::format("grain {} on {}{}", l.grain, plural(l.lanes, "lane"),
                     l.threads > 1 ? fmt::format(" of {} threads", l.threads) : "");
}

Layout layout_of(const Plan& plan) {
  return {plan.grain, plan.lanes, plan.threads_per_lane};
}

/// Another layout has to be so much faster to be taken: less is within what measurements vary.
constexpr double kClearlyFaster = 0.95;

class Planner {
 public:
  Planner(const job::Job& job, const model::Graph& graph, const optim::Optimizer& optimizer,
          const CoreMap& cores, const PlanOptions& options)
      : job_(job),
        graph_(graph),
        optimizer_(optimizer),
        cores_(cores),
        options_(options),
        known_(options.known
                   ? options.known
                   : std::make_shared<Measurements>(options.profile_cache, options.note)) {
    before_ = resident_memory();
    limit_ = available_memory();
    if (job.engine.memory.value > 0) {
      const Bytes asked{std::max<int64_t>(0, (job.engine.memory - before_).value)};
      limited_by_job_ = asked < limit_;
      limit_ = std::min(limit_, asked);
    } else {
      limit_ = Bytes{limit_.value / options.locals};
    }
  }

  Planned run() {
    Planned planned = by_rule();
    if (options_.measure && (options_.predict || !alternatives(planned.plan).empty())) {
      planned = by_measurement(std::move(planned));
    }
    known_->save();
    programs_.clear();
    return_free_memory();
    planned.plan.before = resident_memory();
    return planned;
  }

 private:
  Planned by_rule() {
    const bool lanes_pinned = job_.engine.lanes > 0;
    const bool grain_pinned = job_.engine.grain > 0;
    Layout first;
    first.threads = wanted_threads();
    first.lanes = static_cast<int>(std::min(wanted_lanes(), job_.train.batch));
    first.grain = grain_pinned ? job_.engine.grain : auto_grain(job_.train.batch, first.lanes);
    Plan wanted = attempt(first);
    if (!grain_pinned) wanted = leaner(std::move(wanted), first);
    if (fits(wanted)) return finish(std::move(wanted), "");
    for (Layout l = first; l.lanes >= 1; --l.lanes) {
      for (const int64_t grain : divisors(job_.train.batch)) {
        if (grain > wanted.grain || (grain_pinned && grain != first.grain)) continue;
        l.grain = grain;
        Plan next = attempt(l);
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

  /// Tries what takes no more memory than `base` and keeps the fastest.
  Planned by_measurement(Planned base) {
    base.plan.step = step_time(base);
    std::string tried =
        fmt::format("step: {} with {}", to_string(base.plan.step), to_string(layout_of(base.plan)));
    Planned best = std::move(base);
    for (const Layout& l : alternatives(best.plan)) {
      Plan plan = attempt(l);
      // Its lanes may not find enough grains, and then it is none.
      if (plan.lanes != l.lanes || !fits(plan)) continue;
      const auto same_grain =
          l.grain == best.plan.grain ? std::optional(best.plan.algorithms) : std::nullopt;
      Planned other = finish(std::move(plan), "", same_grain);
      other.plan.step = step_time(other);
      tried += fmt::format(", {} with {}", to_string(other.plan.step), to_string(l));
      if (other.plan.step.value < kClearlyFaster * best.plan.step.value) best = std::move(other);
    }
    best.plan.reasons.push_back(tried);
    return best;
  }

  std::vector<Layout> alternatives(const Plan& plan) const {
    std::vector<Layout> all;
    const Layout base = layout_of(plan);
    if (job_.engine.grain == 0 && base.grain % 2 == 0 && base.grain / 2 >= kSmallestLeanGrain) {
      all.push_back({base.grain / 2, base.lanes, base.threads});
    }
    if (job_.engine.lanes == 0 && job_.engine.threads_per_lane == 0) {
      for (Layout l = base; l.lanes % 2 == 0;) {
        l.lanes /= 2;
        l.threads *= 2;
        all.push_back(l);
      }
    }
    return all;
  }

  /// Of the plan's batch; measured once for a model and layout.
  Seconds step_time(const Planned& planned) {
    const Plan& plan = planned.plan;
    const std::string algorithms = YAML::Dump(plan.algorithms_by_name);
    const std::string key = fmt::format(
        "step of {} {:016x}, {} of {}, algorithms {:016x}, {}", plan.model,
        model::fingerprint(graph_),
        plural(measured_rounds(share(plan) * plan.grain, plan.grain, plan.lanes), "round"),
        to_string(layout_of(plan)),
        checksum({reinterpret_cast<const uint8_t*>(algorithms.data()), algorithms.size()}),
        job_.train.optimizer);
    auto values = known_->find(key);
    if (!values) {
      if (options_.progress) {
        options_.progress(0, 1, fmt::format("steps with {}", to_string(layout_of(plan))));
      }
      sync::StepperOptions stepper = plan.stepper(job_.train);
      stepper.batch = share(plan) * plan.grain;
      const StepTime time = measure_step(*planned.program, optimizer_, stepper);
      if (options_.progress) options_.progress(1, 1, "");
      values = {time.round.value, time.update.value};
      known_->put(key, *values);
    }
    return StepTime{{values->at(0)}, {values->at(1)}}.of(share(plan) * plan.grain, plan.grain,
                                                         plan.lanes);
  }

  /// Compiling has grown the process, too: kernels are generated at run time.
  bool fits(const Plan& plan) const {
    const Bytes grown{std::max<int64_t>(0, (resident_memory() - before_).value)};
    return plan.allocated() + grown <= limit_;
  }

  /// Grains of one worker, if not all have the same those of the busiest.
  int64_t share(const Plan& plan) const {
    const int64_t workers = sharers(job_, options_.workers);
    return (plan.batch / plan.grain + workers - 1) / workers;
  }

  /// One for each lane of each worker, and more where shares follow speeds, which they can only by
  /// whole grains, unless that would make the grains slow.
  int64_t auto_grain(int64_t batch, int lanes) const {
    const int64_t all = static_cast<int64_t>(lanes) * sharers(job_, options_.workers);
    const int64_t coarse = largest_grain(batch, batch / all);
    if (!shares_move()) return coarse;
    const int64_t fine = largest_grain(batch, batch / (all * kGrainsToMove));
    const double weights = std::max(1.0, static_cast<double>(graph_.parameter_count()));
    int64_t grain = coarse;
    for (const int64_t d : divisors(batch)) {
      const bool dense =
          static_cast<double>(d) * graph_.forward_flops().value >= kFlopsPerWeight * weights;
      if (fine <= d && d < coarse && dense) grain = d;
    }
    return grain;
  }

  bool shares_move() const {
    return sharers(job_, options_.workers) > 1 && job_.sync.mode == "balanced" &&
           job_.sync.shares.empty();
  }

  int wanted_threads() const {
    return static_cast<int>(std::max<int64_t>(1, job_.engine.threads_per_lane));
  }

  int64_t wanted_lanes() const {
    if (job_.engine.lanes > 0) return job_.engine.lanes;
    return std::max<int64_t>(1, cores_.physical / wanted_threads());
  }

  /// The same plan with a smaller grain, if that saves much memory for nothing.
  Plan leaner(Plan plan, Layout l) {
    for (const int64_t grain : divisors(job_.train.batch)) {
      if (grain >= plan.grain) continue;
      const int64_t lane = plan.memory.activations.value / plan.lanes;
      const bool ample =
          lane > kAmpleActivations && lane > kActivationsPerWeight * plan.memory.weights.value;
      if (!ample || grain < kSmallestLeanGrain) break;
      l.grain = grain;
      plan = attempt(l);
    }
    return plan;
  }

  /// The program with direct convolutions; compiled once.
  std::unique_ptr<engine::Program>& program(const Layout& l) {
    auto& compiled = programs_[{l.grain, l.threads}];
    if (!compiled) compiled = compile(l, {});
    return compiled;
  }

  Plan attempt(const Layout& l) { return attempt(l, job_.train.batch); }

  Plan attempt(const Layout& l, int64_t batch) {
    Plan plan;
    plan.model = graph_.name();
    plan.batch = batch;
    plan.grain = l.grain;
    plan.workers = options_.workers;
    plan.lanes = static_cast<int>(std::min<int64_t>(l.lanes, share(plan)));
    plan.threads_per_lane = l.threads;
    plan.isa = engine::select_kernels().isa;
    plan.before = before_;
    plan.limit = limit_;
    plan.memory =
        sync::Stepper::memory(*program(l), optimizer_, plan.stepper(job_.train), share(plan));
    data::LoaderOptions loader;
    loader.batch = batch;
    loader.grain = l.grain;
    loader.grains = {.first = 0, .last = share(plan)};
    plan.loader = data::TrainLoader::memory(loader, graph_.input_shape());
    return plan;
  }

  std::string lanes_reason(const Plan& plan) const {
    const int64_t wanted = job_.engine.lanes > 0
                               ? job_.engine.lanes
                               : std::max<int64_t>(1, cores_.physical / plan.threads_per_lane);
    std::string why = job_.engine.lanes > 0
                          ? fmt::format("{} pinned by the job", wanted)
                          : fmt::format("{}, {} per lane", plural(cores_.physical, "usable core"),
                                        plural(plan.threads_per_lane, "thread"));
    if (plan.lanes < wanted) {
      why += plan.lanes == share(plan)
                 ? fmt::format(", but {} has only {}", options_.workers > 1 ? "a share" : "a batch",
                               plural(plan.lanes, "grain"))
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
        "grain {}: largest divisor of batch {} that {}, at most {}", plan.grain, plan.batch,
        shares_move()
            ? fmt::format("gives each lane {} grains, so that shares can move, or as many "
                          "as are not slow",
                          kGrainsToMove)
            : "keeps the lanes busy",
        kLargestAutoGrain);
  }

  /// `shortage` says what did not fit; empty if the first choice did. With `given` algorithms none
  /// are chosen.
  Planned finish(Plan plan, const std::string& shortage,
                 const std::optional<Algorithms>& given = std::nullopt) {
    plan.before = resident_memory();
    plan.reasons = {lanes_reason(plan), grain_reason(plan, !shortage.empty())};
    if (!shortage.empty()) plan.reasons.push_back(shortage);
    plan.cores = cores_for(cores_, layout_of(plan));
    std::unique_ptr<engine::Program> chosen =
        given ? take(plan, *given, compile(layout_of(plan), *given)) : choose_algorithms(plan);
    plan.before = resident_memory();
    return {std::move(plan), std::move(chosen)};
  }

  /// Where lanes are pinned; empty if they are not.
  static std::vector<int> cores_for(const CoreMap& cores, const Layout& l) {
    if (!cores.may_pin || l.lanes > cores.size() || l.threads > 1) return {};
    return {cores.cores.begin(), cores.cores.begin() + l.lanes};
  }

  std::unique_ptr<engine::Program> compile(const Layout& l, const Algorithms& algorithms) const {
    engine::CompileOptions options;
    options.grain = l.grain;
    options.threads_per_lane = l.threads;
    options.algorithms = algorithms;
    return std::make_unique<engine::Program>(graph_, options);
  }

  std::unique_ptr<engine::Program> take(Plan& plan, const Algorithms& algorithms,
                                        std::unique_ptr<engine::Program> compiled) const {
    plan.algorithms = algorithms;
    plan.algorithms_by_name = to_yaml(algorithms, graph_);
    plan.memory =
        sync::Stepper::memory(*compiled, optimizer_, plan.stepper(job_.train), share(plan));
    return compiled;
  }

  /// Compiles with the algorithms that the job names, or else with the best that fit into what
  /// memory the plan, all direct so far, leaves.
  std::unique_ptr<engine::Program> choose_algorithms(Plan& plan) {
    if (const auto named = read_algorithms(job_.engine.algorithms, graph_, plan.grain)) {
      auto compiled = take(plan, *named, compile(layout_of(plan), *named));
      plan.reasons.push_back(fmt::format("algorithms: {}", job_.engine.algorithms));
      if (!fits(plan)) {
        refuse("engine.algorithms: {} takes {}, {} may be used; auto chooses what fits",
               job_.engine.algorithms, to_string(plan.allocated()), to_string(limit_));
      }
      return compiled;
    }
    plan.profile = profile_convolutions(graph_, profiling(plan), *known_);
    const std::vector<Item> items =
        items_of(plan.profile, graph_, share(plan) * plan.grain, plan.grain, plan.lanes);
    const Choice direct = tally(items, std::vector<size_t>(items.size(), 0), Workspace::shared);
    Bytes spare = limit_ - plan.allocated();
    constexpr int kTries = 3;
    for (int i = 0; i < kTries; ++i) {
      const auto choice = choose_exactly(items, Workspace::shared, direct.memory + spare);
      if (!choice) break;
      const Algorithms algorithms = algorithms_of(plan.profile, *choice);
      auto compiled = take(plan, algorithms, compile(layout_of(plan), algorithms));
      if (fits(plan)) {
        plan.reasons.push_back(fmt::format(
            "algorithms: convolutions take {:.1f} ms per grain, {:.1f} ms if all were direct",
            choice->time.value * 1e3, direct.time.value * 1e3));
        return compiled;
      }
      spare = Bytes{spare.value - (plan.allocated() - limit_).value - spare.value / 8};
    }
    plan.reasons.push_back("algorithms: direct, for there is no memory for others");
    return take(plan, {}, std::move(program(layout_of(plan))));
  }

  /// On all cores, whatever the lanes: what is chosen decides about the bits of the result, and
  /// these shall not depend on the number of lanes.
  ProfileOptions profiling(const Plan& plan) const {
    ProfileOptions options;
    options.grain = plan.grain;
    options.threads_per_lane = plan.threads_per_lane;
    const CoreMap& host = options_.host ? *options_.host : cores_;
    options.lanes = std::max(1, host.physical / plan.threads_per_lane);
    options.cores = cores_for(host, {plan.grain, options.lanes, plan.threads_per_lane});
    options.exact = job_.engine.precision == "exact";
    options.memory = limit_;
    options.thorough = options_.thorough;
    options.progress = options_.progress;
    return options;
  }

  /// What to write into the job to make it fit.
  std::string advice(const Plan& wanted) {
    for (int64_t batch = wanted.batch; batch >= 1; batch /= 2) {
      for (const int64_t grain : divisors(batch)) {
        if (grain > kLargestAutoGrain || !fits(attempt({grain, 1, 1}, batch))) continue;
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

  /// "; engine.memory: 96MiB would do for all of it, 40MiB is the least (grain 1 on 1 lane)" where
  /// the job sets the limit.
  std::string memory_advice(const Plan& wanted) {
    if (!limited_by_job_) return "";
    // What is resident before planning differs a little from run to run.
    constexpr int64_t kMib = int64_t{1} << 20;
    const auto needed = [](const Plan& plan) {
      return ((resident_memory() + plan.allocated()).value + 3 * kMib) / kMib;
    };
    Layout least;
    least.grain = job_.engine.grain > 0 ? job_.engine.grain : 1;
    least.lanes = static_cast<int>(std::max<int64_t>(1, job_.engine.lanes));
    least.threads = wanted_threads();
    const Plan smallest = attempt(least);
    return fmt::format("; engine.memory: {}MiB would do for all of it, {}MiB is the least ({})",
                       needed(wanted), needed(smallest), to_string(layout_of(smallest)));
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
  std::shared_ptr<Measurements> known_;
  Bytes before_;
  Bytes limit_;
  bool limited_by_job_ = false;
  /// By grain and threads per lane.
  std::map<std::pair<int64_t, int>, std::unique_ptr<engine::Program>> programs_;
};

}  // namespace

int sharers(const job::Job& job, int workers) {
  const job::Sync& sync = job.sync;
  if (job.cluster.groups > 1 || job.cluster.servers > 0) {
    const int64_t own = job.cluster.own_servers ? job.cluster.servers : 0;
    return static_cast<int>(
        std::max<int64_t>(1, (workers - own) / std::max<int64_t>(1, job.cluster.groups)));
  }
  if (sync.mode == "stale" || sync.mode == "asynchronous") return 1;
  if (sync.mode == "backup") {
    return static_cast<int>(std::max<int64_t>(1, workers - sync.backups));
  }
  return workers;
}

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
  check(job.train.batch > 0, "the batch is known");
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
      "plan    batch {} in {} of {} on {}{}{}\n", plan.batch,
      plural(plan.batch / plan.grain, "grain"), plan.grain,
      plan.workers > 1 ? fmt::format("{} of ", plural(plan.workers, "worker")) : "",
      plural(plan.lanes, "lane"),
      plan.threads_per_lane > 1 ? fmt::format(" of {} threads", plan.threads_per_lane) : "");
  if (plan.step.value > 0) {
    text.pop_back();
    text +=
        fmt::format(", about {:.0f} images/s\n", static_cast<double>(plan.batch) / plan.step.value);
  }
  text += fmt::format(
      "memory  {} at the peak: {} now, weights {}, optimizer {}, gradients {}, "
      "activations {}, inputs {}\n",
      to_string(plan.peak()), to_string(plan.before), to_string(plan.memory.weights),
      to_string(plan.memory.optimizer), to_string(plan.memory.gradients),
      to_string(plan.memory.activations), to_string(plan.memory.inputs + plan.loader));
  if (plan.samples.value > 0) {
    text.pop_back();
    text += fmt::format(", samples {}\n", to_string(plan.samples));
  }
  return text;
}

std::string to_yaml(const Plan& plan) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  out << YAML::Key << "model" << YAML::Value << plan.model;
  out << YAML::Key << "batch" << YAML::Value << plan.batch;
  out << YAML::Key << "grain" << YAML::Value << plan.grain;
  out << YAML::Key << "workers" << YAML::Value << plan.workers;
  out << YAML::Key << "lanes" << YAML::Value << plan.lanes;
  out << YAML::Key << "threads_per_lane" << YAML::Value << plan.threads_per_lane;
  out << YAML::Key << "cores" << YAML::Value << YAML::Flow << plan.cores;
  if (plan.step.value > 0) out << YAML::Key << "step_seconds" << YAML::Value << plan.step.value;
  out << YAML::Key << "isa" << YAML::Value << plan.isa;
  out << YAML::Key << "algorithms" << YAML::Value << plan.algorithms_by_name;
  out << YAML::Key << "memory_bytes" << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "before" << YAML::Value << plan.before.value;
  out << YAML::Key << "weights" << YAML::Value << plan.memory.weights.value;
  out << YAML::Key << "optimizer" << YAML::Value << plan.memory.optimizer.value;
  out << YAML::Key << "gradients" << YAML::Value << plan.memory.gradients.value;
  out << YAML::Key << "activations" << YAML::Value << plan.memory.activations.value;
  out << YAML::Key << "inputs" << YAML::Value << (plan.memory.inputs + plan.loader).value;
  out << YAML::Key << "samples" << YAML::Value << plan.samples.value;
  out << YAML::Key << "peak" << YAML::Value << plan.peak().value;
  out << YAML::Key << "limit" << YAML::Value << plan.limit.value << YAML::EndMap;
  out << YAML::Key << "reasons" << YAML::Value << plan.reasons;
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

}  // namespace convoy::plan
