#include "convoy/train/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <span>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/base/version.hpp"
#include "convoy/job/read.hpp"
#include "convoy/model/yaml.hpp"
#include "convoy/optim/schedule.hpp"
#include "convoy/train/agree.hpp"
#include "convoy/train/events.hpp"
#include "convoy/train/feeding.hpp"
#include "convoy/train/progress.hpp"

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

/// The parameters in `values` or, without `parameters`, the running statistics.
std::vector<Tensor> plain_tensors(const engine::Arena& arena, std::span<const float> values,
                                  bool parameters) {
  std::vector<Tensor> tensors;
  for (const engine::Tensor& t : arena.tensors()) {
    if ((t.kind == engine::Kind::parameter) != parameters) continue;
    tensors.push_back({t.name, t.shape, [&t, values](const TakeValues& take) {
                         engine::to_plain(t, values, take);
                       }});
  }
  return tensors;
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

/// One sitting of a training.
class Training {
 public:
  Training(Prepared& prepared, RunFolder* folder, const TrainOptions& options,
           const sync::Team& team)
      : p_(prepared),
        folder_(folder),
        options_(options),
        team_(team),
        program_(*prepared.planned.program),
        plan_(prepared.planned.plan),
        samples_(prepared.source.train->size()),
        trace_(plan_.lanes),
        stepper_(program_, *prepared.optimizer, traced(stepper_options(prepared)), team),
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

  Summary run() {
    restart_peak_memory();
    together(team_, "reading the checkpoint", [&] {
      // A run that ended before its first checkpoint starts again: the same training, bit for bit.
      if (folder_ != nullptr && options_.resume &&
          std::filesystem::exists(folder_->last_checkpoint())) {
        saved_.emplace(
            load_checkpoint(folder_->last_checkpoint(), expected_tensors(program_, *p_.optimizer)));
        refuse_other(saved_->at);
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
    if (folder_ != nullptr) {
      folder_->write_job(job::to_yaml(p_.job));
      folder_->write_plan(plan::to_yaml(plan_));
    }
    write_start();
    started_ = now();
    try {
      loop();
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

 private:
  sync::StepperOptions traced(sync::StepperOptions options) {
    if (options_.trace) options.trace = &trace_;
    return options;
  }

  /// Before the first and after the last step that is traced; collective.
  void trace_steps() {
    if (!options_.trace || trace_written_) return;
    const bool ends = steps_here_ >= options_.trace->second || loop_over_;
    if (!trace_.on() && !ends && steps_here_ >= options_.trace->first) {
      team_.meet("starting the trace");
      trace_.start();
    } else if (trace_.on() && ends) {
      stepper_.collect();
      trace_.stop();
      trace_written_ = true;
      const std::vector<std::string> all = team_.gather_text(
          trace_.json(team_.rank(), team_.name(team_.rank())), "collecting the trace");
      if (folder_ != nullptr) write_atomically(folder_->trace(), trace_file(all));
    }
  }

  /// Where worker 0 takes the training up, all do.
  void share_standing() {
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

  void resume(const Checkpoint& saved) {
    restore_weights(saved, program_.arena(), stepper_.weights());
    const auto states = stepper_.states();
    const std::vector<std::string> names = p_.optimizer->state_names();
    for (size_t i = 0; i < names.size(); ++i) {
      size_t parameter = 0;
      for (const engine::Tensor& t : program_.arena().tensors()) {
        if (t.kind != engine::Kind::parameter) continue;
        engine::from_plain(t, saved.states.at(names[i])[parameter++].values, states[i]);
      }
    }
    at_ = saved.at;
    best_saved_ = at_.best_metric;
    if (std::filesystem::exists(folder_->best_checkpoint())) {
      best_saved_ = std::max(best_saved_, saved_metric(folder_->best_checkpoint()));
    }
  }

  /// Going on with another stream, model or grain would not be the same training.
  void refuse_other(const Progression& saved) const {
    std::vector<std::string> differences;
    const auto compare = [&](const char* what, const auto& then, const auto& now_is) {
      if (then != now_is) {
        differences.push_back(fmt::format("{}: {} in the checkpoint, {} now", what, then, now_is));
      }
    };
    compare("train.seed", saved.seed, at_.seed);
    compare("train.batch", saved.batch, at_.batch);
    compare("grain", saved.grain, at_.grain);
    compare("model", saved.model, at_.model);
    compare("hash of the model", saved.model_hash, at_.model_hash);
    compare("fingerprint of the data", saved.data_fingerprint, at_.data_fingerprint);
    if (differences.empty()) return;
    std::string list;
    for (const std::string& d : differences) list += "\n  " + d;
    refuse("{} cannot be continued by this job:{}", folder_->last_checkpoint().string(), list);
  }

  /// The step this sitting ends at, unless something stops it earlier.
  int64_t last_step() const {
    const int64_t most = p_.job.train.max_steps;
    return most > 0 ? std::min(most, total_steps_) : total_steps_;
  }

  void write_event(std::string_view event, const nlohmann::json& fields) {
    if (events_) events_->write(event, fields);
  }

  void write_start() {
    write_event(options_.resume ? "resume" : "start", {{"version", version()},
                                                       {"model", p_.graph.name()},
                                                       {"parameters", p_.graph.parameter_count()},
                                                       {"samples", samples_},
                                                       {"batch", plan_.batch},
                                                       {"grain", plan_.grain},
                                                       {"workers", team_.size()},
                                                       {"hosts", team_.nodes()},
                                                       {"lanes", plan_.lanes},
                                                       {"threads_per_lane", plan_.threads_per_lane},
                                                       {"step", at_.step},
                                                       {"total_steps", total_steps_},
                                                       {"planned_peak_bytes", plan_.peak().value},
                                                       {"cpu", cpu_name()}});
  }

  bool limit_reached() {
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
    } else if (t.patience > 0 && at_.evals_since_best >= t.patience) {
      summary_.ending = Ending::early;
    } else {
      return false;
    }
    return true;
  }

  /// What this worker would have all do after the step: 0 go on, 1 stop for the time is up, more:
  /// stop for a signal came. All hear the same in the step's result, and so stop together.
  int64_t own_vote() const {
    if (options_.stop != nullptr && options_.stop->load() != 0) return 1 + options_.stop->load();
    const double most = p_.job.train.max_seconds;
    return most > 0 && elapsed().value >= most ? 1 : 0;
  }

  Seconds elapsed() const { return elapsed_before_ + (now() - started_); }

  void loop() {
    std::optional<Feeding> made;
    together(team_, "reading the samples", [&] {
      made.emplace(p_, stepper_.range(), at_.step, team_,
                   [&](const std::string& line) { progress_.message(line); });
    });
    Feeding& feeding = *made;
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

  void tell(const std::string& line) {
    if (!line.empty() && !options_.json) progress_.message(line);
  }

  /// Damaged samples that were left out since the last time.
  void tell_bad() {
    if (p_.source.bad == nullptr) return;
    for (const std::string& sample : p_.source.bad->take()) {
      write_event("bad_sample", {{"step", at_.step}, {"what", sample}});
      tell("left out: " + sample);
    }
  }

  /// What any worker has left out; collective.
  void gather_bad() {
    if (p_.source.bad == nullptr) return;
    if (team_.size() > 1) {
      const std::string own = nlohmann::json(p_.source.bad->all()).dump();
      for (const std::string& text : team_.gather_text(own, "counting damaged samples")) {
        const auto theirs = nlohmann::json::parse(text).get<std::map<std::string, std::string>>();
        for (const auto& [name, line] : theirs) p_.source.bad->add(name, line);
      }
    }
    summary_.bad = p_.source.bad->count();
  }

  /// Of all workers together; collective.
  void write_store(const data::StoreCounters& own) {
    if (p_.store.copies == 0) return;
    data::StoreCounters c;
    for (const auto& bytes : team_.gather(std::as_bytes(std::span(&own, 1)), "ending the store")) {
      data::StoreCounters one;
      std::memcpy(&one, bytes.data(), sizeof one);
      c.fetched_records += one.fetched_records;
      c.fetched += one.fetched;
      c.moved_records += one.moved_records;
      c.moved += one.moved;
      c.shuffles = std::max(c.shuffles, one.shuffles);
      c.shuffling = std::max(c.shuffling, one.shuffling);
    }
    write_event("store", {{"step", at_.step},
                          {"copies", p_.store.copies},
                          {"fetched_records", c.fetched_records},
                          {"fetched_bytes", c.fetched.value},
                          {"shuffles", c.shuffles},
                          {"moved_records", c.moved_records},
                          {"moved_bytes", c.moved.value},
                          {"shuffling_seconds", c.shuffling.value}});
  }

  /// Of the lanes' time in the steps so far.
  double waited_part() const {
    return training_time_.value <= 0
               ? 0
               : summary_.waited.value / (training_time_.value * static_cast<double>(plan_.lanes));
  }

  /// `what` is no longer a finite number.
  [[noreturn]] void stop_diverged(const char* what) {
    progress_.finish();
    const nlohmann::json event{{"step", at_.step}, {"what", what}};
    write_event("diverged", event);
    if (options_.json) {
      nlohmann::json line = event;
      line["event"] = "diverged";
      progress_.json_line(line.dump());
    }
    if (folder_ == nullptr) throw AgreedFailure(1, "");
    const auto last = folder_->last_checkpoint();
    const std::string text = fmt::format(
        "step {}: {} not finite (NaN or infinite); training has diverged and stops. {}. A lower "
        "train.lr.peak, a longer warm-up or train.clip_norm may help",
        at_.step, what,
        std::filesystem::exists(last) ? fmt::format("The last good checkpoint is {}", last.string())
                                      : "There is no checkpoint yet");
    if (team_.size() > 1) throw AgreedFailure(1, text);
    throw Error(text);
  }

  double images_per_second() const {
    return training_time_.value <= 0
               ? 0
               : static_cast<double>(steps_here_ * plan_.batch) / training_time_.value;
  }

  void report(const sync::StepResult& result, double rate) {
    // Averaged over about the last 50 steps: single batches jump too much to be read.
    mean_loss_ = steps_here_ <= 1
                     ? result.loss
                     : mean_loss_ + (result.loss - mean_loss_) /
                                        static_cast<double>(std::min<int64_t>(steps_here_, 50));
    Standing& s = standing_;
    s.step = at_.step;
    s.total_steps = total_steps_;
    s.epoch = static_cast<double>(at_.position) / static_cast<double>(samples_);
    s.epochs = p_.job.train.epochs;
    s.loss = mean_loss_;
    s.images_per_second = images_per_second();
    const double per_step = (now() - started_).value / static_cast<double>(steps_here_);
    const int64_t steps_left = last_step() - at_.step;
    s.left.reset();
    if (steps_left > 0) s.left = Seconds{per_step * static_cast<double>(steps_left)};
    progress_.update(s);
    const Seconds time = now();
    if (time - last_event_ < Seconds{1} && at_.step != last_step()) return;
    last_event_ = time;
    write_event("step", {{"step", at_.step},
                         {"epoch", s.epoch},
                         {"loss", result.loss},
                         {"mean_loss", mean_loss_},
                         {"accuracy", result.accuracy},
                         {"learning_rate", rate},
                         {"images_per_second", s.images_per_second},
                         {"waited_for_data_seconds", (summary_.waited - told_waited_).value}});
    told_waited_ = summary_.waited;
  }

  /// Once, when their size is found.
  void tell_buckets() {
    const sync::BucketTuner* tuner = stepper_.tuner();
    if (tuner == nullptr || !tuner->done() || buckets_told_) return;
    buckets_told_ = true;
    nlohmann::json tried = nlohmann::json::array();
    std::vector<std::string> texts;
    for (const sync::BucketTuner::Tried& t : tuner->tried()) {
      tried.push_back({{"bytes", t.size.value}, {"step_seconds", t.step.value}});
      texts.push_back(fmt::format("{}: {}", to_string(t.size), to_string(t.step)));
    }
    const nlohmann::json event{
        {"step", at_.step}, {"bytes", tuner->size().value}, {"tried", tried}};
    write_event("buckets", event);
    if (options_.json) {
      nlohmann::json line = event;
      line["event"] = "buckets";
      progress_.json_line(line.dump());
    } else {
      progress_.message(fmt::format("buckets of {} from here on (a step took, with {})",
                                    to_string(tuner->size()), fmt::join(texts, ", ")));
    }
  }

  void at_boundaries(int64_t before) {
    const job::Train& t = p_.job.train;
    const auto crossed = [&](double every) {
      return times_due(every, at_.position, samples_) > times_due(every, before, samples_);
    };
    if (crossed(t.eval_every)) evaluate_now();
    if (crossed(t.checkpoint_every)) save("last");
  }

  void evaluate_now() {
    const sync::EvalResult result = evaluate(stepper_, p_.source, *p_.source.test, plan_.grain);
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

  /// Writes checkpoint "last" or "best"; collective, worker 0 writes.
  void save(const std::string& which) {
    stepper_.collect();
    // A step whose loss was finite can still have ruined the weights.
    if (!all_finite(stepper_.weights())) stop_diverged("some weights are");
    if (which == "last") saved_step_ = at_.step;
    together(team_, "saving", [&] {
      if (folder_ != nullptr) write_checkpoint(which);
    });
  }

  void write_checkpoint(const std::string& which) {
    const std::filesystem::path path =
        which == "last" ? folder_->last_checkpoint() : folder_->best_checkpoint();
    CheckpointTensors c;
    at_.elapsed = elapsed();
    c.weights = plain_tensors(program_.arena(), stepper_.weights(), true);
    c.buffers = plain_tensors(program_.arena(), stepper_.weights(), false);
    const auto states = stepper_.states();
    const std::vector<std::string> names = p_.optimizer->state_names();
    for (size_t i = 0; i < names.size(); ++i) {
      c.states[names[i]] = plain_tensors(program_.arena(), states[i], true);
    }
    save_checkpoint(path, at_, c);
    write_event("checkpoint", {{"step", at_.step}, {"which", which}, {"path", path.string()}});
  }

  void finish() {
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
    write_event("stop", stop);
    stop["event"] = "stop";
    progress_.json_line(stop.dump());
  }

  Prepared& p_;
  RunFolder* folder_;
  TrainOptions options_;
  const sync::Team& team_;
  const engine::Program& program_;
  const plan::Plan& plan_;
  int64_t samples_;
  Trace trace_;
  sync::Stepper stepper_;
  std::optional<EventLog> events_;
  Progress progress_;
  optim::ScheduleContext context_;
  int64_t total_steps_ = 0;
  Progression at_;
  std::optional<Checkpoint> saved_;
  int64_t vote_ = 0;
  bool buckets_told_ = false;
  bool trace_written_ = false;
  bool loop_over_ = false;
  Summary summary_;
  Seconds started_;
  Seconds elapsed_before_;
  Seconds training_time_;
  Seconds last_event_;
  Seconds told_waited_;  // for data, at the last event
  Standing standing_;
  double mean_loss_ = 0;
  int64_t steps_here_ = 0;
  int64_t evaluated_step_ = -1;
  int64_t saved_step_ = -1;
  double best_saved_ = -std::numeric_limits<double>::infinity();  ///< accuracy of best.safetensors
};

}  // namespace

std::string to_string(Ending ending) {
  switch (ending) {
    case Ending::finished:
      return "finished";
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
