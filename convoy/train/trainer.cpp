#include "convoy/train/trainer.hpp"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/job/read.hpp"
#include "convoy/model/yaml.hpp"
#include "convoy/train/agree.hpp"
#include "convoy/train/async_steps.hpp"
#include "convoy/train/model_state.hpp"
#include "convoy/train/training.hpp"

namespace convoy::train {
Training::Training(Prepared& prepared, RunFolder* folder, const TrainOptions& options,
                   const sync::Team& team)
    : p_(prepared),
      folder_(folder),
      options_(options),
      team_(team),
      program_(*prepared.planned.program),
      plan_(prepared.planned.plan),
      samples_(prepared.source.train->size()),
      trace_(plan_.lanes),
      slow_(prepared, team, options.replay),
      groups_(in_groups(prepared.job, team.size()) ? std::make_unique<Grouping>(prepared, team)
                                                   : nullptr),
      classifier_(prepared, team, groups_.get()),
      stepper_(program_, *prepared.optimizer, stepping(stepper_options(prepared)), steppers()),
      progress_(options.out, progress_mode(options.out, options.json)) {
  if (folder_ != nullptr) events_.emplace(folder_->events());
  const job::Train& t = p_.job.train;
  context_ = optim::schedule_context(t, samples_);
  total_steps_ = static_cast<int64_t>(context_.total_steps);
  at_.seed = t.seed;
  at_.batch = t.batch;
  at_.grain = plan_.grain;
  at_.model = p_.graph.name();
  at_.model_hash = model::fingerprint(p_.graph);
  at_.data_fingerprint = p_.source.fingerprint;
}

Summary Training::run() {
  restart_peak_memory();
  together(team_, "reading the checkpoint", [&] {
    if (options_.trace && (groups_ || is_asynchronous(p_.job.sync, team_.size()))) {
      refuse("--trace shows steps that all workers make together; {} there are none",
             groups_ ? "with groups" : fmt::format("in mode {}", p_.job.sync.mode));
    }
    // A run that ended before its first checkpoint starts again: the same training, bit for bit.
    if (folder_ != nullptr && options_.resume &&
        std::filesystem::exists(folder_->last_checkpoint())) {
      saved_.emplace(
          load_checkpoint(folder_->last_checkpoint(), expected_tensors(program_, *p_.optimizer)));
      refuse_other(saved_->at, at_, folder_->last_checkpoint());
    }
  });
  stepper_.load([&] {
    if (saved_) {
      resume(*saved_);
    } else {
      engine::initialise(program_.arena(), p_.job.train.seed, stepper_.weights());
    }
  });
  saved_.reset();
  share_standing();
  classifier_.load();
  if (folder_ != nullptr) {
    job::Job asked = p_.job;
    asked.cluster = p_.asked_cluster;
    asked.parallel = p_.asked_parallel;
    folder_->write_job(job::to_yaml(asked));
    folder_->write_plan(plan::to_yaml(plan_));
  }
  write_start();
  started_ = now();
  try {
    if (groups_) {
      loop_in_groups();
    } else if (is_asynchronous(p_.job.sync, team_.size())) {
      loop_without_waiting();
    } else {
      loop();
    }
    finish();
  } catch (const AgreedFailure&) {
    throw;
  } catch (const std::exception& error) {
    // Who and when is what matters where several workers speak.
    if (team_.size() == 1) throw;
    throw Error(fmt::format("{}, step {}: {}", team_.name(team_.rank()), at_.step, error.what()));
  }
  return summary_;
}

const sync::Team& Training::steppers() const {
  if (groups_) return groups_->team();
  return is_asynchronous(p_.job.sync, team_.size()) ? sync::Team::alone() : team_;
}

sync::StepperOptions Training::stepping(sync::StepperOptions options) {
  if (options_.trace) options.trace = &trace_;
  slow_.prepare(options);
  if (groups_) groups_->prepare(options);
  classifier_.prepare(options);
  if (is_asynchronous(p_.job.sync, team_.size())) {
    options.batch = batch_of_worker(p_.job.sync, plan_, team_.size());
    options.shares.clear();
  }
  if (balances(p_, steppers())) {
    balancing_.emplace(p_, steppers(), slow_);
    balancing_->prepare(options);
  }
  return options;
}

int64_t Training::last_step() const {
  const int64_t most = p_.job.train.max_steps;
  return most > 0 ? std::min(most, total_steps_) : total_steps_;
}

bool Training::limit_reached() {
  const job::Train& t = p_.job.train;
  if (vote_ > 1) {
    summary_.ending = Ending::signal;
    summary_.signal = static_cast<int>(vote_ - 1);
  } else if (at_.step >= total_steps_) {
    summary_.ending = Ending::finished;
  } else if (t.max_steps > 0 && at_.step >= t.max_steps) {
    summary_.ending = Ending::max_steps;
  } else if (vote_ == 1) {
    summary_.ending = Ending::max_time;
  } else if (t.target > 0 && at_.best_metric >= t.target) {
    summary_.ending = Ending::target;
  } else if (t.patience > 0 && at_.evals_since_best >= t.patience) {
    summary_.ending = Ending::early;
  } else {
    return false;
  }
  return true;
}

int64_t Training::own_vote() const {
  if (options_.stop != nullptr && options_.stop->load() != 0) return 1 + options_.stop->load();
  const double most = p_.job.train.max_seconds;
  return most > 0 && elapsed().value >= most ? 1 : 0;
}

void Training::loop() {
  std::optional<Feeding> made;
  together(team_, "reading the samples", [&] {
    made.emplace(p_,
                 FeedingOptions{.batch = plan_.batch,
                                .ranges = stepper_.ranges(),
                                .moving = balancing_.has_value(),
                                .first_step = at_.step},
                 team_, [&](const std::string& line) { progress_.message(line); });
  });
  Feeding& feeding = *made;
  if (balancing_) {
    balancing_->set_lag(feeding.lag());
    for (int k = 0; k <= feeding.lag(); ++k) feeding.announce(at_.step + k, stepper_.ranges());
  }
  const int64_t first_step = at_.step;
  if (team_.size() == 1) vote_ = own_vote();
  while (!limit_reached()) {
    const double rate = optim::learning_rate(p_.job.train.lr, context_, at_.step);
    trace_steps();
    const Seconds before = now();
    const sync::StepResult result = stepper_.step(at_.step, rate, feeding.source(), own_vote());
    const Seconds took = now() - before;
    training_time_ += took;
    summary_.waited = feeding.waited();
    summary_.waited_for_weights += result.waiting;
    vote_ = team_.size() == 1 ? own_vote() : result.vote;
    if (!result.finite) {
      stop_diverged(std::isfinite(result.loss) ? "the gradient's norm is" : "the loss is");
    }
    const int64_t position = at_.position;
    ++at_.step;
    at_.position += plan_.batch;
    steps_here_ = at_.step - first_step;
    if (balancing_) move_shares(result, feeding);
    report(result, rate);
    tell_buckets();
    tell(feeding.after_step(took));
    at_boundaries(position);
    tell_bad();
  }
  loop_over_ = true;
  trace_steps();
  feeding.finish();
  write_store(feeding.counters());
  summary_.exchanging = stepper_.exchanging();
}

void Training::loop_without_waiting() {
  const int64_t parts = p_.job.sync.mode == "backup" ? team_.size() : 1;
  const int64_t batch = batch_of_worker(p_.job.sync, plan_, team_.size());
  std::optional<AsyncSteps> steps;
  run_segments(batch, at_.step * parts,
               [&](Feeding& feeding, int64_t last, const SegmentCalls& calls) {
                 if (!steps) steps.emplace(p_, team_, stepper_, feeding);
                 const sync::SegmentEnd end = steps->run(at_.step, last, calls);
                 return Segment{end.last, end.pushes > 0, [this, end] { tell_segment(end); }};
               });
  summary_.scheme = steps ? steps->describe() : "";
}

void Training::loop_in_groups() {
  groups_->load(stepper_);
  run_segments(
      plan_.batch, at_.step, [&](Feeding& feeding, int64_t last, const SegmentCalls& calls) {
        const sync::GroupSegment end = groups_->run(stepper_, feeding, at_.step, last, calls);
        return Segment{end.last, end.pieces > 0, [this, end] { tell_segment(end); }};
      });
  summary_.exchanging = stepper_.exchanging();
  summary_.scheme = groups_->describe();
}

void Training::run_segments(int64_t batch, int64_t first, const RunSegment& run) {
  FeedingOptions options;
  options.batch = batch;
  options.ranges.resize(static_cast<size_t>(team_.size()));
  options.moving = true;
  options.first_step = first;
  std::optional<Feeding> made;
  together(team_, "reading the samples", [&] {
    made.emplace(p_, options, team_, [&](const std::string& line) { progress_.message(line); });
  });
  Feeding& feeding = *made;
  const int64_t first_step = at_.step;
  const auto rate = [&](int64_t step) {
    return optim::learning_rate(p_.job.train.lr, context_, step);
  };
  const auto stand_at = [&](int64_t step) {
    at_.step = step;
    at_.position = step * plan_.batch;
    steps_here_ = step - first_step;
  };
  while (!limit_reached()) {
    const int64_t before = at_.step;
    const int64_t position = at_.position;
    const Seconds begin = now();
    const auto after_step = [&](int64_t step, const sync::StepResult& result, Seconds took) {
      stand_at(std::max(at_.step, step + 1));
      summary_.waited = feeding.waited();
      summary_.waited_for_weights += result.waiting;
      training_time_ = trained_before_ + (now() - begin);
      if (balancing_) move_shares(result, feeding);
      if (result.finite) report(result, rate(step));
      tell(feeding.after_step(took));
    };
    const Segment end =
        run(feeding, next_boundary(),
            {.learning_rate = rate, .after_step = after_step, .vote = [&] { return own_vote(); }});
    trained_before_ += now() - begin;
    training_time_ = trained_before_;
    if (end.last > before && !end.trained) stop_diverged("every loss is");
    stand_at(end.last);
    vote_ = std::ranges::max(team_.gather_numbers(own_vote(), "agreeing to go on"));
    end.tell();
    at_boundaries(position);
    tell_bad();
  }
  feeding.finish();
}

void Training::move_shares(const sync::StepResult& result, Feeding& feeding) {
  const Seconds begin = now();
  const std::vector<int64_t>& latest = balancing_->after_step(result);
  stepper_.set_shares(balancing_->next());
  // A group announces what it needs when it knows of which batch.
  if (!groups_) {
    feeding.announce(at_.step + feeding.lag(), team_.ranges(plan_.batch / plan_.grain, latest));
  }
  balancing_->trace(trace_);
  time_balancing_ += now() - begin;
  for (const std::string& line : balancing_->take_messages()) {
    write_event("balance", {{"step", at_.step}, {"what", line}});
    tell(line);
  }
}

std::string to_string(Ending ending) {
  switch (ending) {
    case Ending::finished:
      return "finished";
    case Ending::target:
      return "reached train.target";
    case Ending::early:
      return "stopped early";
    case Ending::max_steps:
      return "reached train.max_steps";
    case Ending::max_time:
      return "reached train.max_time";
    case Ending::signal:
      return "stopped by a signal";
  }
  return "";
}

Summary train(Prepared& prepared, RunFolder* folder, const TrainOptions& options,
              const sync::Team& team) {
  return Training(prepared, folder, options, team).run();
}

}  // namespace convoy::train
