#include "convoy/plan/batch.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/optim/schedule.hpp"
#include "convoy/plan/loader_source.hpp"

namespace convoy::plan {
namespace {

constexpr int64_t kSmallest = 16;
constexpr int64_t kLargest = 2048;
/// With fewer updates in an epoch there is nothing left to choose.
constexpr int64_t kLeastUpdates = 10;

/// The training whose first steps show the noise.
constexpr int64_t kTrialBatch = 128;
constexpr int64_t kTrialGrain = 16;
constexpr int64_t kLeastTrialSteps = 8;
constexpr int64_t kMostTrialSteps = 1000;
/// Its time: a small part of what the training itself will take.
constexpr double kTrialShare = 0.05;
constexpr Seconds kLeastTrialTime{2};
constexpr Seconds kMostTrialTime{60};

/// Predictions are not better than this; of batches as good, the largest leaves most to divide
/// among machines.
constexpr double kAsGood = 1.05;

struct Noise {
  NoiseGrowth growth;
  double half_time = 1;  ///< the step in the middle of the training
  int64_t steps = 0;     ///< of the trial
};

/// Trains for a while. Noise grows as a network learns, so an early and a late part of the trial
/// are looked at; the very first updates of a fresh network are like no others.
Noise measure_noise(job::Job job, const model::Graph& graph, const data::Source& source,
                    const optim::Optimizer& optimizer, const CoreMap& cores,
                    const PlanOptions& options, Seconds time) {
  const int64_t samples = source.train->size();
  job.train.batch = std::min(kTrialBatch, samples);
  const int64_t grain = job.engine.grain > 0 ? job.engine.grain : kTrialGrain;
  job.engine.grain = std::min(grain, job.train.batch / 2);
  job.train.batch -= job.train.batch % std::max<int64_t>(1, job.engine.grain);
  if (job.engine.grain < 1) {
    refuse("train.batch: auto needs at least 2 training samples; there are {}", samples);
  }
  PlanOptions quiet = options;
  quiet.measure = false;
  const Planned planned = make_plan(job, graph, optimizer, cores, quiet);
  sync::StepperOptions stepping = planned.plan.stepper(job.train);
  stepping.measure_noise = true;
  sync::Stepper stepper(*planned.program, optimizer, stepping);
  engine::initialise(planned.program->arena(), job.train.seed, stepper.weights());
  stepper.weights_changed();

  data::LoaderOptions loading;
  loading.batch = job.train.batch;
  loading.grain = planned.plan.grain;
  loading.seed = job.train.seed;
  loading.threads = static_cast<int>(std::max<int64_t>(1, job.data.threads));
  loading.augment = &job.data.augment;
  data::TrainLoader loader(source, loading);
  LoaderSource grains(&loader);
  const optim::ScheduleContext context = optim::schedule_context(job.train, samples);

  const auto total = static_cast<int64_t>(context.total_steps);
  const int64_t most = std::clamp(total, kLeastTrialSteps, kMostTrialSteps);
  std::vector<sync::StepResult> results;
  const Seconds begin = now();
  for (int64_t step = 0; step < most; ++step) {
    if (step >= kLeastTrialSteps && now() - begin >= time) break;
    if (options.progress) {
      options.progress(static_cast<int>(step), static_cast<int>(most), "gradient noise");
    }
    results.push_back(
        stepper.step(step, optim::learning_rate(job.train.lr, context, step), grains));
    if (!results.back().finite) {
      refuse(
          "train.batch: auto: the training diverged in step {} of the measurement of its noise; "
          "train.lr.peak may be too large",
          step);
    }
  }
  if (options.progress) options.progress(static_cast<int>(most), static_cast<int>(most), "");
  const auto scale = [&](size_t from, size_t to) {
    NoiseScale noise;
    for (size_t i = from; i < to; ++i) {
      noise.add(job.train.batch, std::pow(results[i].gradient_norm, 2), planned.plan.grain,
                results[i].grain_norm2);
    }
    return noise.value().value_or(0);
  };
  const size_t n = results.size();
  const auto eighths = static_cast<double>(n) / 8;
  return {noise_growth(2 * eighths, scale(n / 8, 3 * n / 8), 6.5 * eighths, scale(5 * n / 8, n)),
          context.total_steps / 2, static_cast<int64_t>(n)};
}

/// What the trial may take of a training on so many images.
Seconds trial_time(const std::vector<BatchCandidate>& candidates, double images) {
  double rate = 0;
  for (const BatchCandidate& c : candidates) {
    if (c.obstacle.empty()) rate = std::max(rate, static_cast<double>(c.batch) / c.step.value);
  }
  const double training = rate > 0 ? images / rate : 0;
  return {std::clamp(kTrialShare * training, kLeastTrialTime.value, kMostTrialTime.value)};
}

}  // namespace

void never_slower_in_a_larger_batch(std::vector<BatchCandidate>& candidates) {
  for (size_t i = 1; i < candidates.size(); ++i) {
    const BatchCandidate& smaller = candidates[i - 1];
    BatchCandidate& c = candidates[i];
    const bool alike = smaller.obstacle.empty() && c.obstacle.empty() && smaller.grain == c.grain &&
                       smaller.lanes == c.lanes;
    if (!alike) continue;
    const double times = static_cast<double>(c.batch) / static_cast<double>(smaller.batch);
    c.step = std::min(c.step, Seconds{smaller.step.value * times});
  }
}

BatchChoice choose(std::vector<BatchCandidate> candidates, double noise) {
  BatchChoice choice;
  choice.noise = noise;
  double best = 0;
  for (BatchCandidate& c : candidates) {
    if (!c.obstacle.empty()) continue;
    // Where noise is everything, the updates fall as the batch grows: 1/X alone counts.
    const double per_sample = 1.0 / static_cast<double>(c.batch);
    c.updates = std::isfinite(noise) ? 1 + noise * per_sample : per_sample;
    c.time_to_target = c.step.value * c.updates;
    if (best == 0 || c.time_to_target < best) best = c.time_to_target;
  }
  for (const BatchCandidate& c : candidates) {
    if (c.obstacle.empty() && c.time_to_target <= kAsGood * best) choice.batch = c.batch;
  }
  if (choice.batch == 0) {
    refuse("train.batch: auto: no batch is possible; {}",
           candidates.empty() ? "there are too few samples" : candidates.front().obstacle);
  }
  choice.candidates = std::move(candidates);
  return choice;
}

BatchChoice choose_batch(const job::Job& job, const model::Graph& graph, const data::Source& source,
                         const optim::Optimizer& optimizer, const CoreMap& cores,
                         const PlanOptions& options) {
  const int64_t samples = source.train->size();
  PlanOptions predicting = options;
  predicting.measure = predicting.predict = true;
  if (!predicting.known) {
    predicting.known = std::make_shared<Measurements>(options.profile_cache, options.note);
  }
  std::vector<BatchCandidate> candidates;
  for (int64_t batch = kSmallest; batch <= kLargest; batch *= 2) {
    if (batch > kSmallest && samples / batch < kLeastUpdates) break;
    if (job.engine.grain > 0 && batch % job.engine.grain != 0) continue;
    BatchCandidate c;
    c.batch = std::min(batch, samples);
    job::Job tried = job;
    tried.train.batch = c.batch;
    try {
      const Plan plan = make_plan(tried, graph, optimizer, cores, predicting).plan;
      c.grain = plan.grain;
      c.lanes = plan.lanes;
      c.step = plan.step;
      c.memory = plan.allocated();
    } catch (const InputError& error) {
      c.obstacle = error.what();
    }
    candidates.push_back(std::move(c));
  }
  never_slower_in_a_larger_batch(candidates);
  const Seconds time = trial_time(candidates, job.train.epochs * static_cast<double>(samples));
  const Noise noise = measure_noise(job, graph, source, optimizer, cores, predicting, time);
  BatchChoice choice = choose(std::move(candidates), noise.growth.at(noise.half_time));
  choice.growth = noise.growth;
  choice.steps = noise.steps;
  return choice;
}

std::vector<std::string> describe(const BatchChoice& choice) {
  double best = 0;
  for (const BatchCandidate& c : choice.candidates) {
    if (c.obstacle.empty() && (best == 0 || c.time_to_target < best)) best = c.time_to_target;
  }
  std::vector<std::string> lines = {fmt::format(
      "batch {}: the largest within 5 % of the least time to target by a gradient noise scale of "
      "{:.0f} samples in the middle of "
      "the training ({:.0f} at step {:.0f} of a trial, growing as step^{:.2f})",
      choice.batch, choice.noise, choice.growth.scale, choice.growth.step, choice.growth.power)};
  for (const BatchCandidate& c : choice.candidates) {
    if (!c.obstacle.empty()) {
      lines.push_back(fmt::format("batch {:>5}: not possible: {}", c.batch, c.obstacle));
      continue;
    }
    lines.push_back(
        fmt::format("batch {:>5}: grain {:>3}, step {:>9}, {:>7.0f} images/s, {:>9}, updates × "
                    "{:<7.2f} time to "
                    "target × {:.2f}{}",
                    c.batch, c.grain, to_string(c.step),
                    static_cast<double>(c.batch) / c.step.value, to_string(c.memory), c.updates,
                    c.time_to_target / best, c.batch == choice.batch ? "  <" : ""));
  }
  return lines;
}

}  // namespace convoy::plan
