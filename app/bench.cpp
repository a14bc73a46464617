// convoy bench: how fast training is on this machine, as a whole and layer by layer.

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/comm/mpi.hpp"
#include "convoy/engine/peak.hpp"
#include "convoy/model/zoo.hpp"
#include "convoy/plan/measurements.hpp"
#include "convoy/plan/plan.hpp"
#include "convoy/plan/step_time.hpp"
#include "convoy/train/trainer.hpp"

#include "app/launch/launch.hpp"
#include "app/verbs.hpp"
#include "app/worker.hpp"

namespace convoy::app {
namespace {

struct BenchArguments {
  std::string model;
  int64_t batch = 32;
  int64_t threads = 0;
  int64_t threads_per_lane = 0;
  int64_t grain = 0;
  std::string algorithms = "auto";
  bool exact = false;
  int64_t steps = 10;
  int64_t warm_up = 2;
  bool json = false;
  LaunchOptions launch;
};

struct Measured {
  plan::Planned planned;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<sync::Stepper> stepper;
  std::unique_ptr<plan::RandomBatch> batch;
  double step_seconds = 0;  ///< median
};

/// Plans, warms up and measures; with `profile`, instruction times are recorded in the stepper.
Measured measure(const BenchArguments& a, const model::Graph& graph, bool profile,
                 const sync::Team& team = sync::Team::alone()) {
  job::Job job;
  job.train.batch = a.batch;
  job.train.lr.peak = 0.001;
  job.sync.mode = "bsp";
  job.engine.grain = a.grain;
  job.engine.algorithms = a.algorithms;
  job.engine.precision = a.exact ? "exact" : "fast";
  job.engine.threads_per_lane = a.threads_per_lane;
  if (a.threads > 0) {
    job.engine.lanes = std::max<int64_t>(1, a.threads / std::max<int64_t>(1, a.threads_per_lane));
  }
  Measured m;
  m.optimizer = optim::make_optimizer(job.train);
  m.planned = train::plan_together(
      team, job, plan_options(), [&](const CoreMap& cores, const plan::PlanOptions& options) {
        return plan::make_plan(job, graph, *m.optimizer, cores, options);
      });
  m.stepper = std::make_unique<sync::Stepper>(*m.planned.program, *m.optimizer,
                                              m.planned.plan.stepper(job.train), team);
  m.stepper->load([&] { engine::initialise(m.planned.program->arena(), 1, m.stepper->weights()); });
  m.batch = std::make_unique<plan::RandomBatch>(graph, a.batch, m.planned.plan.grain);
  int64_t step = 0;
  const auto tuning = [&] { return m.stepper->tuner() != nullptr && !m.stepper->tuner()->done(); };
  for (; step < a.warm_up || tuning(); ++step) {
    m.stepper->step(step, job.train.lr.peak, *m.batch);
  }
  if (profile) m.stepper->take_profile();
  std::vector<double> times;
  for (int64_t i = 0; i < a.steps; ++i, ++step) {
    const Seconds before = now();
    m.stepper->step(step, job.train.lr.peak, *m.batch);
    times.push_back((now() - before).value);
  }
  m.step_seconds = plan::median(std::move(times));
  return m;
}

int bench_model(const BenchArguments& a, const sync::Team& team) {
  const model::Graph graph = model::build(a.model);
  const Measured m = measure(a, graph, false, team);
  if (team.rank() > 0) return 0;
  const double rate = static_cast<double>(a.batch) / m.step_seconds;
  const double gflops = graph.training_flops().value * rate / 1e9;
  const plan::Plan& plan = m.planned.plan;
  if (a.json) {
    fmt::print("{}\n", nlohmann::json{{"model", a.model},
                                      {"batch", a.batch},
                                      {"images_per_second", rate},
                                      {"step_seconds", m.step_seconds},
                                      {"peak_rss_bytes", peak_resident_memory().value},
                                      {"planned_peak_bytes", plan.peak().value},
                                      {"workers", team.size()},
                                      {"lanes", plan.lanes},
                                      {"threads_per_lane", plan.threads_per_lane},
                                      {"grain", plan.grain},
                                      {"gflops", gflops}}
                           .dump());
    return 0;
  }
  fmt::print("{}", plan::describe(plan));
  fmt::print("{}  batch {}: {:.2f} images/s, {} per step, {:.1f} GFLOP/s, peak memory {}\n",
             a.model, a.batch, rate, to_string(Seconds{m.step_seconds}), gflops,
             to_string(peak_resident_memory()));
  return 0;
}

int bench_model(const BenchArguments& a, const Arguments& called) {
  if (wanted(a.launch)) return launch(a.launch, called);
  if (!comm::started_by_launcher()) return bench_model(a, sync::Team::alone());
  comm::MpiSession session;
  const sync::Team team(session.world(), Seconds{60});
  return as_worker(session, team, [&] { return bench_model(a, team); });
}

/// What one layer did in the measured steps.
struct LayerTimes {
  std::map<engine::Phase, double> seconds;
  std::map<engine::Phase, std::string> kernels;
  double total = 0;
};

std::string rate_of(const LayerTimes& layer, engine::Phase phase, double flops) {
  const auto found = layer.seconds.find(phase);
  if (found == layer.seconds.end()) return "–";
  if (flops <= 0) return fmt::format("{:.1f} ms", found->second * 1e3);
  return fmt::format("{:.1f}", flops / found->second / 1e9);
}

int bench_layers(const BenchArguments& a) {
  using engine::Phase;
  const model::Graph graph = model::build(a.model);
  const Measured m = measure(a, graph, true);
  const std::vector<double> seconds = m.stepper->take_profile();
  const std::vector<engine::InstructionInfo> infos = m.planned.program->instructions();
  std::map<model::LayerId, LayerTimes> layers;
  double total = 0;
  for (size_t i = 0; i < infos.size(); ++i) {
    LayerTimes& layer = layers[infos[i].layer];
    layer.seconds[infos[i].phase] += seconds[i];
    layer.kernels[infos[i].phase] = infos[i].kernel;
    layer.total += seconds[i];
    total += seconds[i];
  }
  const auto images = static_cast<double>(a.batch * a.steps);
  nlohmann::json rows = nlohmann::json::array();
  if (!a.json) {
    fmt::print(
        "{}, batch {}, grain {}, {} lane(s): GFLOP/s of one lane by direction (ms in all for "
        "layers that are not counted in FLOPs)\n\n",
        a.model, a.batch, m.planned.plan.grain, m.planned.plan.lanes);
    fmt::print("{:<28}{:<22}{:>10}{:>12}{:>12}{:>8}  {}\n", "layer", "kind", "forward", "bwd-data",
               "bwd-weights", "share", "kernels");
  }
  for (const auto& [id, layer] : layers) {
    const model::Layer& l = graph.layer(id);
    const double flops = graph.forward_flops(id).value * images;
    std::string kernels;
    for (const auto& [phase, kernel] : layer.kernels) {
      if (kernels.find(kernel) == std::string::npos)
        kernels += (kernels.empty() ? "" : ", ") + kernel;
    }
    if (a.json) {
      nlohmann::json row{{"layer", l.name},
                         {"kind", std::string(model::kind_name(l.kind))},
                         {"output", model::to_string(l.out)},
                         {"share", layer.total / total},
                         {"kernels", kernels}};
      const std::map<Phase, const char*> names{{Phase::forward, "forward"},
                                               {Phase::backward_data, "backward_data"},
                                               {Phase::backward_weights, "backward_weights"}};
      for (const auto& [phase, name] : names) {
        const auto found = layer.seconds.find(phase);
        if (found == layer.seconds.end()) continue;
        row[std::string(name) + "_seconds"] = found->second / static_cast<double>(a.steps);
        if (flops > 0) row[std::string(name) + "_gflops"] = flops / found->second / 1e9;
      }
      rows.push_back(row);
      continue;
    }
    fmt::print("{:<28}{:<22}{:>10}{:>12}{:>12}{:>7.1f}%  {}\n", l.name,
               fmt::format("{} {}", model::kind_name(l.kind), model::to_string(l.out)),
               rate_of(layer, Phase::forward, flops), rate_of(layer, Phase::backward_data, flops),
               rate_of(layer, Phase::backward_weights, flops), 100 * layer.total / total, kernels);
  }
  const double lane_seconds = m.step_seconds * static_cast<double>(a.steps) * m.planned.plan.lanes;
  if (a.json) {
    fmt::print("{}\n", nlohmann::json{{"model", a.model},
                                      {"batch", a.batch},
                                      {"grain", m.planned.plan.grain},
                                      {"lanes", m.planned.plan.lanes},
                                      {"step_seconds", m.step_seconds},
                                      {"share_in_layers", total / lane_seconds},
                                      {"layers", rows}}
                           .dump());
  } else {
    fmt::print(
        "\n{} per step; {:.1f} % of the lanes' time is in these layers, the rest is the update "
        "and waiting\n",
        to_string(Seconds{m.step_seconds}), 100 * total / lane_seconds);
  }
  return 0;
}

int bench_peak(bool json) {
  const engine::Peak peak = engine::measure_peak(usable_cores().size());
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"fma_gflops_per_core", peak.fma_gflops_per_core},
                                      {"copy_gb_per_second", peak.copy_gb_per_second},
                                      {"cores", peak.cores}}
                           .dump());
  } else {
    fmt::print(
        "{:.1f} GFLOP/s of fused multiply-adds per core with all {} busy; copying moves "
        "{:.1f} GB/s (read + written)\n",
        peak.fma_gflops_per_core, peak.cores, peak.copy_gb_per_second);
  }
  return 0;
}

void add_options(CLI::App* verb, const std::shared_ptr<BenchArguments>& a) {
  verb->add_option("MODEL", a->model, "Zoo name (convoy info lists them)")->required();
  verb->add_option("--batch", a->batch, "Images per step")
      ->check(CLI::Range(int64_t{1}, job::kLargestBatch))
      ->capture_default_str();
  verb->add_option("--threads", a->threads, "Threads in all (default: every usable core)")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--threads-per-lane", a->threads_per_lane,
                   "Threads that share a lane (default: by the plan)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--grain", a->grain, "Samples per grain (default: by the plan)")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--algorithms", a->algorithms,
                   "As engine.algorithms of a job: auto, an algorithm, or a plan file")
      ->capture_default_str();
  verb->add_flag("--exact", a->exact, "As engine.precision: exact");
  verb->add_option("--steps", a->steps, "Steps to measure; the median counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--warm-up", a->warm_up, "Steps before measuring")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_flag("--json", a->json, "Print one JSON object");
}

}  // namespace

void add_bench(CLI::App& app, Run& run, const Arguments& called) {
  auto* bench = app.add_subcommand("bench", "Measure training speed on this machine");
  bench->require_subcommand(1);
  auto a = std::make_shared<BenchArguments>();
  auto* model = bench->add_subcommand("model", "Training steps of a network on random samples");
  add_options(model, a);
  add_launch_options(*model, a->launch);
  model->callback([&run, a, called] { run = [a, called] { return bench_model(*a, called); }; });
  auto* layers = bench->add_subcommand("layers", "The same, layer by layer");
  add_options(layers, a);
  layers->callback([&run, a] { run = [a] { return bench_layers(*a); }; });
  add_bench_conv(*bench, run);
  add_bench_allreduce(*bench, run);
  add_bench_lowering(*bench, run);
  add_bench_data(*bench, run, called);
  add_bench_predictors(*bench, run);
  auto* peak = bench->add_subcommand("peak", "What the cores can do at most: FMA and copy rates");
  peak->add_flag("--json", a->json, "Print one JSON object");
  peak->callback([&run, a] { run = [a] { return bench_peak(a->json); }; });
}

}  // namespace convoy::app
