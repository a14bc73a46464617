// convoy eval: the accuracy of a checkpoint on a job's test set.

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convoy/base/error.hpp"
#include "convoy/job/read.hpp"
#include "convoy/train/model_state.hpp"
#include "convoy/train/trainer.hpp"

#include "app/verbs.hpp"

namespace convoy::app {
namespace {

struct EvalArguments {
  std::string run_folder;
  std::string checkpoint;
  std::string which = "best";
  std::vector<std::string> set;
  bool on_train = false;
  bool json = false;
};

int eval_verb(const EvalArguments& a) {
  namespace fs = std::filesystem;
  const fs::path given(a.run_folder);
  const bool is_run = fs::is_directory(given);
  if (!is_run && a.checkpoint.empty()) {
    refuse("{} is no run folder; with a job file, name a checkpoint: --checkpoint FILE",
           given.string());
  }
  job::Job job = job::read_job(is_run ? given / "job.yaml" : given, a.set);
  // Nothing is measured for one pass over the data: the run's own plan, or what needs none.
  if (const fs::path plan = given / "plan.yaml"; is_run && fs::exists(plan)) {
    train::keep_plan(job, plan);
  } else {
    if (job.engine.algorithms == "auto") job.engine.algorithms = "direct";
    if (job.train.batch == 0) job.train.batch = job::Train{}.batch;
  }
  const fs::path checkpoint = a.checkpoint.empty()
                                  ? given / "checkpoints" / (a.which + ".safetensors")
                                  : fs::path(a.checkpoint);
  if (!fs::exists(checkpoint)) {
    refuse("there is no {}{}", checkpoint.string(),
           a.checkpoint.empty() && a.which == "best" ? "; --which last evaluates the newest state"
                                                     : "");
  }
  train::Prepared p = train::prepare_job(job);
  const engine::Program& program = *p.planned.program;
  const train::Checkpoint saved =
      train::load_weights(checkpoint, train::expected_tensors(program, *p.optimizer));
  sync::Stepper stepper(program, *p.optimizer, p.planned.plan.stepper(p.job.train));
  train::restore_weights(saved, program.arena(), stepper.weights());
  stepper.weights_changed();
  const data::Dataset& set = a.on_train ? *p.source.train : *p.source.test;
  const sync::EvalResult result = train::evaluate(stepper, p.source, set, p.planned.plan.grain);
  if (a.json) {
    fmt::print("{}\n", nlohmann::json{{"checkpoint", checkpoint.string()},
                                      {"step", saved.at.step},
                                      {"set", a.on_train ? "train" : "test"},
                                      {"samples", result.samples},
                                      {"accuracy", result.accuracy},
                                      {"loss", result.loss}}
                           .dump());
  } else {
    fmt::print("{} of step {}: accuracy {:.2f} %, loss {:.4f} on {} {} images\n",
               checkpoint.string(), saved.at.step, 100 * result.accuracy, result.loss,
               result.samples, a.on_train ? "training" : "test");
  }
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Run& run) {
  auto* verb = app.add_subcommand("eval", "Evaluate a checkpoint on every test sample once");
  auto a = std::make_shared<EvalArguments>();
  verb->add_option("RUN", a->run_folder, "Run folder, or a job file with --checkpoint")->required();
  verb->add_option("--which", a->which, "Checkpoint of the run")
      ->check(CLI::IsMember({"best", "last"}))
      ->capture_default_str();
  verb->add_option("--checkpoint", a->checkpoint, "A safetensors file instead of the run's own");
  verb->add_flag("--train-set", a->on_train, "Evaluate the training set (not augmented)");
  verb->add_option("--set", a->set, "Override a key of the job (repeatable)")
      ->type_name("KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1);
  verb->add_flag("--json", a->json, "Print one JSON object");
  verb->callback([&run, a] { run = [a] { return eval_verb(*a); }; });
}

}  // namespace convoy::app
