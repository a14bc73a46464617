// convoy train: trains what a job file says.

#include <atomic>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/comm/mpi.hpp"
#include "convoy/job/manual.hpp"
#include "convoy/job/read.hpp"
#include "convoy/sync/replay.hpp"
#include "convoy/train/agree.hpp"
#include "convoy/train/progress.hpp"
#include "convoy/train/trainer.hpp"

#include "app/launch/launch.hpp"
#include "app/launch/supervise.hpp"
#include "app/pack_progress.hpp"
#include "app/verbs.hpp"
#include "app/worker.hpp"

namespace convoy::app {
namespace {

struct TrainArguments {
  std::string job;
  std::string run_folder;
  std::string resume;
  std::vector<std::string> set;
  bool json = false;
  std::string trace;
  bool traced = false;
  std::string replay;
  LaunchOptions launch;
};

// The only global of the program: a signal handler can reach nothing else. The first signal asks
// for a checkpoint at the next step boundary, a second one of the same kind ends at once.
std::atomic<int> g_signal{0};

void on_signal(int number) {
  g_signal = number;
  std::signal(number, SIG_DFL);
}

// The launcher's way to pass a signal on: mpirun would end the job at once at any other. It comes
// again and again until the workers have stopped.
void on_stop_signal(int /*number*/) {
  g_signal = SIGTERM;
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
void say(std::FILE* out, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

std::string describe_cores(const plan::Plan& plan) {
  const std::string lanes = plural(plan.lanes, "lane");
  return plan.cores.empty() ? lanes : fmt::format("{} on {}", lanes, fmt::join(plan.cores, ", "));
}

std::string describe_mode(const job::Sync& sync) {
  if (!sync.shares.empty()) {
    return fmt::format("shares of {} grains, as the job has them", fmt::join(sync.shares, ", "));
  }
  if (sync.mode == "balanced") {
    return fmt::format("balanced: shares follow speeds ({}, predictor {})", sync.solver,
                       sync.predictor);
  }
  if (sync.mode == "stale") {
    return fmt::format("stale: nobody is more than {} ahead of the slowest",
                       plural(sync.bound, "update"));
  }
  if (sync.mode == "backup") {
    return fmt::format("backup: a step does not wait for the slowest {}",
                       plural(sync.backups, "worker"));
  }
  return sync.mode == "bsp" ? "bsp: equal shares" : "asynchronous: nobody waits for anybody";
}

void print_head(std::FILE* out, const train::Prepared& p, const std::filesystem::path& folder,
                const sync::Team& team) {
  std::string batch;
  for (const std::string& line : p.batch_table) batch += "        " + line + "\n";
  if (team.size() > 1) {
    batch += fmt::format("team    {} on {}; this is {}, which runs {}\n",
                         plural(team.size(), "worker"), plural(team.nodes(), "host"),
                         team.name(team.rank()), describe_cores(p.planned.plan));
    const int64_t idle =
        plan::sharers(p.job, team.size()) - p.planned.plan.batch / p.planned.plan.grain;
    batch += fmt::format("        {}\n", describe_mode(p.job.sync));
    for (const std::string& line : p.spread.reasons) batch += fmt::format("        {}\n", line);
    if (idle > 0 && p.job.sync.shares.empty()) {
      batch +=
          fmt::format("        {} of {} workers have nothing to do: there are more than grains\n",
                      idle, team.size());
    }
  }
  say(out, fmt::format("model   {}: {} parameters, {} per image to train\n", p.graph.name(),
                       p.graph.parameter_count(), amount(p.graph.training_flops())) +
               fmt::format("data    {}: {} training and {} test images of {}, {} classes\n",
                           p.job.data.kind, p.source.train->size(), p.source.test->size(),
                           model::to_string(p.source.train->shape()), p.source.train->classes()) +
               (p.store.reason.empty() ? "" : fmt::format("        {}\n", p.store.reason)) +
               plan::describe(p.planned.plan) + batch +
               fmt::format("run     {}\n", folder.string()));
}

void print_summary(std::FILE* out, const train::Summary& s, const train::Prepared& p,
                   const std::filesystem::path& folder) {
  std::string text =
      fmt::format("\n{}: {:.2f} epochs, {}, {} ({:.0f} images/s)\n", to_string(s.ending), s.epochs,
                  plural(s.steps, "step"), to_string(s.elapsed), s.images_per_second);
  if (s.last) {
    text += fmt::format("test accuracy {:.2f} %, test loss {:.4f}; best {:.2f} % at step {}\n",
                        100 * s.last->accuracy, s.last->loss, 100 * s.best_accuracy, s.best_step);
  }
  text += fmt::format("memory {} at the peak ({} planned); lanes waited {} for data ({:.2f} %)\n",
                      to_string(s.peak), to_string(p.planned.plan.peak()), to_string(s.waited),
                      100 * s.waited_part);
  if (s.bad > 0) {
    text += fmt::format("{} left out; events.jsonl names them\n", plural(s.bad, "damaged sample"));
  }
  if (s.exchanging.value > 0) {
    text += fmt::format("exchanging with other hosts took {}, of which lanes waited {}\n",
                        to_string(s.exchanging), to_string(s.waited_for_weights));
  }
  if (!s.scheme.empty()) text += s.scheme + "\n";
  std::vector<std::string> files;
  for (const char* file :
       {"checkpoints/best.safetensors", "checkpoints/last.safetensors", "events.jsonl", "logs"}) {
    if (std::filesystem::exists(folder / file)) files.emplace_back(file);
  }
  say(out, text + fmt::format("written to {} ({})\n", folder.string(), join(files, ", ")));
}

/// "5-9" are the steps from the fifth to the ninth.
std::pair<int64_t, int64_t> steps_of(const std::string& text) {
  const size_t dash = text.find('-');
  try {
    size_t used = 0;
    const int64_t first = std::stoll(text.substr(0, dash), &used);
    if (used != std::min(dash, text.size())) throw std::invalid_argument("");
    const std::string rest = dash == std::string::npos ? text : text.substr(dash + 1);
    const int64_t last = std::stoll(rest, &used);
    if (used != rest.size() || first < 1 || last < first) throw std::invalid_argument("");
    return {first - 1, last};
  } catch (const std::logic_error&) {
    refuse("--trace {}: expected steps such as 5-9, counted from 1", text);
  }
}

sync::Replay replay_of(const TrainArguments& a, const sync::Team& team) {
  return sync::Replay::read(a.replay, team.size());
}

/// One worker's part in a training: all of it, if it is alone.
class Sitting {
 public:
  Sitting(const TrainArguments& a, sync::Team& team) : a_(a), team_(team) {}

  int run() {
    std::signal(SIGPIPE, SIG_IGN);
    train::together(team_, "reading the job", [&] { check_arguments(); });
    job::Job job = read_job();
    team_.set_deadline(Seconds{job.sync.deadline});
    train::Prepared prepared = train::prepare_job(std::move(job), preparing(), team_);
    open_folder(prepared.graph.name());
    if (!a_.json) print_head(out_, prepared, folder_, team_);

    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
    train::TrainOptions options;
    options.resume = resumes();
    options.json = a_.json && team_.rank() == 0;
    options.out = out_;
    options.stop = &g_signal;
    options.replay = a_.replay;
    if (!a_.json && !a_.replay.empty()) {
      say(out_, fmt::format("slowed  {}\n", replay_of(a_, team_).describe()));
    }
    if (a_.traced) options.trace = steps_of(a_.trace);
    const train::Summary summary = train::train(prepared, run_ ? &*run_ : nullptr, options, team_);
    if (!a_.json) print_summary(out_, summary, prepared, folder_);
    if (summary.ending != train::Ending::signal) return 0;
    if (!a_.json)
      say(out_, fmt::format("go on with: convoy train --resume {}\n", folder_.string()));
    return 128 + summary.signal;
  }

  ~Sitting() {
    if (out_ != stdout) std::fclose(out_);
  }
  Sitting(const Sitting&) = delete;
  Sitting& operator=(const Sitting&) = delete;

 private:
  bool resumes() const { return !a_.resume.empty(); }

  void check_arguments() const {
    if (a_.traced) steps_of(a_.trace);
    if (!a_.replay.empty()) replay_of(a_, team_);
    if (!resumes() && a_.job.empty()) refuse("train needs a job file, or --resume RUN");
    if (resumes() && !a_.run_folder.empty()) {
      refuse("--resume names the run folder already; leave out --run");
    }
  }

  /// A new training's job is read by every worker, a resumed one's by the first, who has the
  /// folder.
  job::Job read_job() {
    job::Job job;
    train::together(team_, "reading the job", [&] {
      if (resumes() && team_.rank() > 0) return;
      if (resumes()) run_.emplace(train::RunFolder::resume(a_.resume));
      const std::filesystem::path file = a_.job.empty()
                                             ? std::filesystem::path(a_.resume) / "job.yaml"
                                             : std::filesystem::path(a_.job);
      job = job::read_job(file, a_.set);
      if (run_ && std::filesystem::exists(run_->plan())) train::keep_plan(job, run_->plan());
    });
    if (!resumes() || team_.size() == 1) return job;
    const std::string text =
        team_.text_from_first(team_.rank() == 0 ? job::to_yaml(job) : "", "reading the job");
    return team_.rank() == 0 ? job : job::parse_job(text, a_.resume);
  }

  /// Only the first shows its progress on the terminal.
  train::Preparing preparing() const {
    train::Preparing options;
    options.planning = plan_options();
    if (team_.rank() > 0) {
      options.planning.progress = nullptr;
    } else {
      options.packing = [progress = std::make_shared<PackProgress>("packing")](
                            const data::PackStanding& standing) { (*progress)(standing); };
    }
    return options;
  }

  void open_folder(const std::string& model) {
    train::together(team_, "making the run folder", [&] {
      if (team_.rank() > 0 || run_) return;
      run_.emplace(train::RunFolder::create(
          a_.run_folder.empty() ? train::default_run_folder(model, std::time(nullptr))
                                : std::filesystem::path(a_.run_folder)));
    });
    folder_ = team_.text_from_first(run_ ? run_->path().string() : "", "making the run folder");
    train::together(team_, "opening the logs", [&] {
      if (team_.rank() == 0) return;
      const std::filesystem::path log = train::RunFolder::log(folder_, team_.rank());
      std::filesystem::create_directories(log.parent_path());
      out_ = std::fopen(log.c_str(), "a");
      if (out_ == nullptr) {
        out_ = stdout;
        fail("cannot write {}", log.string());
      }
    });
  }

  const TrainArguments& a_;
  sync::Team& team_;
  std::optional<train::RunFolder> run_;  // of the first worker
  std::filesystem::path folder_;
  std::FILE* out_ = stdout;
};

/// The words of a call without an option and its value, wherever it stands.
Arguments without_option(const Arguments& words, const std::string& name) {
  Arguments kept;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(name + "=")) continue;
    if (words[i] == name) {
      ++i;
      continue;
    }
    kept.push_back(words[i]);
  }
  return kept;
}

/// cluster.tolerate: where workers die, the groups that are left go on from the last checkpoint.
class Tolerance {
 public:
  Tolerance(const TrainArguments& a, const job::Job& job, const Arguments& called)
      : cluster_(job.cluster), called_(called) {
    folder_ = a.resume.empty() ? a.run_folder : a.resume;
    if (!folder_.empty()) return;
    const std::string model = job.model.IsScalar() ? job.model.Scalar() : "run";
    folder_ = train::default_run_folder(model, std::time(nullptr)).string();
    add({"--run", folder_});
  }

  /// What the first launch is called with.
  const Arguments& called() const { return called_; }

  std::optional<Continuation> go_on(const Survivors& of) {
    int64_t servers = cluster_.own_servers ? std::max<int64_t>(1, cluster_.servers) : 0;
    const int64_t groups = std::max<int64_t>(1, cluster_.groups);
    const int64_t each = std::max<int64_t>(1, (of.workers - servers) / groups);
    for (const int rank : of.dead) {
      if (rank >= of.workers - servers && servers > 1) --servers;
    }
    const auto left = of.workers - static_cast<int>(of.dead.size());
    if (!std::filesystem::exists(std::filesystem::path(folder_) / "job.yaml")) return std::nullopt;
    if (cluster_.groups == 0) {
      if (left < 1 + servers) return std::nullopt;
      tell("those that are left go on");
      return Continuation{left, resuming()};
    }
    cluster_.groups = (left - servers) / each;
    if (cluster_.groups < 1) return std::nullopt;
    const auto workers = static_cast<int>(cluster_.groups * each + servers);
    if (cluster_.servers > 0) {
      cluster_.servers =
          cluster_.own_servers ? servers : std::min<int64_t>(cluster_.servers, workers);
    }
    tell(fmt::format("{} of {} go on", plural(cluster_.groups, "group"), plural(each, "worker")));
    return Continuation{workers, resuming()};
  }

 private:
  void tell(const std::string& who) const {
    const bool saved =
        std::filesystem::exists(std::filesystem::path(folder_) / "checkpoints/last.safetensors");
    say(stderr, fmt::format("convoy: cluster.tolerate: {} from the {}\n", who,
                            saved ? "last checkpoint" : "beginning: there is no checkpoint yet"));
  }

  /// Before what ends the options, if anything does.
  void add(const Arguments& words) {
    called_.insert(std::ranges::find(called_, "--"), words.begin(), words.end());
  }

  /// The job file stands where it stood: its settings hold for what is left of the training.
  Arguments resuming() {
    called_ = without_option(without_option(called_, "--run"), "--resume");
    add({"--resume", folder_});
    if (cluster_.groups > 0) {
      add({"--set", fmt::format("cluster.groups={}", cluster_.groups), "--set",
           fmt::format("cluster.servers={}", cluster_.servers)});
    }
    return called_;
  }
  job::Cluster cluster_;
  Arguments called_;
  std::string folder_;
};

int launch_training(const TrainArguments& a, const Arguments& called) {
  const bool readable = !a.job.empty() || !a.resume.empty();
  if (!readable) return launch(a.launch, called);  // workers say what is missing
  const std::filesystem::path file =
      a.job.empty() ? std::filesystem::path(a.resume) / "job.yaml" : std::filesystem::path(a.job);
  // Of a run on another host only the workers there know the job.
  if (a.job.empty() && !std::filesystem::exists(file)) return launch(a.launch, called);
  const job::Job job = job::read_job(file, a.set);
  if (!job.cluster.tolerate) return launch(a.launch, called);
  Tolerance tolerance(a, job, called);
  return launch(a.launch, tolerance.called(),
                [&](const Survivors& left) { return tolerance.go_on(left); });
}

int train_verb(const TrainArguments& a, const Arguments& called) {
  if (wanted(a.launch)) return launch_training(a, called);
  if (!comm::started_by_launcher()) {
    sync::Team team;
    return Sitting(a, team).run();
  }
  std::signal(kStopSignal, on_stop_signal);
  // mpirun gives workers a terminal of its own, which is not the user's.
  ::setenv(train::kTerminal, "0", 0);
  comm::MpiSession session;
  sync::Team team(session.world(), Seconds{60});
  return as_worker(session, team, [&] { return Sitting(a, team).run(); });
}

}  // namespace

void add_train(CLI::App& app, Run& run, const Arguments& called) {
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
  auto* trace = verb->add_option("--trace", a->trace,
                                 "Write what every lane did in these steps of the sitting to "
                                 "RUN/trace.json, for chrome://tracing (default: 5-9)");
  trace->type_name("FROM-TO")->expected(0, 1)->default_str("5-9");
  verb->add_option(
          "--replay", a->replay,
          "Emulate slow workers: as fast as a trace says (a file, `load-ahead`), at parts of "
          "their speed (`constant:1,0.5`), changing (`steps:20-60`), or by chance "
          "(`memoryless:8`)")
      ->type_name("TRACE");
  add_launch_options(*verb, a->launch);
  verb->footer(
      "Keys of a job: `convoy config --help-key KEY`, docs/job.md.\n"
      "Ctrl-C or SIGTERM saves a checkpoint after the current step and stops.");
  verb->callback([&run, a, trace, called] {
    a->traced = trace->count() > 0;
    if (a->trace.empty()) a->trace = "5-9";
    run = [a, called] { return train_verb(*a, called); };
  });
}

}  // namespace convoy::app
