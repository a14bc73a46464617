// convoy tune: trains a job and finds groups, momentum and learning rate on the way, by short
// trials from the same checkpoint (convoy/plan/tuner.hpp). Every stretch is a `convoy train` of its
// own.

#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/base/text.hpp"
#include "convoy/comm/mpi.hpp"
#include "convoy/job/read.hpp"
#include "convoy/plan/tuner.hpp"
#include "convoy/train/run_folder.hpp"
#include "convoy/train/trainer.hpp"

#include "app/launch/hosts.hpp"
#include "app/launch/launch.hpp"
#include "app/launch/process.hpp"
#include "app/verbs.hpp"

namespace convoy::app {
namespace {

namespace fs = std::filesystem;

struct TuneArguments {
  std::string job;
  std::vector<std::string> set;
  std::string run_folder;
  double minutes = 0;
  double trial = 0;
  LaunchOptions launch;
};

/// A training that is tuned, in its run folder.
class RealTarget final : public plan::TuneTarget {
 public:
  RealTarget(const TuneArguments& a, const job::Job& job, int workers)
      : a_(a), job_(job), workers_(workers) {
    const std::string model = job.model.IsScalar() ? job.model.Scalar() : "run";
    folder_ = a.run_folder.empty() ? train::default_run_folder(model, std::time(nullptr))
                                   : fs::path(a.run_folder);
    if (fs::exists(folder_)) refuse("{} is there already", folder_.string());
    for (int g = 1; g <= workers; ++g) {
      if (workers % g == 0) groups_.push_back(g);
    }
  }

  const fs::path& folder() const { return folder_; }
  /// Why it could not go on, if it could not.
  const std::string& ending() const { return ending_; }
  std::vector<int> groups() const override { return groups_; }

  Seconds update_time(int groups) const override {
    const auto known = update_times_.find(groups);
    if (known != update_times_.end()) return known->second;
    const fs::path out = folder_.string() + "-plan.yaml";
    std::vector<std::string> words = {"plan",  a_.job,      "--nodes", std::to_string(workers_),
                                      "--out", out.string()};
    add_settings(words, {"sync.reproducible=false", fmt::format("cluster.groups={}", groups),
                         "parallel.classifier=data"});
    const Captured done = call(words, Seconds{600});
    if (done.code != 0) fail("{}", done.err.empty() ? done.out : done.err);
    const double seconds = YAML::LoadFile(out.string())["predicted_update_seconds"].as<double>();
    fs::remove(out);
    return update_times_[groups] = {seconds};
  }

  Outcome train(const plan::TuneSetting& s, Seconds time, Stretch stretch) override {
    const bool begun = fs::exists(folder_);
    std::vector<std::string> words = {"train", a_.job, begun ? "--resume" : "--run",
                                      folder_.string()};
    add_settings(words, settings(s, time, stretch));
    const auto before = told();
    const Seconds begin = now();
    const Captured done = call(words, time + Seconds{600});
    const Seconds took = now() - begin;
    const std::vector<nlohmann::json> events = read_events(before);
    const bool diverged = std::ranges::any_of(
        events, [](const nlohmann::json& e) { return e.at("event") == "diverged"; });
    if (done.code != 0 && !diverged) {
      fail("{}", done.err.empty() ? done.out : done.err);
    }
    Outcome outcome;
    if (!diverged) outcome = read_outcome(events);
    if (s.groups == 1 || !s.measured) outcome.applied = s.momentum;
    outcome.took = took;
    return outcome;
  }

  void keep() override {
    kept_elapsed_ = elapsed_;
    fs::remove(kept());
    if (fs::exists(checkpoint())) fs::copy_file(checkpoint(), kept());
  }
  void go_back() override {
    elapsed_ = kept_elapsed_;
    if (fs::exists(kept())) {
      fs::rename(kept(), checkpoint());
    } else {
      fs::remove(checkpoint());
    }
  }
  /// Nothing to go back to any more.
  void finish() { fs::remove(kept()); }

 private:
  fs::path checkpoint() const { return folder_ / "checkpoints/last.safetensors"; }
  fs::path kept() const { return folder_ / "checkpoints/kept.safetensors"; }
  fs::path events() const { return folder_ / "events.jsonl"; }

  std::vector<std::string> settings(const plan::TuneSetting& s, Seconds time,
                                    Stretch stretch) const {
    std::vector<std::string> all = {
        // Which counts the sittings before.
        fmt::format("train.max_time={:.3f}s", elapsed_.value + std::max(1.0, time.value)),
        fmt::format("train.lr.peak={}", s.learning_rate),
        fmt::format("cluster.groups={}", s.groups)};
    if (s.groups == 1 || s.measured) {
      all.push_back(fmt::format("train.momentum={}", std::max(0.0, s.momentum)));
    }
    if (s.groups > 1) {
      all.push_back(s.measured ? "cluster.momentum=measured"
                               : fmt::format("cluster.momentum={}", s.momentum));
      all.emplace_back("sync.reproducible=false");
    }
    if (stretch == Stretch::trial) all.emplace_back("train.eval_every=off");
    return all;
  }

  /// Of a stretch that did not diverge.
  Outcome read_outcome(const std::vector<nlohmann::json>& events) {
    Outcome outcome;
    std::vector<double> losses;
    std::string ending;
    for (const nlohmann::json& e : events) {
      if (e.at("event") == "step") losses.push_back(e.at("loss").get<double>());
      if (e.at("event") == "segment") outcome.applied = e.at("applied_momentum").get<double>();
      if (e.at("event") == "eval" && job_.train.target > 0) {
        outcome.reached = outcome.reached || e.at("accuracy").get<double>() >= job_.train.target;
      }
      if (e.at("event") == "stop") {
        ending = e.at("ending").get<std::string>();
        elapsed_ += Seconds{e.at("elapsed_seconds").get<double>()};
      }
    }
    outcome.reached = outcome.reached || ending == to_string(train::Ending::target);
    outcome.ended = !outcome.reached && ending != to_string(train::Ending::max_time);
    if (outcome.ended) ending_ = ending;
    // The second half: at the beginning all that are tried are alike.
    const auto late = losses.begin() + static_cast<std::ptrdiff_t>(losses.size() / 2);
    if (late != losses.end()) {
      outcome.loss =
          std::accumulate(late, losses.end(), 0.0) / static_cast<double>(losses.end() - late);
    }
    return outcome;
  }

  void add_settings(std::vector<std::string>& words,
                    const std::vector<std::string>& settings) const {
    for (const auto* list : {&a_.set, &settings}) {
      for (const std::string& s : *list) words.insert(words.end(), {"--set", s});
    }
  }

  /// This program, on the workers.
  Captured call(std::vector<std::string> words, Seconds patience) const {
    std::vector<std::string> command = {fs::read_symlink("/proc/self/exe").string()};
    command.insert(command.end(), words.begin(), words.end());
    if (workers_ > 1) command.insert(command.end(), {"--workers", std::to_string(workers_)});
    if (a_.launch.hosts) command.insert(command.end(), {"--hosts", *a_.launch.hosts});
    if (!a_.launch.agent.empty()) {
      command.insert(command.end(), {"--launch-agent", a_.launch.agent});
    }
    if (!a_.launch.mpirun_args.empty()) {
      command.insert(command.end(), {"--mpirun-args", a_.launch.mpirun_args});
    }
    return run_captured(command, patience);
  }

  std::uintmax_t told() const { return fs::exists(events()) ? fs::file_size(events()) : 0; }

  std::vector<nlohmann::json> read_events(std::uintmax_t from) const {
    std::vector<nlohmann::json> all;
    std::ifstream file(events());
    file.seekg(static_cast<std::streamoff>(from));
    for (std::string line; std::getline(file, line);) {
      nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
      if (event.is_object()) all.push_back(std::move(event));
    }
    return all;
  }

  const TuneArguments& a_;
  const job::Job& job_;
  int workers_;
  std::vector<int> groups_;
  fs::path folder_;
  Seconds elapsed_;  // as the run's checkpoint has it
  Seconds kept_elapsed_;
  std::string ending_;
  mutable std::map<int, Seconds> update_times_;
};

int tune_verb(const TuneArguments& a) {
  if (comm::started_by_launcher()) {
    refuse("tune starts its workers itself: leave out mpirun or srun, and add --workers N");
  }
  if (a.launch.dry_run) refuse("--dry-run is for train; tune starts many trainings");
  const job::Job job = job::read_job(a.job, a.set);
  if (job.train.optimizer == "adam" || job.train.momentum <= 0) {
    refuse("tune is for sgd and lars with train.momentum greater than 0");
  }
  if (job.cluster.own_servers) refuse("tune is not for cluster.own_servers");
  if (job.train.target <= 0 && a.minutes <= 0) {
    refuse("tune needs an end: train.target, or --minutes M");
  }
  int workers = 1;
  if (wanted(a.launch)) {
    workers = worker_count(place_workers(
        a.launch.workers, a.launch.hosts ? parse_hosts(*a.launch.hosts) : std::vector<Host>()));
  }
  RealTarget target(a, job, workers);
  plan::TuneOptions options;
  options.rates = {10 * job.train.lr.peak, job.train.lr.peak, job.train.lr.peak / 10};
  options.momenta = {-0.3, 0, 0.3, 0.6, 0.9};
  if (workers == 1) options.momenta = {0, 0.3, 0.6, 0.9};
  options.most = {60 * a.minutes};
  options.trial = {std::max(a.trial, 2.0)};
  options.tell = [](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  };
  const plan::Tuned tuned = plan::tune(target, options);
  target.finish();
  fmt::print("{}: {}; {} searching, {} training\nwritten to {}\n",
             tuned.reached ? "reached train.target"
             : tuned.ended ? fmt::format("ended before train.target ({})", target.ending())
                           : "stopped",
             describe(tuned.setting), to_string(tuned.searching), to_string(tuned.training),
             target.folder().string());
  return 0;
}

}  // namespace

void add_tune(CLI::App& app, Run& run) {
  auto* verb = app.add_subcommand(
      "tune", "Train a job, and find groups, momentum and learning rate on the way");
  auto a = std::make_shared<TuneArguments>();
  verb->add_option("JOB", a->job, "Job file (YAML)")->required();
  verb->add_option("--set", a->set, "Override a key of the job (repeatable)")
      ->type_name("KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1);
  verb->add_option("--run", a->run_folder, "Folder to write (default: runs/MODEL-DATE-TIME)");
  verb->add_option("--minutes", a->minutes, "Stop after so long (default: at train.target)")
      ->type_name("M");
  verb->add_option("--trial", a->trial, "Seconds of one trial at least")->type_name("S");
  add_launch_options(*verb, a->launch);
  verb->footer(
      "Trials start from the same checkpoint and are compared after equal time; they take about a "
      "tenth of it all.\nThe momenta are those that servers of groups apply (docs/groups.md).");
  verb->callback([&run, a] { run = [a] { return tune_verb(*a); }; });
}

}  // namespace convoy::app
