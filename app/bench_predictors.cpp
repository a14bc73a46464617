// convoy bench predictors: who knows best how fast workers will be, on records of how fast they
// were.

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convoy/base/error.hpp"
#include "convoy/sync/predict/score.hpp"

#include "app/verbs.hpp"

namespace convoy::app {
namespace {

struct PredictorArguments {
  std::vector<std::string> traces;
  std::vector<std::string> predictors;
  sync::ScoreOptions options;
  bool json = false;
};

// Of the traces that are made up.
constexpr int kWorkers = 8;
constexpr int kSteps = 1000;
constexpr uint64_t kSeed = 1;

sync::Trace open_trace(const std::string& name) {
  if (name == "load-ahead") return sync::load_ahead_trace(kWorkers, kSteps, kSeed);
  if (name == "noise") return sync::noise_trace(kWorkers, kSteps, kSeed);
  return sync::read_trace(name);
}

void print_table(const sync::TraceScore& s) {
  fmt::print("{}: {} workers, {} steps; {}\n", s.trace, s.workers, s.steps,
             s.stand_in  ? "speed is a stand-in, free CPU"
             : s.made_up ? "made up"
                         : "measured speeds, no load known");
  fmt::print(
      "  groups of {}: with equal shares steps take {:.1f} % longer than with the best ones\n",
      s.group, 100 * s.equal_loss);
  fmt::print("  {:<11}{:>9}{:>8}{:>12}{:>12}{:>14}{:>8}\n", "predictor", "RMSE", "÷ last",
             "µs/step", "step loss", "held steady", "moved");
  for (const sync::PredictorScore& p : s.predictors) {
    fmt::print("  {:<11}{:>9.4f}{:>8.3f}{:>11.2f}{:>10.2f} %{:>12.2f} %{:>6.0f} %\n", p.predictor,
               p.rmse, p.to_last, p.microseconds, 100 * p.step_loss, 100 * p.steady_loss,
               100 * p.moved);
  }
  fmt::print("\n");
}

nlohmann::json to_json(const sync::TraceScore& s) {
  nlohmann::json rows = nlohmann::json::array();
  for (const sync::PredictorScore& p : s.predictors) {
    rows.push_back({{"predictor", p.predictor},
                    {"rmse", p.rmse},
                    {"rmse_to_last", p.to_last},
                    {"microseconds", p.microseconds},
                    {"step_loss", p.step_loss},
                    {"steady_step_loss", p.steady_loss},
                    {"steady_moved", p.moved}});
  }
  return {{"trace", s.trace},
          {"speed_is_stand_in", s.stand_in},
          {"made_up", s.made_up},
          {"workers", s.workers},
          {"steps", s.steps},
          {"group", s.group},
          {"equal_step_loss", s.equal_loss},
          {"predictors", rows}};
}

int bench_predictors(const PredictorArguments& a) {
  // All are read before the first is tried: a wrong name is known at once.
  std::vector<sync::Trace> traces;
  for (const std::string& name : a.traces) traces.push_back(open_trace(name));
  const std::vector<std::string>& names =
      a.predictors.empty() ? sync::predictor_names() : a.predictors;
  for (const std::string& name : names) sync::make_predictor(name);
  nlohmann::json all = nlohmann::json::array();
  for (const sync::Trace& trace : traces) {
    const sync::TraceScore scored = sync::score(trace, names, a.options);
    if (a.json) {
      all.push_back(to_json(scored));
    } else {
      print_table(scored);
      std::fflush(stdout);
    }
  }
  if (a.json) {
    fmt::print(
        "{}\n",
        nlohmann::json{{"grains", a.options.grains}, {"warm", a.options.warm}, {"traces", all}}
            .dump());
  }
  return 0;
}

}  // namespace

void add_bench_predictors(CLI::App& bench, Run& run) {
  auto* verb = bench.add_subcommand(
      "predictors", "Who knows best how fast workers will be: error, cost, and what errors cost");
  auto a = std::make_shared<PredictorArguments>();
  verb->add_option("TRACE", a->traces,
                   "Files (Alibaba mini-batch times, Alibaba machine usage, Bitbrains; plain or "
                   ".gz, Bitbrains also as .tar.gz), or load-ahead or noise, which are made up")
      ->required();
  verb->add_option("--workers", a->options.group,
                   "Workers that step together, when shares are made of predictions")
      ->check(CLI::Range(int64_t{1}, int64_t{10000}))
      ->capture_default_str();
  verb->add_option("--grains", a->options.grains, "Grains in a step of such a group")
      ->check(CLI::Range(int64_t{1}, int64_t{1000000}))
      ->capture_default_str();
  verb->add_option("--predictors", a->predictors, "Only these: last, average, …")->delimiter(',');
  verb->add_flag("--warm", a->options.warm,
                 "Leave out the first worker, and start narx with what it learned there");
  verb->add_flag("--json", a->json, "Print one JSON object");
  verb->footer(
      "RMSE is in units of speed: parts of a free machine for loads, of the mean speed for "
      "mini-batch times.\n÷ last: over the RMSE of the last value. µs/step: predict once and "
      "learn from one step.\nstep loss: how much longer steps take than with the best shares for "
      "the speeds that came.\nheld steady: the same when shares only move if that gains more than "
      "noise could feign; moved: in how many steps they did.");
  verb->callback([&run, a] { run = [a] { return bench_predictors(*a); }; });
}

}  // namespace convoy::app
