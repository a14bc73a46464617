#include "convoy/train/grouping.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::train {
namespace {

sync::MomentumRule rule_of(const job::Job& job) {
  sync::MomentumRule rule;
  const std::string& wish = job.cluster.momentum;
  const bool has_some = job.train.optimizer != "adam" && job.train.momentum > 0;
  if (has_some) rule.total = job.train.momentum;
  if (wish == "total") return rule;
  if (!has_some) {
    refuse("cluster.momentum: {} is for sgd and lars with train.momentum greater than 0", wish);
  }
  if (wish == "measured") {
    rule.measured = true;
    return rule;
  }
  double number = 0;
  const auto [end, error] = std::from_chars(wish.data(), wish.data() + wish.size(), number);
  if (error != std::errc() || end != wish.data() + wish.size() || !(std::abs(number) < 1)) {
    refuse("cluster.momentum: '{}' is neither total nor measured nor a number between -1 and 1",
           wish);
  }
  rule.applied = number;
  return rule;
}

sync::GroupOptions group_options(const Prepared& p, const sync::Team& team) {
  sync::GroupOptions options;
  options.update.grains = p.planned.plan.batch / p.planned.plan.grain;
  options.update.decay_all = p.job.train.decay_all;
  options.update.clip_norm = p.job.train.clip_norm;
  options.momentum = rule_of(p.job);
  options.deadline = team.deadline();
  return options;
}

}  // namespace

bool in_groups(const job::Job& job, int workers) {
  return workers > 1 && (job.cluster.groups > 1 || job.cluster.servers > 0);
}

void check_groups(const job::Job& job, const sync::Team& team) {
  if (!in_groups(job, team.size())) return;
  if (job.sync.mode != "bsp" && job.sync.mode != "balanced") {
    refuse(
        "cluster.groups: groups step as in mode bsp or balanced; sync.mode {} is of single workers "
        "(cluster.groups: {} is asynchronous, too)",
        job.sync.mode, team.size());
  }
  if (!job.sync.shares.empty()) {
    refuse("sync.shares: with groups, shares are by speed or (sync.mode: bsp) equal");
  }
  layout_of(job, team);
  rule_of(job);
}

sync::GroupLayout layout_of(const job::Job& job, const sync::Team& team) {
  const job::Cluster& wish = job.cluster;
  // By themselves, as many as hosts: every host's link then carries the same.
  const int64_t servers = wish.servers > 0 ? wish.servers : team.nodes();
  return sync::lay_out(team, static_cast<int>(std::max<int64_t>(1, wish.groups)),
                       static_cast<int>(servers), wish.own_servers);
}

Grouping::Grouping(const Prepared& prepared, const sync::Team& world)
    : world_(world),
      layout_(layout_of(prepared.job, world)),
      rate_(prepared.job.cluster.learning_rate == "scaled" ? layout_.groups() : 1),
      bucket_(sync::bucket_for_servers({4 * prepared.planned.program->arena().size()})) {
  const int own = layout_.group[static_cast<size_t>(world.rank())];
  const bool serves_only = own == sync::GroupLayout::kNone;
  auto split = world.world()->split(serves_only ? layout_.groups() : own);
  if (!serves_only) {
    comm_ = std::move(split);
    group_.emplace(*comm_, world.deadline(), true);
  }
  model_.emplace(world, layout_, group_ ? &*group_ : nullptr, *prepared.planned.program,
                 *prepared.optimizer, group_options(prepared, world));
}

int Grouping::part() const {
  const int own = layout_.group[static_cast<size_t>(world_.rank())];
  if (own != sync::GroupLayout::kNone) return own;
  const auto place = std::ranges::find(layout_.servers, world_.rank()) - layout_.servers.begin();
  return layout_.groups() + static_cast<int>(place);
}

int Grouping::parts() const {
  const auto alone = std::ranges::count(layout_.group, sync::GroupLayout::kNone);
  return layout_.groups() + static_cast<int>(alone);
}

void Grouping::prepare(sync::StepperOptions& options) {
  if (serves_only()) return;
  options.exchange.remote = &*model_;
  if (options.exchange.buckets.size() > 1) options.exchange.buckets = {bucket_};
}

void Grouping::load(sync::Stepper& stepper) {
  model_->load(stepper.weights(), stepper.states());
  stepper.weights_changed();
}

/// Samples of the group's workers; what others need, they announce themselves.
void Grouping::want(Feeding& feeding, const sync::Stepper& stepper, int64_t batch) {
  if (wanted_ == std::pair(batch, stepper.range())) return;
  wanted_ = {batch, stepper.range()};
  const std::vector<sync::GrainRange> none(static_cast<size_t>(world_.size()));
  std::vector<sync::GrainRange> own = none;
  own[static_cast<size_t>(world_.rank())] = stepper.range();
  feeding.announce(batch, own);
  feeding.announce(batch + 1, none);
}

sync::GroupSegment Grouping::run(sync::Stepper& stepper, Feeding& feeding, int64_t first,
                                 int64_t last, const SegmentCalls& calls) {
  model_->begin_segment(first, last);
  using Ticket = sync::GroupModel::Ticket;
  const auto take = [&] {
    std::optional<Ticket> ticket = model_->ticket();
    // To want nothing could not be taken back.
    if (ticket && stepper.range().size() > 0) want(feeding, stepper, ticket->batch);
    return ticket;
  };
  std::optional<Ticket> next = serves_only() ? std::nullopt : take();
  bool closed = false;
  while (next) {
    const Ticket ticket = *next;
    // A batch ahead, so that its samples are prepared meanwhile; this one's share may have changed
    // since it was.
    want(feeding, stepper, ticket.batch);
    next = take();
    const Seconds begin = now();
    const sync::StepResult result = stepper.step(
        ticket.batch, rate_ * calls.learning_rate(ticket.batch), feeding.source(), calls.vote());
    calls.after_step(ticket.batch, result, now() - begin);
    if (result.vote != 0 && !closed) {
      closed = true;
      model_->close();
    }
  }
  stepper.settle();
  const sync::GroupSegment end = model_->end_segment(stepper.weights(), stepper.states());
  stepper.weights_changed();
  refused_ += end.refused;
  return end;
}

std::string Grouping::describe() const {
  const sync::Staleness& s = model_->staleness();
  std::string text = fmt::format(
      "{} of {}; updates were {:.2f} behind on average, at most {}",
      plural(layout_.groups(), "group"),
      plural(static_cast<int64_t>(layout_.members.front().size()), "worker"), s.mean(), s.most());
  if (refused_ > 0) {
    text += fmt::format("; {} of gradients refused: not finite", plural(refused_, "piece"));
  }
  return text;
}

}  // namespace convoy::train
