// convoy simulate: a job on a cluster that is not there. Predicted steps, published trainings by
// name, and training in virtual time.

#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

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
  std::vector<std::string> momenta;
  std::vector<double> rates;
  bool tune = false;
  bool json = false;
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
                                            const plan::Cluster& cluster, int workers,
                                            const plan::Stragglers& stragglers) {
  plan::ForecastOptions options;
  options.stragglers = stragglers;
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
      : a_(a), p_(p), turns_(turns), training_(start()), begin_(training_->keep()) {}

  /// For every number of groups, momentum and learning rate.
  void train() {
    if (!a_.json) {
      fmt::print(
          "\ntraining in virtual time: real gradients, simulated groups; {} updates at most{}\n"
          "{:>7}{:>10}{:>12}{:>12}{:>12}{:>12}{:>14}\n",
          a_.updates, a_.target > 0 ? fmt::format(", to a loss of {:g}", a_.target) : "", "groups",
          "momentum", "rate", "staleness", "updates", "time", "loss");
    }
    for (const auto& [groups, forecast] : turns_) {
      std::optional<Outcome> best;
      for (const plan::TuneSetting& setting : settings(groups)) {
        Outcome o = run(setting, best ? &*best : nullptr);
        show(o);
        if (o.reached) best = std::move(o);
      }
    }
  }

  /// By the tuner, beside all workers in one group and each by itself with the job's momentum.
  void tune() {
    if (a_.target <= 0) refuse("--tune needs --target LOSS");
    baseline(1, "synchronous");
    baseline(turns_.rbegin()->first, "asynchronous");
    training_->restore(begin_);
    std::vector<int> groups;
    for (const auto& [g, forecast] : turns_) groups.push_back(g);
    plan::VirtualTarget target(
        *training_, groups, [&](int g) { return turns_.at(g).step; }, common(), a_.target);
    const plan::Tuned tuned = plan::tune(target, tuning());
    const double all = (tuned.searching + tuned.training).value;
    const double share = all > 0 ? tuned.searching.value / all : 0;
    if (a_.json) {
      nlohmann::json row = to_json(tuned.setting);
      row.update({{"what", "tuned"},
                  {"reached", tuned.reached},
                  {"seconds", training_->time().value},
                  {"updates", training_->updates()},
                  {"trials", tuned.trials.size()},
                  {"searching_seconds", tuned.searching.value},
                  {"searching_share", share}});
      fmt::print("{}\n", row.dump());
      return;
    }
    fmt::print("{:<14}{}: {} to the target{}, {} of it searching ({:.1f} %)\n", "tuned",
               describe(tuned.setting), to_string(training_->time()),
               tuned.reached ? "" : ", which it did not reach", to_string(tuned.searching),
               100 * share);
  }

 private:
  struct Outcome {
    plan::TuneSetting setting;
    plan::VirtualRun run;
    Seconds time;
    bool reached = false;
    bool slower = false;  ///< than the best of as many groups, so it was stopped
    std::string loss() const {
      return run.diverged ? "diverged"
                          : fmt::format("{:.4f}{}", run.mean_loss(Seconds{0.9 * time.value}),
                                        slower ? ", slower" : "");
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

  plan::VirtualSetting common() const {
    plan::VirtualSetting setting;
    setting.merged = p_.job.parallel.classifier == "merged";
    setting.merged_layers = static_cast<int>(p_.job.parallel.layers);
    return setting;
  }

  static double number(const std::string& momentum) {
    double value = 0;
    const auto [end, error] =
        std::from_chars(momentum.data(), momentum.data() + momentum.size(), value);
    if (error != std::errc() || end != momentum.data() + momentum.size() || std::abs(value) >= 1) {
      refuse("--momenta: '{}' is neither measured nor a number between -1 and 1", momentum);
    }
    return value;
  }

  std::vector<plan::TuneSetting> settings(int groups) const {
    const double total = p_.job.train.momentum;
    const std::vector<double> rates =
        a_.rates.empty() ? std::vector{p_.job.train.lr.peak} : a_.rates;
    std::vector<plan::TuneSetting> all;
    for (const double rate : rates) {
      if (a_.momenta.empty()) {
        all.push_back({groups, optim::explicit_momentum(total, groups), rate});
      }
      for (const std::string& momentum : a_.momenta) {
        const bool measured = momentum == "measured";
        all.push_back({groups, measured ? total : number(momentum), rate, measured});
      }
    }
    return all;
  }

  plan::TuneOptions tuning() const {
    const double rate = p_.job.train.lr.peak;
    plan::TuneOptions options;
    options.momenta = {-0.3, 0, 0.3, 0.6, 0.9};
    if (!a_.momenta.empty()) {
      options.momenta.clear();
      for (const std::string& momentum : a_.momenta) options.momenta.push_back(number(momentum));
    }
    options.rates = a_.rates.empty() ? std::vector{10 * rate, rate, rate / 10} : a_.rates;
    options.most = {static_cast<double>(a_.updates) * turns_.at(1).update.value};
    if (!a_.json) {
      options.tell = [](const std::string& line) { fmt::print("  {}\n", line); };
    }
    return options;
  }

  void baseline(int groups, const char* what) {
    const Outcome o = run({groups, p_.job.train.momentum, p_.job.train.lr.peak});
    if (a_.json) {
      nlohmann::json row = to_json(o);
      row["what"] = what;
      fmt::print("{}\n", row.dump());
      return;
    }
    fmt::print("{:<14}{}: {}\n", what, describe(o.setting),
               o.reached ? fmt::format("{} to the target, {} updates", to_string(o.time),
                                       o.run.points.size())
                         : "does not reach the target");
  }

  /// It takes longer than the best, or is not yet where the best was in half the time.
  static bool is_slower(const plan::VirtualRun& run, const Outcome& best) {
    const Seconds time = run.points.back().time;
    if (time >= best.time) return true;
    constexpr double kSoon = 0.25;
    constexpr size_t kWindow = plan::VirtualTarget::kWindow;
    return time.value > kSoon * best.time.value &&
           plan::recent_loss(run, kWindow) >
               plan::recent_loss(best.run, kWindow, Seconds{time.value / 2});
  }

  /// From the beginning; no longer than it is worth it beside the best so far, if there is one.
  Outcome run(const plan::TuneSetting& tried, const Outcome* best = nullptr) {
    training_->restore(begin_);
    plan::VirtualSetting setting = common();
    setting.groups = tried.groups;
    setting.momentum = tried.momentum;
    setting.measured = tried.measured;
    setting.learning_rate = tried.learning_rate;
    setting.turn = turns_.at(tried.groups).step;
    Outcome outcome;
    outcome.setting = tried;
    outcome.run = training_->run(setting, [&](const plan::VirtualRun& so_far) {
      const auto count = static_cast<int64_t>(so_far.points.size());
      outcome.reached =
          a_.target > 0 && plan::recent_loss(so_far, plan::VirtualTarget::kWindow) <= a_.target;
      outcome.slower = !outcome.reached && best != nullptr && is_slower(so_far, *best);
      return outcome.reached || outcome.slower || count >= a_.updates;
    });
    outcome.time = training_->time();
    return outcome;
  }

  static nlohmann::json to_json(const plan::TuneSetting& s) {
    return {{"groups", s.groups},
            {"momentum", s.momentum},
            {"measured", s.measured},
            {"learning_rate", s.learning_rate}};
  }
  static nlohmann::json to_json(const Outcome& o) {
    nlohmann::json row = to_json(o.setting);
    row.update({{"applied_momentum", o.run.applied},
                {"staleness", o.run.staleness.mean()},
                {"updates", o.run.points.size()},
                {"seconds", o.time.value},
                {"reached", o.reached},
                {"diverged", o.run.diverged}});
    return row;
  }

  void show(const Outcome& o) const {
    if (a_.json) {
      fmt::print("{}\n", to_json(o).dump());
    } else {
      fmt::print("{:>7}{:>10}{:>12g}{:>12.2f}{:>12}{:>12}  {:>12}\n", o.setting.groups,
                 fmt::format("{}{:.2f}", o.setting.measured ? "→" : "", o.run.applied),
                 o.setting.learning_rate, o.run.staleness.mean(), o.run.points.size(),
                 to_string(o.time), o.loss());
    }
    std::fflush(stdout);
  }

  const SimulateArguments& a_;
  const train::Prepared& p_;
  const std::map<int, plan::StepForecast>& turns_;
  std::unique_ptr<plan::VirtualTraining> training_;
  plan::VirtualTraining::State begin_;
};

void show(const std::map<int, plan::StepForecast>& forecasts, bool json) {
  if (!json) {
    fmt::print("{:>7}{:>12}{:>12}{:>12}{:>12}{:>14}  {}\n", "groups", "step", "update", "computing",
               "waiting", "sent", "limit");
  }
  for (const auto& [groups, f] : forecasts) {
    if (json) {
      fmt::print("{}\n", nlohmann::json{{"what", "forecast"},
                                        {"groups", groups},
                                        {"step_seconds", f.step.value},
                                        {"update_seconds", f.update.value},
                                        {"limit", f.bottleneck()}}
                             .dump());
      continue;
    }
    fmt::print("{:>7}{:>12}{:>12}{:>12}{:>12}{:>14}  {}\n", groups, to_string(f.step),
               to_string(f.update), to_string(f.computing), to_string(f.waiting), to_string(f.sent),
               f.bottleneck());
  }
}

int simulate_verb(const SimulateArguments& a) {
  if (a.presets || !a.preset.empty()) return run_presets(a);
  if (a.job.empty()) refuse("simulate needs a job file, or --preset NAME (--presets lists them)");
  if (a.tune && a.updates <= 0) refuse("--tune needs --train UPDATES and --target LOSS");
  // What is wrong is said before anything is measured.
  const job::Job job = job::read_job(a.job, a.set);
  const plan::Cluster cluster = cluster_of(a);
  const int workers = a.workers > 0 ? a.workers : cluster.size();
  if (workers > cluster.size()) {
    refuse("--workers {}: {} has {}", workers, cluster.name, plural(cluster.size(), "worker"));
  }
  plan::Stragglers stragglers = plan::read_stragglers(a.stragglers, workers, a.seed);
  stragglers.predictor = job.sync.predictor;
  train::Preparing preparing;
  preparing.planning = plan_options();
  preparing.planning.predict = true;
  const train::Prepared p = train::prepare_job(job, preparing);
  const plan::Workload workload = train::measure_workload(p);
  if (!a.json) {
    fmt::print("{} on {} of {} (simulated), batch {}\n", workload.model, plural(workers, "worker"),
               cluster.name, p.planned.plan.batch);
    if (stragglers.slowdown) {
      fmt::print("stragglers: {}; shares {}\n", stragglers.description,
                 p.job.sync.mode == "balanced" ? "follow what can be foreseen" : "stay equal");
    }
  }
  const auto all = forecasts(a, p, workload, cluster, workers, stragglers);
  show(all, a.json);
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
  verb->add_option("--workers", a->workers, "Workers, on the fastest nodes first (default: all)")
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
  verb->add_option("--target", a->target,
                   "With --train: stop at this training loss; what is slower there than "
                   "another setting of as many groups is stopped, too")
      ->type_name("LOSS");
  verb->add_option("--momenta", a->momenta,
                   "With --train: what servers apply, numbers or measured (default: by the number "
                   "of groups); with --tune: those to try")
      ->delimiter(',')
      ->type_name("LIST");
  verb->add_option("--rates", a->rates,
                   "With --train: learning rates (default: train.lr.peak); with --tune: those to "
                   "try with one group, large ones first (default: ten times it to a tenth)")
      ->delimiter(',')
      ->type_name("LIST");
  verb->add_flag("--tune", a->tune,
                 "With --train and --target: find groups, momentum and learning rate, beside one "
                 "group and as many as workers");
  verb->add_flag("--json", a->json, "One JSON object per line");
  verb->add_option("--preset", a->preset, "A published training by name")->type_name("NAME");
  verb->add_flag("--presets", a->presets, "List them");
  verb->callback([&run, a] { run = [a] { return simulate_verb(*a); }; });
}

}  // namespace convoy::app
