// convoy train: trains what a job file says.

#include <atomic>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/job/manual.hpp"
#include "convoy/job/read.hpp"
#include "convoy/train/trainer.hpp"

#include "app/verbs.hpp"

namespace convoy::app {
namespace {

struct TrainArguments {
  std::string job;
  std::string run_folder;
  std::string resume;
  std::vector<std::string> set;
  bool json = false;
};

// The only global of the program: a signal handler can reach nothing else. The first signal asks
// for a checkpoint at the next step boundary, a second one of the same kind ends at once.
std::atomic<int> g_signal{0};

void on_signal(int number) {
  g_signal = number;
  std::signal(number, SIG_DFL);
}

/// "1.52 GFLOP", "83 kFLOP".
std::string amount(Flops flops) {
  constexpr const char* kUnits[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"};
  double value = flops.value;
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return fmt::format("{:.3g} {}", value, kUnits[unit]);
}

/// Whoever read the output may have gone away: no reason to end a training, so failures are
/// ignored.
void say(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void print_head(const train::Prepared& p, const std::filesystem::path& folder) {
  std::string batch;
  for (const std::string& line : p.batch_table) batch += "        " + line + "\n";
  say(fmt::format("model   {}: {} parameters, {} per image to train\n", p.graph.name(),
                  p.graph.parameter_count(), amount(p.graph.training_flops())) +
      fmt::format("data    {}: {} training and {} test images of {}, {} classes\n", p.job.data.kind,
                  p.source.train->size(), p.source.test->size(),
                  model::to_string(p.source.train->shape()), p.source.train->classes()) +
      plan::describe(p.planned.plan) + batch + fmt::format("run     {}\n", folder.string()));
}

void print_summary(const train::Summary& s, const train::Prepared& p, const train::RunFolder& run) {
  std::string text =
      fmt::format("\n{}: {:.2f} epochs, {}, {} ({:.0f} images/s)\n", to_string(s.ending), s.epochs,
                  plural(s.steps, "step"), to_string(s.elapsed), s.images_per_second);
  if (s.last) {
    text += fmt::format("test accuracy {:.2f} %, test loss {:.4f}; best {:.2f} % at step {}\n",
                        100 * s.last->accuracy, s.last->loss, 100 * s.best_accuracy, s.best_step);
  }
  text += fmt::format("memory {} at the peak ({} planned); lanes waited {} for data\n",
                      to_string(s.peak), to_string(p.planned.plan.peak()), to_string(s.waited));
  std::vector<std::string> files;
  for (const auto& file : {run.best_checkpoint(), run.last_checkpoint(), run.events()}) {
    if (std::filesystem::exists(file))
      files.push_back(file.lexically_relative(run.path()).string());
  }
  say(text + fmt::format("written to {} ({})\n", run.path().string(), join(files, ", ")));
}

int train_verb(const TrainArguments& a) {
  const bool resume = !a.resume.empty();
  if (!resume && a.job.empty()) refuse("train needs a job file, or --resume RUN");
  if (resume && !a.run_folder.empty())
    refuse("--resume names the run folder already; leave out --run");
  const std::filesystem::path file =
      a.job.empty() ? std::filesystem::path(a.resume) / "job.yaml" : std::filesystem::path(a.job);
  std::optional<train::RunFolder> resumed;
  if (resume) resumed.emplace(train::RunFolder::resume(a.resume));
  job::Job job = job::read_job(file, a.set);
  if (resume && std::filesystem::exists(resumed->plan())) train::keep_plan(job, resumed->plan());
  train::Prepared prepared = train::prepare_job(std::move(job), plan_options());
  train::RunFolder run =
      resume ? std::move(*resumed)
             : train::RunFolder::create(
                   a.run_folder.empty()
                       ? train::default_run_folder(prepared.graph.name(), std::time(nullptr))
                       : std::filesystem::path(a.run_folder));
  std::signal(SIGPIPE, SIG_IGN);
  if (!a.json) print_head(prepared, run.path());

  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  train::TrainOptions options;
  options.resume = resume;
  options.json = a.json;
  options.stop = &g_signal;
  const train::Summary summary = train::train(prepared, run, options);
  if (!a.json) print_summary(summary, prepared, run);
  if (summary.ending != train::Ending::signal) return 0;
  if (!a.json) say(fmt::format("go on with: convoy train --resume {}\n", run.path().string()));
  return 128 + g_signal;
}

}  // namespace

void add_train(CLI::App& app, Run& run) {
  auto* verb = app.add_subcommand("train", "Train what a job file says");
  auto a = std::make_shared<TrainArguments>();
  verb->add_option("JOB", a->job, "Job file (YAML); `convoy config` prints one with every key");
  verb->add_option("--run", a->run_folder, "Folder to write (default: runs/MODEL-DATE-TIME)");
  verb->add_option("--resume", a->resume,
                   "Go on with the run in this folder from its last checkpoint");
  verb->add_option("--set", a->set, "Override a key of the job: --set train.batch=512 (repeatable)")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->add_flag("--json", a->json, "Print progress as JSON lines");
  verb->footer(
      "Keys of a job: `convoy config --help-key KEY`, docs/job.md.\n"
      "Ctrl-C or SIGTERM saves a checkpoint after the current step and stops.");
  verb->callback([&run, a] { run = [a] { return train_verb(*a); }; });
}

}  // namespace convoy::app
