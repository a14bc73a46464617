// convoy config: the job table in words.

#include <fmt/format.h>

#include "convoy/job/manual.hpp"
#include "convoy/job/read.hpp"

#include "app/verbs.hpp"

namespace convoy::app {
namespace {

struct ConfigArguments {
  std::string job;
  std::string key;
  std::vector<std::string> set;
  bool markdown = false;
};

int config_verb(const ConfigArguments& a) {
  if (a.markdown) {
    fmt::print("{}", job::markdown());
  } else if (!a.key.empty()) {
    fmt::print("{}", job::help_text(a.key));
  } else if (!a.job.empty()) {
    fmt::print("{}", job::to_yaml(job::read_job(a.job, a.set)));
  } else {
    fmt::print("{}", job::annotated_default());
  }
  return 0;
}

}  // namespace

void add_config(CLI::App& app, Run& run) {
  auto* verb = app.add_subcommand("config", "Print a job with every key, or check and resolve one");
  auto a = std::make_shared<ConfigArguments>();
  verb->add_option("JOB", a->job, "Job file to check; prints it with every key filled in");
  verb->add_option("--set", a->set, "Override a key of the job (repeatable)")
      ->type_name("KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1);
  verb->add_option("--help-key", a->key, "Explain a key or section: train.lr, train.batch, …");
  verb->add_flag("--markdown", a->markdown, "Print docs/job.md");
  verb->callback([&run, a] { run = [a] { return config_verb(*a); }; });
}

}  // namespace convoy::app
