#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include <fmt/format.h>

#include "convoy/base/memory.hpp"
#include "convoy/train/agree.hpp"
#include "convoy/train/async_steps.hpp"
#include "convoy/train/model_state.hpp"
#include "convoy/train/training.hpp"

namespace convoy::train {
namespace {

/// How often something happens that is due every so many epochs: the number of times by `position`
/// samples.
int64_t times_due(double every_epochs, int64_t position, int64_t samples) {
  if (every_epochs <= 0) return 0;
  // The small slack keeps a boundary that falls on a step's end from slipping to the next step.
  const double epochs = static_cast<double>(position) / static_cast<double>(samples);
  constexpr double kMost = 1e15;
  return static_cast<int64_t>(std::min(kMost, std::floor(epochs / every_epochs + 1e-9)));
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

void Training::share_standing() {
  struct {
    int64_t step, position, best_step, evals_since_best;
    double best_metric, elapsed, best_saved;
  } s{at_.step,        at_.position,      at_.best_step, at_.evals_since_best,
      at_.best_metric, at_.elapsed.value, best_saved_};
  if (team_.world() != nullptr) {
    team_.from_first(*team_.world(), std::as_writable_bytes(std::span(&s, 1)), "starting");
  }
  at_.step = s.step;
  at_.position = s.position;
  at_.best_step = s.best_step;
  at_.evals_since_best = s.evals_since_best;
  at_.best_metric = s.best_metric;
  at_.elapsed = {s.elapsed};
  elapsed_before_ = at_.elapsed;
  best_saved_ = s.best_saved;
}

void Training::resume(const Checkpoint& saved) {
  restore_weights(saved, program_.arena(), stepper_.weights());
  restore_states(saved, program_.arena(), *p_.optimizer, stepper_.states());
  at_ = saved.at;
  best_saved_ = at_.best_metric;
  if (std::filesystem::exists(folder_->best_checkpoint())) {
    best_saved_ = std::max(best_saved_, saved_metric(folder_->best_checkpoint()));
  }
}

int64_t Training::next_boundary() const {
  const job::Train& t = p_.job.train;
  int64_t step = at_.step + 1;
  const auto due = [&](double every) {
    return times_due(every, step * plan_.batch, samples_) >
           times_due(every, at_.position, samples_);
  };
  while (step < last_step() && !due(t.eval_every) && !due(t.checkpoint_every)) ++step;
  return step;
}

void Training::at_boundaries(int64_t before) {
  const job::Train& t = p_.job.train;
  const auto crossed = [&](double every) {
    return times_due(every, at_.position, samples_) > times_due(every, before, samples_);
  };
  if (crossed(t.eval_every)) evaluate_now();
  if (crossed(t.checkpoint_every)) save("last");
}

void Training::evaluate_now() {
  EvalPart part{.team = &team_, .part = team_.rank(), .parts = team_.size()};
  if (groups_) {
    part = {.team = &team_,
            .part = groups_->part(),
            .parts = groups_->parts(),
            .counts = groups_->team().rank() == 0};
  }
  const bool parted = groups_ || is_asynchronous(p_.job.sync, team_.size());
  const sync::EvalResult result =
      evaluate_together(stepper_, p_.source, plan_.grain, parted ? &part : nullptr);
  if (!std::isfinite(result.loss)) stop_diverged("the test loss is");
  evaluated_step_ = at_.step;
  summary_.last = result;
  standing_.accuracy = result.accuracy;
  if (steps_here_ > 0) progress_.update(standing_);
  const bool best = result.accuracy > at_.best_metric;
  if (best) {
    at_.best_metric = result.accuracy;
    at_.best_step = at_.step;
    at_.evals_since_best = 0;
  } else {
    ++at_.evals_since_best;
  }
  const double epoch = static_cast<double>(at_.position) / static_cast<double>(samples_);
  write_event("eval", {{"step", at_.step},
                       {"epoch", epoch},
                       {"loss", result.loss},
                       {"accuracy", result.accuracy},
                       {"samples", result.samples},
                       {"best", best},
                       {"elapsed_seconds", elapsed().value}});
  if (options_.json) {
    progress_.json_line(nlohmann::json{
        {"event", "eval"},
        {"step", at_.step},
        {"epoch", epoch},
        {"loss", result.loss},
        {"accuracy",
         result.accuracy}}.dump());
  } else {
    progress_.message(fmt::format("epoch {:6.2f}  test accuracy {:6.2f} %  test loss {:.4f}{}",
                                  epoch, 100 * result.accuracy, result.loss,
                                  best ? "  best so far" : ""));
  }
  // The last evaluation of an earlier sitting may have found a better state than the run had
  // counted when it was saved.
  if (best && result.accuracy > best_saved_) {
    save("best");
    best_saved_ = result.accuracy;
  }
}

void Training::save(const std::string& which) {
  // With groups, servers have brought the whole of it but for a merged classifier.
  if (groups_) {
    stepper_.collect_tail();
  } else {
    stepper_.collect();
  }
  // A step whose loss was finite can still have ruined the weights.
  if (!all_finite(stepper_.weights())) stop_diverged("some weights are");
  if (which == "last") saved_step_ = at_.step;
  together(team_, "saving", [&] {
    if (folder_ != nullptr) write_checkpoint(which);
  });
}

void Training::write_checkpoint(const std::string& which) {
  const std::filesystem::path path =
      which == "last" ? folder_->last_checkpoint() : folder_->best_checkpoint();
  at_.elapsed = elapsed();
  save_checkpoint(
      path, at_,
      tensors_of(program_.arena(), *p_.optimizer, stepper_.weights(), stepper_.states()));
  write_event("checkpoint", {{"step", at_.step}, {"which", which}, {"path", path.string()}});
}

void Training::finish() {
  // Saved before an evaluation that was not due: a resumed run must neither count it for
  // train.patience nor compare later ones with it, or it would stop at another step.
  if (saved_step_ != at_.step) save("last");
  if (summary_.ending != Ending::signal && evaluated_step_ != at_.step) evaluate_now();
  progress_.finish();
  summary_.steps = at_.step;
  summary_.epochs = static_cast<double>(at_.position) / static_cast<double>(samples_);
  summary_.elapsed = now() - started_;
  summary_.images_per_second = images_per_second();
  summary_.best_accuracy = std::max(0.0, at_.best_metric);
  summary_.best_step = at_.best_step;
  summary_.peak = peak_resident_memory();
  gather_bad();
  tell_bad();
  summary_.waited_part = waited_part();
  nlohmann::json stop{{"step", at_.step},
                      {"ending", to_string(summary_.ending)},
                      {"images_per_second", summary_.images_per_second},
                      {"best_accuracy", summary_.best_accuracy},
                      {"elapsed_seconds", summary_.elapsed.value},
                      {"waited_for_data_seconds", summary_.waited.value},
                      {"waited_for_data_part", summary_.waited_part},
                      {"bad_samples", summary_.bad},
                      {"peak_bytes", summary_.peak.value}};
  if (balancing_) stop["balancing_seconds"] = time_balancing_.value;
  write_event("stop", stop);
  stop["event"] = "stop";
  progress_.json_line(stop.dump());
}

}  // namespace convoy::train
