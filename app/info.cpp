// convoy info: this machine, this build, the networks it knows, and the cluster that workers are.

#include <dnnl_version.h>
#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/base/threads.hpp"
#include "convoy/base/version.hpp"
#include "convoy/comm/mpi.hpp"
#include "convoy/engine/kernels/kernels.hpp"
#include "convoy/model/yaml.hpp"
#include "convoy/model/zoo.hpp"
#include "convoy/plan/measured_cluster.hpp"
#include "convoy/plan/workload.hpp"
#include "convoy/train/trainer.hpp"

#include "app/launch/launch.hpp"
#include "app/verbs.hpp"
#include "app/worker.hpp"

namespace convoy::app {
namespace {

struct InfoArguments {
  std::string model;
  bool yaml = false;
  bool cluster = false;
  std::string net = "resnet-20";
  LaunchOptions launch;
};

int machine() {
  const CoreMap cores = usable_cores();
  fmt::print("convoy   {} (oneDNN {}.{}.{}, own kernels for {})\n", version(), DNNL_VERSION_MAJOR,
             DNNL_VERSION_MINOR, DNNL_VERSION_PATCH, engine::select_kernels().isa);
  fmt::print("cpu      {}\n", cpu_name());
  for (const Cache& cache : caches()) {
    fmt::print("cache    L{} {}, shared by {}\n", cache.level, to_string(cache.size), cache.shared);
  }
  fmt::print("{}\n", describe(cores, cores.size(), 1));
  fmt::print("memory   {} available\n", to_string(available_memory()));
  fmt::print("\nmodels   (convoy info --model NAME shows one layer by layer)\n");
  for (const model::ZooEntry& entry : model::zoo()) {
    fmt::print("  {:14} {}\n", entry.name, entry.what);
  }
  return 0;
}

/// What every worker computes of a network while all do, and what the links do, for convoy plan
/// --cluster.
int cluster(const InfoArguments& a, const sync::Team& team) {
  job::Job job;
  job.model = YAML::Node(a.net);
  job.train.batch = 32 * team.size();
  job.engine.algorithms = "direct";
  const model::Graph graph = model::build(a.net);
  const auto optimizer = optim::make_optimizer(job.train);
  const plan::Planned planned =
      train::plan_together(team, job, {}, [&](const CoreMap& cores, const plan::PlanOptions& o) {
        return plan::make_plan(job, graph, *optimizer, cores, o);
      });
  if (team.size() > 1) team.meet("measuring");
  const plan::Workload own =
      plan::measure_workload(*planned.program, *optimizer, planned.plan.stepper(job.train));
  plan::Cluster found = plan::measure_cluster(team, own);
  found.note += fmt::format(", with {}; speeds are in those of the first, where to plan", a.net);
  if (team.rank() == 0) fmt::print("{}", plan::to_yaml(found));
  return 0;
}

int cluster_verb(const InfoArguments& a, const Arguments& called) {
  if (wanted(a.launch)) return launch(a.launch, called);
  if (!comm::started_by_launcher()) return cluster(a, sync::Team::alone());
  comm::MpiSession session;
  const sync::Team team(session.world(), Seconds{60});
  return as_worker(session, team, [&] { return cluster(a, team); });
}

int info_verb(const InfoArguments& a, const Arguments& called) {
  if (a.cluster) return cluster_verb(a, called);
  if (wanted(a.launch)) refuse("several workers are for info --cluster");
  if (a.model.empty()) return machine();
  const model::Graph graph = model::build(a.model);
  fmt::print("{}", a.yaml ? model::to_yaml(graph) : model::describe(graph));
  return 0;
}

}  // namespace

void add_info(CLI::App& app, Run& run, const Arguments& called) {
  auto* verb = app.add_subcommand("info", "Show this machine, this build and the model zoo");
  auto a = std::make_shared<InfoArguments>();
  verb->add_option("--model", a->model, "Show a zoo network layer by layer");
  verb->add_flag("--yaml", a->yaml, "With --model: as a graph for a job's `model:`");
  verb->add_flag("--cluster", a->cluster,
                 "Measure these workers and their links, all at once, and print them as a cluster "
                 "for convoy plan --cluster");
  verb->add_option("--net", a->net, "With --cluster: what they compute")->capture_default_str();
  add_launch_options(*verb, a->launch);
  verb->callback([&run, a, called] { run = [a, called] { return info_verb(*a, called); }; });
}

}  // namespace convoy::app
