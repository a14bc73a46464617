// convoy simulate: a job on a cluster that is not there. Predicted steps, published trainings by
// name, and training in virtual time.

#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/job/read.hpp"
#include "convoy/optim/asynchrony.hpp"
#include "convoy/plan/presets.hpp"
#include "convoy/plan/report.hpp"
#include "convoy/plan/search.hpp"
#include "convoy/plan/virtual_target.hpp"
#include "convoy/plan/virtual_training.hpp"
#include "convoy/train/trainer.hpp"

#include "app/verbs.hpp"

namespace convoy::app {
namespace {

struct SimulateArguments {
  std::string job;
  std::vector<std::string> set;
  std::string cluster;
  std::string preset;
  bool presets = false;
  int workers = 0;
  std::vector<int> groups;
  std::string stragglers;
  int steps = 100;
  uint64_t seed = 1;
  int64_t updates = 0;
  double target = 0;
  std::optional<double> momentum;
  bool tune = false;
};

int run_presets(const SimulateArguments& a) {
  if (a.presets) {
    for (const plan::Preset& p : plan::presets()) {
      fmt::print("{:<18}{}, {}\n", p.name, p.source, plural(p.cluster.size(), "node"));
    }
    fmt::print("{:<18}Zou et al. 2017, the overhead that workers may have\n", "zou17");
    return 0;
  }
  if (a.preset == "zou17") {
    fmt::print("{}", plan::overhead_table());
    return 0;
  }
  const plan::Preset& p = plan::preset(a.preset);
  fmt::print("{}", plan::describe(p, plan::run(p)));
  return 0;
}

plan::Cluster cluster_of(const SimulateArguments& a) {
  if (!a.cluster.empty()) return plan::read_cluster(a.cluster);
  // As many machines like this one, with links of 1 Gbit/s.
  plan::Cluster cluster;
  cluster.name = "machines like this one";
  plan::NodeType node;
  node.name = "this";
  node.count = std::max(1, a.workers);
  cluster.nodes = {node};
  cluster.note = "assumed: links of 1 Gbit/s";
  return cluster;
}

std::vector<int> groups_of(const SimulateArguments& a, int workers) {
  std::vector<int> all = a.groups;
  if (a.tune) all.insert(all.end(), {1, workers});  // to compare with
  if (!a.groups.empty()) return all;
  for (int g = 1; g <= workers; g *= 2) {
    if (workers % g == 0) all.push_back(g);
  }
  return all;
}

/// The groups' turns, by the event model.
std::map<int, plan::StepForecast> forecasts(const SimulateArguments& a, const train::Prepared& p,
                                            const plan::Workload& workload,
                                            const plan::Cluster& cluster, int workers) {
  plan::ForecastOptions options;
  options.stragglers = plan::read_stragglers(a.stragglers, workers, a.seed);
  options.stragglers.predictor = p.job.sync.predictor;
  if (options.stragglers.slowdown) options.steps = a.steps;
  const plan::EventModel model(workload, cluster, options);
  plan::Configuration c = plan::configuration_of(p.job, p.planned.plan, cluster);
  c.workers = workers;
  c.servers = static_cast<int>(p.job.cluster.servers);
  const job::Parallel& parallel = p.job.parallel;
  c.classifier = parallel.classifier == "auto" ? "data" : parallel.classifier;
  c.layers = static_cast<int>(parallel.layers);
  c.copies = c.classifier == "hybrid" ? static_cast<int>(parallel.copies) : 1;
  if (c.classifier != "data" && (workload.tail() == 0 || c.layers > workload.tail())) {
    refuse("parallel.classifier: {} ends in {}", workload.model,
           plural(workload.tail(), "linear layer"));
  }
  std::map<int, plan::StepForecast> all;
  for (const int g : groups_of(a, workers)) {
    if (g < 1 || workers % g != 0 || workers / g % c.copies != 0) {
      refuse("--groups {}: {} cannot be parted so", g, plural(workers, "worker"));
    }
    plan::Configuration fitted = c;
    fitted.groups = g;
    plan::fit(workload, plan::pins_of(p.job), {}, fitted);
    all[g] = model.forecast(fitted);
  }
  return all;
}

/// The job's network on its data, in virtual time.
class Virtual {
 public:
  Virtual(const SimulateArguments& a, const train::Prepared& p,
          const std::map<int, plan::StepForecast>& turns)
      : a_(a), p_(p), turns_(turns) {}

  /// For every number of groups.
  void train() const {
    fmt::print(
        "\ntraining in virtual time: real gradients, simulated groups; {} updates at most{}\n"
        "{:>7}{:>10}{:>12}{:>12}{:>12}{:>14}\n",
        a_.updates, a_.target > 0 ? fmt::format(", to a loss of {:g}", a_.target) : "", "groups",
        "momentum", "staleness", "updates", "time", "loss");
    for (const auto& [groups, forecast] : turns_) {
      const double momentum =
          a_.momentum.value_or(optim::explicit_momentum(p_.job.train.momentum, groups));
      const Outcome o = run(groups, momentum, p_.job.train.lr.peak);
      fmt::print("{:>7}{:>10.2f}{:>12.2f}{:>12}{:>12}{:>14}\n", groups, momentum,
                 o.run.staleness.mean(), o.run.points.size(), to_string(o.time), o.loss());
      std::fflush(stdout);
    }
  }

  /// By the tuner, beside all workers in one group and each by itself with the job's momentum.
  void tune() const {
    if (a_.target <= 0) refuse("--tune needs --target LOSS");
    const double rate = p_.job.train.lr.peak;
    const double momentum = p_.job.train.momentum;
    const auto baseline = [&](int groups, const char* what) {
      const Outcome o = run(groups, momentum, rate);
      fmt::print("{:<14}{:>4} groups, momentum {:g}, learning rate {:g}: {}\n", what, groups,
                 momentum, rate,
                 o.reached ? fmt::format("{} to the target, {} updates", to_string(o.time),
                                         o.run.points.size())
                           : "does not reach the target");
    };
    baseline(1, "synchronous");
    baseline(turns_.rbegin()->first, "asynchronous");
    const auto training = start();
    std::vector<int> groups;
    for (const auto& [g, forecast] : turns_) groups.push_back(g);
    plan::VirtualTarget target(
        *training, groups, [&](int g) { return turns_.at(g).step; }, plan::Turns::varied,
        a_.target);
    plan::TuneOptions options;
    options.momenta = {-0.3, 0, 0.3, 0.6, 0.9};
    options.rates = {10 * rate, rate, rate / 10};
    options.most = {static_cast<double>(a_.updates) * turns_.at(1).update.value};
    options.tell = [](const std::string& line) { fmt::print("  {}\n", line); };
    const plan::Tuned tuned = plan::tune(target, options);
    fmt::print(
        "{:<14}{:>4} groups, momentum {:g}, learning rate {:g}: {} to the target{}, {} of it "
        "searching ({:.1f} %)\n",
        "tuned", tuned.setting.groups, tuned.setting.momentum, tuned.setting.learning_rate,
        to_string(training->time()), tuned.reached ? "" : ", which it did not reach",
        to_string(tuned.searching),
        100 * tuned.searching.value / (tuned.searching + tuned.training).value);
  }

 private:
  struct Outcome {
    plan::VirtualRun run;
    Seconds time;
    bool reached = false;
    std::string loss() const {
      return run.diverged ? "diverged"
                          : fmt::format("{:.4f}", run.mean_loss(Seconds{0.9 * time.value}));
    }
  };

  std::unique_ptr<plan::VirtualTraining> start() const {
    plan::VirtualOptions options;
    options.batch = p_.planned.plan.batch;
    options.seed = p_.job.train.seed;
    options.augment = &p_.job.data.augment;
    options.decay_all = p_.job.train.decay_all;
    return std::make_unique<plan::VirtualTraining>(*p_.planned.program, *p_.optimizer, p_.source,
                                                   options, p_.planned.plan.stepper(p_.job.train));
  }

  Outcome run(int groups, double momentum, double rate) const {
    const auto training = start();
    plan::VirtualSetting setting;
    setting.groups = groups;
    setting.momentum = momentum;
    setting.learning_rate = rate;
    setting.turn = turns_.at(groups).step;
    Outcome outcome;
    outcome.run = training->run(setting, [&](const plan::VirtualRun& so_far) {
      const auto count = static_cast<int64_t>(so_far.points.size());
      outcome.reached =
          a_.target > 0 && plan::recent_loss(so_far, plan::VirtualTarget::kWindow) <= a_.target;
      return outcome.reached || count >= a_.updates;
    });
    outcome.time = training->time();
    return outcome;
  }

  const SimulateArguments& a_;
  const train::Prepared& p_;
  const std::map<int, plan::StepForecast>& turns_;
};

int simulate_verb(const SimulateArguments& a) {
  if (a.presets || !a.preset.empty()) return run_presets(a);
  if (a.job.empty()) refuse("simulate needs a job file, or --preset NAME (--presets lists them)");
  if (a.tune && a.updates <= 0) refuse("--tune needs --train UPDATES and --target LOSS");
  train::Preparing preparing;
  preparing.planning = plan_options();
  preparing.planning.predict = true;
  const train::Prepared p = train::prepare_job(job::read_job(a.job, a.set), preparing);
  const plan::Workload workload = train::measure_workload(p);
  const plan::Cluster cluster = cluster_of(a);
  const int workers = a.workers > 0 ? a.workers : cluster.size();
  if (workers > cluster.size()) {
    refuse("--workers {}: {} has {}", workers, cluster.name, plural(cluster.size(), "node"));
  }
  fmt::print("{} on {} of {} (simulated), batch {}\n", workload.model, plural(workers, "worker"),
             cluster.name, p.planned.plan.batch);
  if (!a.stragglers.empty()) {
    fmt::print("stragglers: {}; shares {}\n",
               plan::read_stragglers(a.stragglers, workers, a.seed).description,
               p.job.sync.mode == "balanced" ? "follow what can be foreseen" : "stay equal");
  }
  const auto all = forecasts(a, p, workload, cluster, workers);
  fmt::print("{:>7}{:>12}{:>12}{:>12}{:>12}{:>14}  {}\n", "groups", "step", "update", "computing",
             "waiting", "sent", "limit");
  for (const auto& [groups, f] : all) {
    fmt::print("{:>7}{:>12}{:>12}{:>12}{:>12}{:>14}  {}\n", groups, to_string(f.step),
               to_string(f.update), to_string(f.computing), to_string(f.waiting), to_string(f.sent),
               f.bottleneck());
  }
  if (a.updates > 0 && (p.optimizer->needs_norms() || p.job.train.clip_norm > 0)) {
    refuse(
        "--train: lars and train.clip_norm need norms, which groups in virtual time do not have");
  }
  if (a.updates > 0 && a.tune) {
    Virtual(a, p, all).tune();
  } else if (a.updates > 0) {
    Virtual(a, p, all).train();
  }
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, Run& run) {
  auto* verb = app.add_subcommand("simulate", "Run a job on a cluster that is not there");
  auto a = std::make_shared<SimulateArguments>();
  verb->add_option("JOB", a->job, "Job file (YAML)");
  verb->add_option("--set", a->set, "Override a key of the job (repeatable)")
      ->type_name("KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1);
  verb->add_option("--cluster", a->cluster, "What it is made of (docs/planning.md)")
      ->type_name("FILE");
  verb->add_option("--workers", a->workers, "Nodes to use, the fastest first (default: all)")
      ->type_name("N");
  verb->add_option("--groups", a->groups, "Numbers of groups (default: 1, 2, 4, …)")
      ->delimiter(',')
      ->type_name("LIST");
  verb->add_option(
          "--stragglers", a->stragglers,
          "Workers' times vary: by 0.2 (log-normal), 0.05:10 (one in twenty takes ten times "
          "as long), or as in a trace: constant:1,0.5, steps:20-60, load-ahead, a file")
      ->type_name("SPREAD|TRACE");
  verb->add_option("--steps", a->steps, "Steps to simulate with stragglers")
      ->check(CLI::Range(3, 1'000'000))
      ->capture_default_str();
  verb->add_option("--seed", a->seed, "Of what is random")->capture_default_str();
  verb->add_option("--train", a->updates,
                   "Train the model in virtual time, for so many updates at most")
      ->type_name("UPDATES");
  verb->add_option("--target", a->target, "With --train: stop at this training loss")
      ->type_name("LOSS");
  verb->add_option("--momentum", a->momentum,
                   "With --train: what servers apply (default: by the number of groups)")
      ->type_name("M");
  verb->add_flag("--tune", a->tune,
                 "With --train and --target: find groups, momentum and learning rate, beside one "
                 "group and as many as workers");
  verb->add_option("--preset", a->preset, "A published training by name")->type_name("NAME");
  verb->add_flag("--presets", a->presets, "List them");
  verb->callback([&run, a] { run = [a] { return simulate_verb(*a); }; });
}

}  // namespace convoy::app
