#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/base/version.hpp"
#include "convoy/comm/choose.hpp"
#include "convoy/data/loader.hpp"
#include "convoy/model/yaml.hpp"
#include "convoy/optim/schedule.hpp"
#include "convoy/plan/batch.hpp"
#include "convoy/train/agree.hpp"
#include "convoy/train/async_steps.hpp"
#include "convoy/train/classifier.hpp"
#include "convoy/train/feeding.hpp"
#include "convoy/train/grouping.hpp"
#include "convoy/train/trainer.hpp"

namespace convoy::train {

model::Graph build_graph(const job::Job& job, const data::Source& source) {
  model::ZooOptions defaults;
  defaults.input = source.train->shape();
  defaults.classes = source.train->classes();
  defaults.smoothing = static_cast<float>(job.train.label_smoothing);
  model::Graph graph = model::from_yaml(job.model, job.file, defaults);
  graph.check_complete();
  if (graph.input_shape() != source.train->shape()) {
    refuse("model '{}' reads {}, but the samples of {} are {}", graph.name(),
           model::to_string(graph.input_shape()), job.data.kind,
           model::to_string(source.train->shape()));
  }
  if (graph.classes() < source.train->classes()) {
    refuse("model '{}' tells {} classes apart, but {} has {}", graph.name(), graph.classes(),
           job.data.kind, source.train->classes());
  }
  return graph;
}

namespace {

/// Those it was bound to, or, if nobody bound the host's workers, an equal part.
CoreMap cores_of(const sync::Team& team, const CoreMap& usable) {
  const std::vector<std::string> all = team.gather_text(
      fmt::format("{}", fmt::join(usable.cores, ",")), "exchanging who has which cores");
  const std::vector<int>& here = team.members(team.node());
  const bool bound = std::any_of(here.begin(), here.end(), [&](int rank) {
    return all[static_cast<size_t>(rank)] != all[static_cast<size_t>(team.rank())];
  });
  return bound ? usable : part_of(usable, team.local(), team.locals());
}

/// Of the job, and of what it names on this host.
Fingerprint identity_of(const job::Job& job, const model::Graph& graph,
                        const data::Source& source) {
  Fingerprint all = fingerprint_of(job);
  all["version"] = version();
  all["hash of the model"] = fmt::format("{:016x}", model::fingerprint(graph));
  all["fingerprint of the data"] = fmt::format("{:016x}", source.fingerprint);
  all["instruction set"] = engine::select_kernels().isa;
  return all;
}

void check_order(const job::Sync& sync) {
  if (!sync.reproducible || sync.allreduce == "auto" || sync.allreduce == "tree") return;
  refuse(
      "sync.allreduce: {} adds in another order than one worker would; with it say "
      "sync.reproducible: false, or leave it to auto",
      sync.allreduce);
}

void check_shares(const job::Job& job, const plan::Plan& plan, const sync::Team& team) {
  const std::vector<int64_t>& shares = job.sync.shares;
  if (shares.empty()) return;
  const int64_t grains = plan.batch / plan.grain;
  const int64_t sum = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  if (static_cast<int>(shares.size()) == team.size() && sum == grains) return;
  refuse(
      "sync.shares: [{}] are {} for {} in all; there are {}, and a batch of {} has {} of {} "
      "samples",
      fmt::join(shares, ", "), plural(static_cast<int64_t>(shares.size()), "share"),
      plural(sum, "grain"), plural(team.size(), "worker"), plan.batch, plural(grains, "grain"),
      plan.grain);
}

/// Takes over what the plan of another worker, or of the run, has for what the job leaves open.
/// `algorithms` stands for the plan in the job.
void keep_plan(job::Job& job, const YAML::Node& plan, const std::string& algorithms) {
  if (job.engine.algorithms == "auto") job.engine.algorithms = algorithms;
  if (job.train.batch == 0) job.train.batch = plan["batch"].as<int64_t>();
  if (job.engine.threads_per_lane == 0 && plan["threads_per_lane"]) {
    job.engine.threads_per_lane = plan["threads_per_lane"].as<int64_t>();
  }
  const auto grain = plan["grain"].as<int64_t>();
  if (job.engine.grain == 0 && grain > 0 && job.train.batch % grain == 0) job.engine.grain = grain;
}

}  // namespace

plan::Planned plan_together(const sync::Team& team, job::Job& job, plan::PlanOptions options,
                            const PlanHere& plan_here) {
  options.workers = team.size();
  options.locals = team.locals();
  options.host = usable_cores();
  const CoreMap cores = cores_of(team, *options.host);
  plan::Planned planned;
  together(team, "planning", [&] {
    if (team.rank() == 0) planned = plan_here(cores, options);
  });
  const std::string plan =
      team.text_from_first(team.rank() == 0 ? plan::to_yaml(planned.plan) : "", "planning");
  together(team, "planning", [&] {
    if (team.rank() == 0) return;
    keep_plan(job, YAML::Load(plan), plan);
    planned = plan_here(cores, options);
  });
  return planned;
}

namespace {

/// Worker 0 packs a folder of images if that has not been done; the others wait for as long as it
/// takes, but hear from it all the time.
void pack_together(const job::Data& data, const Preparing& options, const sync::Team& team) {
  const auto pack = [&] {
    const std::string note =
        data::pack_first(data, usable_cores().size(), nullptr, options.packing);
    if (!note.empty() && options.planning.note) options.planning.note(note);
  };
  if (team.size() == 1) return pack();
  std::future<void> packing;
  if (team.rank() == 0) packing = std::async(std::launch::async, pack);
  for (std::byte busy{1}; busy != std::byte{0};) {
    if (team.rank() == 0) {
      constexpr std::chrono::seconds kBeat(1);
      busy = std::byte{packing.wait_for(kBeat) != std::future_status::ready};
    }
    team.from_first(*team.world(), std::span(&busy, 1), "packing the images");
  }
  together(team, "packing the images", [&] {
    if (packing.valid()) packing.get();
  });
}

/// The least that any worker has for packed samples.
Bytes samples_budget(const job::Data& data, const plan::Plan& plan, const sync::Team& team) {
  int64_t own = data.memory.value;
  if (own == 0) own = std::max<int64_t>(0, (plan.limit - plan.allocated()).value / 2);
  return {std::ranges::min(team.gather_numbers(own, "planning memory for samples"))};
}

}  // namespace

Prepared prepare_job(job::Job job, const Preparing& given, const sync::Team& team) {
  if (!job.data.path.empty()) {
    job.data.path = std::filesystem::absolute(job.data.path).lexically_normal().string();
  }
  data::Source source;
  std::optional<model::Graph> graph;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::vector<std::string> batch_table;
  if (job.data.kind == "folder") pack_together(job.data, given, team);
  together(team, "opening the data", [&] {
    check_order(job.sync);
    source = data::open(job.data);
    graph.emplace(build_graph(job, source));
    optimizer = optim::make_optimizer(job.train);
  });
  compare(team, identity_of(job, *graph, source));
  const job::Cluster asked_cluster = job.cluster;
  const job::Parallel asked_parallel = job.parallel;
  const PlanHere plan_here = [&](const CoreMap& cores, const plan::PlanOptions& options) {
    if (job.train.batch == 0) {
      const plan::BatchChoice choice =
          plan::choose_batch(job, *graph, source, *optimizer, cores, options);
      job.train.batch = choice.batch;
      batch_table = plan::describe(choice);
    }
    optim::check(job.train.lr, optim::schedule_context(job.train, source.train->size()));
    plan::Planned own = plan::make_plan(job, *graph, *optimizer, cores, options);
    std::vector<std::string>& reasons = own.plan.reasons;
    reasons.insert(reasons.begin(), batch_table.begin(), batch_table.end());
    check_shares(job, own.plan, team);
    batch_of_worker(job.sync, own.plan, team.size());  // refuses what cannot be parted
    return own;
  };
  plan::Planned planned;
  Spread spread;
  const job::Engine asked_engine = job.engine;
  if (leaves_spread_open(job, team.size())) {
    const int64_t groups = std::exchange(job.cluster.groups, 1);
    plan::PlanOptions measuring = given.planning;
    measuring.predict = true;
    planned = plan_together(team, job, measuring, plan_here);
    job.cluster.groups = groups;
    spread = decide_spread(job, planned, team);
  }
  if (!planned.program || plan::sharers(job, team.size()) != team.size()) {
    // What the others took over of the first plan is not what the job says.
    job.engine = asked_engine;
    planned = plan_together(team, job, given.planning, plan_here);
  }
  planned.plan.reasons.insert(planned.plan.reasons.end(), spread.reasons.begin(),
                              spread.reasons.end());
  together(team, "planning", [&] {
    check_groups(job, team);
    check_classifier(job, *planned.program, *optimizer, team);
  });
  plan::StorePlan store;
  const bool served = is_asynchronous(job.sync, team.size()) || in_groups(job, team.size());
  if (served) {
    // A gradient as a whole, and this worker's shard of weights and states.
    const Bytes arena{4 * planned.program->arena().size()};
    planned.plan.memory.gradients += arena;
    planned.plan.memory.optimizer +=
        Bytes{(1 + optimizer->state_arrays()) * arena.value / team.size()};
  }
  if (source.packed.file != nullptr && served) {
    store.reason = fmt::format(
        "samples are read from disk: {} nobody knows ahead who needs them",
        in_groups(job, team.size()) ? "with groups" : fmt::format("in mode {}", job.sync.mode));
  } else if (source.packed.file != nullptr) {
    plan::Plan& plan = planned.plan;
    Seconds step = plan.step;  // of the first worker: all must decide the same
    if (team.world() != nullptr) {
      team.from_first(*team.world(), std::as_writable_bytes(std::span(&step, 1)), "planning");
    }
    store = plan::plan_store(source, job.data, store_options(job, plan, source, team),
                             samples_budget(job.data, plan, team), step,
                             [&] { return comm::measure_links(*team.world(), team.deadline()); });
    plan.samples = store.memory;
    plan.reasons.push_back(store.reason);
  }
  return {std::move(job),     std::move(source),      std::move(*graph), std::move(optimizer),
          std::move(planned), std::move(batch_table), std::move(store),  asked_cluster,
          asked_parallel,     std::move(spread)};
}

void keep_plan(job::Job& job, const std::filesystem::path& plan) {
  const std::string file = plan.string();
  try {
    keep_plan(job, YAML::LoadFile(file), file);
  } catch (const YAML::Exception& error) {
    if (job.engine.grain > 0 && job.train.batch > 0) return;
    refuse("{}: no plan can be read from it ({}); name the run's grain by --set engine.grain=N",
           file, error.what());
  }
}

plan::Workload measure_workload(const Prepared& p) {
  const plan::Plan& plan = p.planned.plan;
  plan::Workload workload =
      plan::measure_workload(*p.planned.program, *p.optimizer, plan.stepper(p.job.train));
  data::LoaderOptions loading;
  loading.batch = plan.batch;
  loading.grain = plan.grain;
  loading.seed = p.job.train.seed;
  loading.augment = &p.job.data.augment;
  const int64_t threads =
      p.job.data.threads > 0 ? p.job.data.threads : plan.lanes * plan.threads_per_lane;
  workload.data = {data::measure_preparation(p.source, loading).value /
                   static_cast<double>(std::max<int64_t>(1, threads))};
  return workload;
}

sync::StepperOptions stepper_options(const Prepared& p) {
  sync::StepperOptions options = p.planned.plan.stepper(p.job.train);
  const job::Sync& wish = p.job.sync;
  options.shares = wish.shares;
  if (wish.bucket.value > 0) options.exchange.buckets = {wish.bucket};
  options.exchange.overlap = wish.overlap;
  using Order = sync::ExchangeOptions::Order;
  if (wish.allreduce != "auto" && wish.allreduce != "tree") {
    options.exchange.order = Order::given;
    options.exchange.way = comm::parse_algorithm(wish.allreduce);
  } else if (wish.allreduce == "auto" && !wish.reproducible) {
    options.exchange.order = Order::fastest;
  }
  return options;
}

namespace {

/// Grains [first, last) of an evaluation.
sync::EvalResult evaluate_part(sync::Stepper& stepper, const data::Source& source,
                               const data::Dataset& set, int64_t grain, int64_t first,
                               int64_t last) {
  return stepper.evaluate(
      last - first, [&](int64_t index, std::span<float> inputs, std::span<int32_t> labels) {
        return data::eval_grain(source, set, first + index, grain, inputs, labels);
      });
}

}  // namespace

sync::EvalResult evaluate(sync::Stepper& stepper, const data::Source& source,
                          const data::Dataset& set, int64_t grain) {
  return evaluate_part(stepper, source, set, grain, 0, (set.size() + grain - 1) / grain);
}

sync::EvalResult evaluate_together(sync::Stepper& stepper, const data::Source& source,
                                   int64_t grain, const EvalPart* part_of) {
  const data::Dataset& set = *source.test;
  if (part_of == nullptr) return evaluate(stepper, source, set, grain);
  const int64_t grains = (set.size() + grain - 1) / grain;
  const auto edge = [&](int64_t part) { return grains * part / part_of->parts; };
  sync::EvalResult own =
      evaluate_part(stepper, source, set, grain, edge(part_of->part), edge(part_of->part + 1));
  if (!part_of->counts) own = {};
  sync::EvalResult all;
  for (const auto& bytes : part_of->team->gather(std::as_bytes(std::span(&own, 1)), "evaluating")) {
    sync::EvalResult part;
    std::memcpy(&part, bytes.data(), sizeof part);
    all.loss += part.loss * static_cast<double>(part.samples);
    all.accuracy += part.accuracy * static_cast<double>(part.samples);
    all.samples += part.samples;
  }
  if (all.samples > 0) {
    all.loss /= static_cast<double>(all.samples);
    all.accuracy /= static_cast<double>(all.samples);
  }
  return all;
}

}  // namespace convoy::train
