// convoy plan: what Convoy would decide for a job, and why; on this machine, on these workers, or
// on a cluster that is only described.

#include <fmt/format.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/base/text.hpp"
#include "convoy/comm/mpi.hpp"
#include "convoy/job/read.hpp"
#include "convoy/plan/algorithms.hpp"
#include "convoy/plan/measured_cluster.hpp"
#include "convoy/plan/report.hpp"
#include "convoy/plan/search.hpp"
#include "convoy/plan/workload.hpp"
#include "convoy/train/agree.hpp"
#include "convoy/train/trainer.hpp"

#include "app/launch/launch.hpp"
#include "app/verbs.hpp"
#include "app/worker.hpp"

namespace convoy::app {
namespace {

struct PlanArguments {
  std::string job;
  std::vector<std::string> set;
  bool profile = false;
  std::string cluster;
  std::string report;
  std::string out;
  std::string write_cluster;
  double noise = 0;
  int nodes = 0;
  LaunchOptions launch;

  bool spreads() const {
    return !cluster.empty() || !report.empty() || !out.empty() || !write_cluster.empty();
  }
};

std::string describe_algorithms(const train::Prepared& p, bool profile) {
  const plan::Plan& plan = p.planned.plan;
  std::string text;
  if (plan.algorithms_by_name.size() > 0) {
    text += "algorithms (what is not listed is direct)\n";
    for (const auto& entry : plan.algorithms_by_name) {
      text += fmt::format("  {:<28}", entry.first.Scalar());
      for (const auto& direction : entry.second) {
        text += fmt::format(" {} {}", direction.first.Scalar(), direction.second.Scalar());
      }
      text += "\n";
    }
  }
  if (!profile) return text;
  if (plan.profile.empty()) {
    refuse("--profile: nothing was measured, since engine.algorithms is {}",
           p.job.engine.algorithms);
  }
  text += "\n" + plan::describe(plan.profile, p.graph);
  const auto items = plan::items_of(plan.profile, p.graph, plan.batch, plan.grain, plan.lanes);
  for (const auto form : {plan::Workspace::shared, plan::Workspace::separate}) {
    text += "\n" + plan::compare_choices(items, plan.profile, form);
  }
  return text;
}

/// What the job says about how it is spread; `auto` is open.
plan::SearchOptions search_options(const PlanArguments& a, const job::Job& job,
                                   const plan::Plan& plan, const plan::Workload& workload,
                                   const plan::Cluster& cluster) {
  plan::SearchOptions options;
  options.start = plan::configuration_of(job, plan, cluster);
  options.pins = plan::pins_of(job);
  options.statistics.batch = plan.batch;
  options.statistics.noise_scale = a.noise;
  options.statistics.momentum = job.train.momentum;
  options.pins.reproducible = job.sync.reproducible;
  if (job.cluster.groups > 0) options.pins.groups = static_cast<int>(job.cluster.groups);
  // What training would refuse (train::check_groups, check_classifier).
  const bool waits = job.sync.mode == "bsp" || job.sync.mode == "balanced";
  const bool norms = job.train.optimizer == "lars" || job.train.clip_norm > 0;
  if (!waits || !job.sync.shares.empty()) options.pins.groups = 1;
  if (job.train.optimizer == "adam") options.statistics.momentum = 0.9;
  if (job.cluster.servers > 0) options.pins.servers = static_cast<int>(job.cluster.servers);
  if (job.parallel.classifier != "auto") {
    options.pins.classifier = job.parallel.classifier;
    const int all = workload.tail();
    options.pins.layers = job.parallel.layers > 0 ? static_cast<int>(job.parallel.layers) : all;
    options.pins.copies = static_cast<int>(job.parallel.copies);
    if (job.parallel.classifier != "data" && (all == 0 || *options.pins.layers > all)) {
      refuse("parallel.classifier: {} ends in {}", workload.model, plural(all, "linear layer"));
    }
  } else if (!waits || norms) {
    options.pins.classifier = "data";
  }
  if (a.nodes > 0) options.pins.workers = a.nodes;
  if (a.noise <= 0) options.pins.batch = plan.batch;
  return options;
}

void write(const std::string& file, const std::string& text) {
  if (file.empty()) return;
  write_atomically(file, text);
  fmt::print("written {}\n", file);
}

std::string settings_yaml(const plan::SearchResult& found) {
  std::string text =
      fmt::format("# convoy train JOB --workers {}", found.best().configuration.processes());
  for (const std::string& s : plan::settings_of(found.best().configuration)) text += " --set " + s;
  text += fmt::format("\nworkers: {}\n", found.best().configuration.workers);
  text += fmt::format("predicted_step_seconds: {:.6g}\n", found.best().forecast.step.value);
  text += fmt::format("predicted_update_seconds: {:.6g}\n", found.best().forecast.update.value);
  text += fmt::format("predicted_sent_bytes: {}\n", found.best().forecast.sent.value);
  text += "settings:\n";
  for (const std::string& s : plan::settings_of(found.best().configuration)) {
    const size_t at = s.find('=');
    text += fmt::format("  {}: {}\n", s.substr(0, at), s.substr(at + 1));
  }
  return text;
}

/// Plans for `cluster`; worker 0 of those that measured.
void plan_cluster(const PlanArguments& a, const job::Job& job, const train::Prepared& p,
                  const plan::Workload& workload, const plan::Cluster& cluster) {
  const plan::SearchOptions options = search_options(a, job, p.planned.plan, workload, cluster);
  const plan::SearchResult found = plan::search(workload, cluster, options);
  const plan::ReportData data{&workload, &cluster, &found,
                              plan::advise(workload, cluster, options, found), options};
  fmt::print("{}", plan::describe(data));
  write(a.out, settings_yaml(found));
  write(a.report, plan::report_html(data));
  write(a.write_cluster, plan::to_yaml(cluster));
}

int plan_here(const PlanArguments& a, sync::Team& team) {
  train::Preparing preparing;
  preparing.planning = plan_options();
  preparing.planning.thorough = a.profile;
  preparing.planning.predict = true;
  if (team.rank() > 0) preparing.planning.progress = nullptr;
  const job::Job asked = job::read_job(a.job, a.set);
  job::Job job = asked;
  // What is open is decided here, for whatever cluster; each worker plans for itself.
  if (job.cluster.groups == 0) job.cluster.groups = 1;
  if (job.parallel.classifier == "auto") job.parallel.classifier = "data";
  const bool described = !a.cluster.empty();
  if (described) job.cluster.groups = 1;
  const train::Prepared p = train::prepare_job(job, preparing, team);
  const plan::Plan& plan = p.planned.plan;
  if (team.rank() == 0) {
    std::string text = plan::describe(plan);
    for (const std::string& reason : plan.reasons) text += "  " + reason + "\n";
    fmt::print("{}", text + describe_algorithms(p, a.profile));
  }
  if (!a.spreads() && team.size() == 1) return 0;
  if (team.size() > 1) team.meet("measuring");
  const plan::Workload workload = train::measure_workload(p);
  const plan::Cluster cluster =
      described ? plan::read_cluster(a.cluster) : plan::measure_cluster(team, workload);
  if (team.rank() == 0) plan_cluster(a, asked, p, workload, cluster);
  return 0;
}

int plan_verb(const PlanArguments& a, const Arguments& called) {
  if (wanted(a.launch)) return launch(a.launch, called);
  if (!comm::started_by_launcher()) {
    sync::Team team;
    return plan_here(a, team);
  }
  comm::MpiSession session;
  sync::Team team(session.world(), Seconds{60});
  return as_worker(session, team, [&] { return plan_here(a, team); });
}

}  // namespace

plan::PlanOptions plan_options() {
  plan::PlanOptions options;
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  options.measure = true;
  options.progress = [terminal, said = std::make_shared<bool>(false)](int done, int all,
                                                                      const std::string& what) {
    if (terminal && done == all) {
      fmt::print(stderr, "\r\033[K");
    } else if (terminal) {
      fmt::print(stderr, "\r\033[Kmeasuring {}/{}: {}", done + 1, all, what);
    } else if (!*said) {
      *said = true;
      fmt::print(stderr, "measuring what is fastest, once for this machine and model …\n");
    }
    std::fflush(stderr);
  };
  options.note = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  return options;
}

void add_plan(CLI::App& app, Run& run, const Arguments& called) {
  auto* verb = app.add_subcommand("plan", "Say what would be decided for a job, and why");
  auto a = std::make_shared<PlanArguments>();
  verb->add_option("JOB", a->job, "Job file (YAML)")->required();
  verb->add_option("--set", a->set, "Override a key of the job (repeatable)")
      ->type_name("KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1);
  verb->add_flag("--profile", a->profile,
                 "Show what was measured, and the choice as the memory shrinks");
  verb->add_option("--cluster", a->cluster,
                   "Plan for the cluster that this file describes (docs/planning.md)")
      ->type_name("FILE");
  verb->add_option("--nodes", a->nodes,
                   "Use so many of the cluster, the fastest (default: the best)")
      ->type_name("N");
  verb->add_option("--report", a->report, "Write a page with the plan and its plots")
      ->type_name("FILE");
  verb->add_option("--out", a->out, "Write the plan's settings (YAML)")->type_name("FILE");
  verb->add_option("--write-cluster", a->write_cluster,
                   "Write the cluster as it was measured, for --cluster")
      ->type_name("FILE");
  verb->add_option("--noise", a->noise,
                   "Gradient noise scale in samples, to choose the batch, too (train.batch: auto "
                   "measures it)")
      ->type_name("SAMPLES");
  add_launch_options(*verb, a->launch);
  verb->footer(
      "What the job leaves open is decided: cluster.groups and parallel.classifier where they are "
      "auto.\nWith --workers or --hosts the plan is for these workers, measured all at once.");
  verb->callback([&run, a, called] { run = [a, called] { return plan_verb(*a, called); }; });
}

}  // namespace convoy::app
