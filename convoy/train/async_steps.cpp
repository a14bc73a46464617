#include "convoy/train/async_steps.hpp"

#include <limits>
#include <optional>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::train {
namespace {

sync::ServerOptions server_options(const Prepared& p, const sync::Team& team) {
  const job::Sync& wish = p.job.sync;
  sync::ServerOptions options;
  using sync::Scheme;
  options.scheme = wish.mode == "stale"    ? Scheme::stale
                   : wish.mode == "backup" ? Scheme::backup
                                           : Scheme::asynchronous;
  options.bound = wish.bound;
  options.backups = static_cast<int>(wish.backups);
  options.update.grains = p.planned.plan.batch / p.planned.plan.grain;
  options.update.decay_all = p.job.train.decay_all;
  options.update.clip_norm = p.job.train.clip_norm;
  options.deadline = team.deadline();
  return options;
}

}  // namespace

bool is_asynchronous(const job::Sync& sync, int workers) {
  return workers > 1 && sync.mode != "bsp" && sync.mode != "balanced";
}

int64_t batch_of_worker(const job::Sync& sync, const plan::Plan& plan, int workers) {
  if (sync.mode != "backup" || workers == 1) return plan.batch;
  if (sync.backups >= workers) {
    refuse("sync.backups: {} of {} leaves nobody to wait for", sync.backups,
           plural(workers, "worker"));
  }
  const int64_t parts = workers - sync.backups;
  const int64_t grains = plan.batch / plan.grain;
  if (grains % parts != 0) {
    refuse(
        "sync.backups: {} of {} leaves {}, among which the {} of a batch cannot be parted evenly",
        sync.backups, plural(workers, "worker"), parts, plural(grains, "grain"));
  }
  return plan.batch / parts;
}

AsyncSteps::AsyncSteps(const Prepared& prepared, const sync::Team& team, sync::Stepper& stepper,
                       Feeding& feeding)
    : team_(team),
      stepper_(stepper),
      feeding_(feeding),
      options_(server_options(prepared, team)),
      servers_(team, *prepared.planned.program, *prepared.optimizer, options_),
      gradient_(AlignedBuffer::of_floats(prepared.planned.program->arena().size())) {
  servers_.load(stepper.weights(), stepper.states());
}

/// Steps of the stream are of what one worker computes: with `backup`, one for each part of a step.
int64_t AsyncSteps::stream_step(int64_t ticket) const {
  return options_.scheme == sync::Scheme::backup ? ticket * team_.size() + team_.rank() : ticket;
}

void AsyncSteps::want(int64_t ticket) {
  const std::vector<sync::GrainRange> all(static_cast<size_t>(team_.size()), stepper_.range());
  const std::vector<sync::GrainRange> none(static_cast<size_t>(team_.size()));
  feeding_.announce(stream_step(ticket), all);
  feeding_.announce(stream_step(ticket) + 1, none);
}

sync::StepResult AsyncSteps::compute(int64_t ticket) {
  servers_.pull(stepper_.weights());
  stepper_.weights_changed();
  return stepper_.gradient(stream_step(ticket), feeding_.source(), gradient_.floats());
}

sync::SegmentEnd AsyncSteps::run(int64_t first, int64_t last, const SegmentCalls& calls) {
  servers_.begin_segment(first, last);
  bool closed = false;
  std::optional<int64_t> next = servers_.ticket();
  if (next) want(*next);
  while (next) {
    const int64_t ticket = *next;
    // A ticket ahead, so that its samples are prepared meanwhile. Who is late in a step is given
    // another next one, so there it would be in vain.
    const bool ahead = options_.scheme != sync::Scheme::backup;
    if (ahead) next = servers_.ticket();
    if (ahead && next) want(*next);
    const Seconds begin = now();
    const sync::StepResult result = compute(ticket);
    const double loss = result.finite ? result.loss : std::numeric_limits<double>::quiet_NaN();
    const sync::Fate fate = servers_.push(
        {.ticket = ticket, .learning_rate = calls.learning_rate(ticket), .loss = loss},
        gradient_.floats());
    if (fate == sync::Fate::applied) calls.after_step(ticket, result, now() - begin);
    if (!closed && calls.vote() != 0) {
      closed = true;
      servers_.close();
    }
    if (ahead) continue;
    next = servers_.ticket();
    if (next) want(*next);
  }
  const sync::SegmentEnd end = servers_.end_segment(stepper_.weights(), stepper_.states());
  stepper_.weights_changed();
  late_ += end.late;
  refused_ += end.refused;
  return end;
}

std::string AsyncSteps::describe() const {
  std::string text;
  if (options_.scheme != sync::Scheme::backup) {
    const sync::Staleness& s = servers_.staleness();
    text = fmt::format("updates were {:.2f} behind on average, at most {}", s.mean(), s.most());
  } else {
    text = fmt::format("{} came too late and were dropped", plural(late_, "gradient"));
  }
  if (refused_ > 0) text += fmt::format("; {} refused: not finite", plural(refused_, "gradient"));
  return text;
}

}  // namespace convoy::train
