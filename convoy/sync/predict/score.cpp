#include "convoy/sync/predict/score.hpp"

#include <cmath>

#include "convoy/base/error.hpp"
#include "convoy/base/units.hpp"
#include "convoy/sync/predict/last_value.hpp"
#include "convoy/sync/predict/narx.hpp"
#include "convoy/sync/shares.hpp"
#include "convoy/sync/steady_shares.hpp"

namespace convoy::sync {
namespace {

using Workers = std::span<const WorkerTrace>;
/// By worker, one for each step; the first, which nobody can know, is 0.
using Predictions = std::vector<std::vector<double>>;

Predictions predict_all(Workers workers, const SpeedPredictor& start) {
  Predictions all;
  for (const WorkerTrace& worker : workers) {
    const auto predictor = start.clone();
    std::vector<double> predicted;
    predicted.reserve(worker.steps.size());
    for (const Observation& step : worker.steps) {
      predicted.push_back(predictor->predict(step.load));
      predictor->observe(step);
    }
    all.push_back(std::move(predicted));
  }
  return all;
}

double rmse(Workers workers, const Predictions& predictions) {
  double sum = 0;
  int64_t count = 0;
  for (size_t w = 0; w < workers.size(); ++w) {
    for (size_t t = 1; t < workers[w].steps.size(); ++t) {
      const double error = predictions[w][t] - workers[w].steps[t].speed;
      sum += error * error;
      ++count;
    }
  }
  return std::sqrt(sum / static_cast<double>(count));
}

/// Seconds that the steps of all groups take, in all.
struct StepTimes {
  double ideal = 0;
  double equal = 0;
  double predicted = 0;
  double steady = 0;
  int64_t steps = 0;
  int64_t moves = 0;
};

void run_group(Workers workers, std::span<const std::vector<double>> predictions, int64_t grains,
               StepTimes& times) {
  const size_t n = workers.size();
  size_t steps = workers[0].steps.size();
  for (const WorkerTrace& worker : workers) steps = std::min(steps, worker.steps.size());
  const std::vector<ShareBounds> bounds(n);
  const Shares equal = equal_shares(grains, bounds);
  SteadyShares steady;
  std::vector<TimeProfile> came(n);
  std::vector<double> speeds(n);
  std::vector<double> predicted(n);
  for (size_t t = 1; t < steps; ++t) {
    for (size_t i = 0; i < n; ++i) {
      speeds[i] = workers[i].steps[t].speed;
      came[i] = TimeProfile::of_speed(speeds[i]);
      predicted[i] = predictions[i][t];
    }
    const Shares balanced = proportional_shares(grains, std::span<const double>(predicted), bounds);
    times.predicted += slowest(balanced.grains, came).value;
    times.steady += slowest(steady.decide(grains, predicted, bounds).grains, came).value;
    times.moves += steady.moved() ? 1 : 0;
    steady.came(speeds);
    times.equal += slowest(equal.grains, came).value;
    times.ideal += slowest(equal_finish(grains, came, bounds).grains, came).value;
    ++times.steps;
  }
}

StepTimes run_groups(Workers workers, const Predictions& predictions, int64_t group,
                     int64_t grains) {
  StepTimes times;
  const auto size = static_cast<size_t>(group);
  for (size_t first = 0; first + size <= workers.size(); first += size) {
    run_group(workers.subspan(first, size), std::span(predictions).subspan(first, size), grains,
              times);
  }
  return times;
}

std::unique_ptr<SpeedPredictor> trained_on(const WorkerTrace& worker) {
  Narx narx;
  for (const Observation& step : worker.steps) narx.observe(step);
  return std::make_unique<Narx>(narx.for_another_worker());
}

}  // namespace

TraceScore score(const Trace& trace, std::span<const std::string> predictors,
                 const ScoreOptions& options) {
  check(options.group > 0 && options.grains > 0, "there are workers and grains");
  Workers workers(trace.workers);
  if (options.warm) {
    if (workers.size() < 2) {
      refuse("{}: a warm start needs two workers or more, found {}", trace.name, workers.size());
    }
    workers = workers.subspan(1);
  }
  TraceScore result{.trace = trace.name,
                    .stand_in = trace.stand_in,
                    .made_up = trace.made_up,
                    .workers = static_cast<int64_t>(workers.size()),
                    .steps = 0,
                    .group = std::min(options.group, static_cast<int64_t>(workers.size())),
                    .equal_loss = 0,
                    .predictors = {}};
  for (const WorkerTrace& worker : workers) {
    result.steps += static_cast<int64_t>(worker.steps.size());
  }
  const double last = rmse(workers, predict_all(workers, LastValue()));
  for (const std::string& name : predictors) {
    const auto start =
        options.warm && name == "narx" ? trained_on(trace.workers[0]) : make_predictor(name);
    const Seconds before = now();
    const Predictions predictions = predict_all(workers, *start);
    const double seconds = (now() - before).value;
    const StepTimes times = run_groups(workers, predictions, result.group, options.grains);
    const double error = rmse(workers, predictions);
    result.equal_loss = times.equal / times.ideal - 1;
    result.predictors.push_back(
        {.predictor = name,
         .rmse = error,
         .to_last = last > 0 ? error / last : 1,
         .microseconds = 1e6 * seconds / static_cast<double>(result.steps),
         .step_loss = times.predicted / times.ideal - 1,
         .steady_loss = times.steady / times.ideal - 1,
         .moved = static_cast<double>(times.moves) / static_cast<double>(times.steps)});
  }
  return result;
}

}  // namespace convoy::sync
