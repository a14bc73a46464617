// convoy plan: what Convoy would decide for a job, and why.

#include <fmt/format.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/job/read.hpp"
#include "convoy/plan/algorithms.hpp"
#include "convoy/train/trainer.hpp"

#include "app/verbs.hpp"

namespace convoy::app {
namespace {

struct PlanArguments {
  std::string job;
  std::vector<std::string> set;
  bool profile = false;
};

int plan_verb(const PlanArguments& a) {
  train::Preparing options;
  options.planning = plan_options();
  options.planning.thorough = a.profile;
  options.planning.predict = true;
  const train::Prepared p = train::prepare_job(job::read_job(a.job, a.set), options);
  const plan::Plan& plan = p.planned.plan;
  std::string text = plan::describe(plan);
  for (const std::string& reason : plan.reasons) text += "  " + reason + "\n";
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
  if (a.profile) {
    if (plan.profile.empty()) {
      refuse("--profile: nothing was measured, since engine.algorithms is {}",
             p.job.engine.algorithms);
    }
    text += "\n" + plan::describe(plan.profile, p.graph);
    const auto items = plan::items_of(plan.profile, p.graph, plan.batch, plan.grain, plan.lanes);
    for (const auto form : {plan::Workspace::shared, plan::Workspace::separate}) {
      text += "\n" + plan::compare_choices(items, plan.profile, form);
    }
  }
  fmt::print("{}", text);
  return 0;
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

void add_plan(CLI::App& app, Run& run) {
  auto* verb = app.add_subcommand("plan", "Say what would be decided for a job, and why");
  auto a = std::make_shared<PlanArguments>();
  verb->add_option("JOB", a->job, "Job file (YAML)")->required();
  verb->add_option("--set", a->set, "Override a key of the job (repeatable)")
      ->type_name("KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1);
  verb->add_flag("--profile", a->profile,
                 "Show what was measured, and the choice as the memory shrinks");
  verb->callback([&run, a] { run = [a] { return plan_verb(*a); }; });
}

}  // namespace convoy::app
