#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/base/text.hpp"
#include "convoy/base/threads.hpp"
#include "convoy/base/version.hpp"
#include "convoy/train/agree.hpp"
#include "convoy/train/training.hpp"

namespace convoy::train {

void Training::trace_steps() {
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

void Training::write_event(std::string_view event, const nlohmann::json& fields) {
  if (events_) events_->write(event, fields);
}

void Training::write_start() {
  write_event(options_.resume ? "resume" : "start", {{"version", version()},
                                                     {"model", p_.graph.name()},
                                                     {"parameters", p_.graph.parameter_count()},
                                                     {"samples", samples_},
                                                     {"batch", plan_.batch},
                                                     {"grain", plan_.grain},
                                                     {"workers", team_.size()},
                                                     {"hosts", team_.nodes()},
                                                     {"mode", p_.job.sync.mode},
                                                     {"emulation", slow_.describe()},
                                                     {"lanes", plan_.lanes},
                                                     {"threads_per_lane", plan_.threads_per_lane},
                                                     {"step", at_.step},
                                                     {"total_steps", total_steps_},
                                                     {"planned_peak_bytes", plan_.peak().value},
                                                     {"cpu", cpu_name()}});
  for (const plan::Placement& p : p_.spread.placements) {
    write_event("placement", {{"classifier", p.classifier},
                              {"layers", p.layers},
                              {"copies", p.copies},
                              {"predicted_bytes", p.sent.value},
                              {"predicted_step", p.step.value}});
  }
}

void Training::tell_segment(const sync::SegmentEnd& end) {
  tell_staleness(
      {{"updates", end.updates}, {"loss", end.loss}, {"late", end.late}, {"refused", end.refused}},
      end.staleness);
  if (end.refused > 0) {
    tell(fmt::format("{} refused: not finite", plural(end.refused, "gradient")));
  }
}

void Training::tell_segment(const sync::GroupSegment& end) {
  nlohmann::json event{
      {"pieces", end.pieces}, {"refused", end.refused}, {"applied_momentum", end.momentum}};
  if (end.measured) event["measured_momentum"] = *end.measured;
  tell_staleness(event, end.staleness);
  if (end.refused > 0) {
    tell(fmt::format("{} of gradients refused: not finite", plural(end.refused, "piece")));
  }
}

void Training::tell_staleness(nlohmann::json event, const sync::Staleness& staleness) {
  std::vector<int64_t> counts(staleness.counts().begin(), staleness.counts().end());
  while (!counts.empty() && counts.back() == 0) counts.pop_back();
  event["step"] = at_.step;
  event["mean_staleness"] = staleness.mean();
  event["most_staleness"] = staleness.most();
  event["staleness_counts"] = counts;
  write_event("segment", event);
}

void Training::tell(const std::string& line) {
  if (!line.empty() && !options_.json) progress_.message(line);
}

void Training::tell_bad() {
  if (p_.source.bad == nullptr) return;
  for (const std::string& sample : p_.source.bad->take()) {
    write_event("bad_sample", {{"step", at_.step}, {"what", sample}});
    tell("left out: " + sample);
  }
}

void Training::gather_bad() {
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

void Training::write_store(const data::StoreCounters& own) {
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

double Training::waited_part() const {
  return training_time_.value <= 0
             ? 0
             : summary_.waited.value / (training_time_.value * static_cast<double>(plan_.lanes));
}

void Training::stop_diverged(const char* what) {
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

double Training::images_per_second() const {
  return training_time_.value <= 0
             ? 0
             : static_cast<double>(steps_here_ * plan_.batch) / training_time_.value;
}

void Training::report(const sync::StepResult& result, double rate) {
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
  if (balancing_) s.balance = balancing_->summary();
  progress_.update(s);
  const Seconds time = now();
  if (time - last_event_ < Seconds{1} && at_.step != last_step()) return;
  last_event_ = time;
  nlohmann::json event{{"step", at_.step},
                       {"epoch", s.epoch},
                       {"loss", result.loss},
                       {"mean_loss", mean_loss_},
                       {"accuracy", result.accuracy},
                       {"learning_rate", rate},
                       {"images_per_second", s.images_per_second},
                       {"waited_for_data_seconds", (summary_.waited - told_waited_).value}};
  if (balancing_) event["balance"] = balancing_->event();
  write_event("step", event);
  told_waited_ = summary_.waited;
}

void Training::tell_buckets() {
  const sync::BucketTuner* tuner = stepper_.tuner();
  if (tuner == nullptr || !tuner->done() || buckets_told_) return;
  buckets_told_ = true;
  nlohmann::json tried = nlohmann::json::array();
  std::vector<std::string> texts;
  for (const sync::BucketTuner::Tried& t : tuner->tried()) {
    tried.push_back({{"bytes", t.size.value}, {"step_seconds", t.step.value}});
    texts.push_back(fmt::format("{}: {}", to_string(t.size), to_string(t.step)));
  }
  const nlohmann::json event{{"step", at_.step}, {"bytes", tuner->size().value}, {"tried", tried}};
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

}  // namespace convoy::train
