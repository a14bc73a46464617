#include "convoy/train/balancing.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convoy/base/error.hpp"
#include "convoy/base/threads.hpp"
#include "convoy/data/loader.hpp"

namespace convoy::train {
namespace {

std::vector<int> cores_of(const plan::Plan& plan) {
  return plan.cores.empty() ? usable_cores().cores : plan.cores;
}

sync::BalanceOptions::Solver solver_of(const std::string& name) {
  using Solver = sync::BalanceOptions::Solver;
  if (name == "profile") return Solver::profile;
  return name == "feedback" ? Solver::feedback : Solver::proportional;
}

}  // namespace

bool balances(const Prepared& prepared, const sync::Team& team) {
  const job::Sync& wish = prepared.job.sync;
  return team.size() > 1 && wish.mode == "balanced" && wish.shares.empty();
}

SlowDown::SlowDown(const Prepared& prepared, const sync::Team& team, const std::string& what)
    : worker_(team.rank()), brakes_(static_cast<size_t>(prepared.planned.plan.lanes)) {
  if (!what.empty()) replay_.emplace(sync::Replay::read(what, team.size()));
}

void SlowDown::prepare(sync::StepperOptions& options) {
  if (!replay_) return;
  options.hold_back = [this](int lane, int64_t step, Seconds cpu, Seconds took) {
    brakes_[static_cast<size_t>(lane)].hold_back(
        sync::pause(cpu, took, replay_->speed(worker_, step)));
  };
}

std::optional<sync::Load> SlowDown::load(int64_t step) const {
  if (!replay_) return std::nullopt;
  return replay_->load(worker_, step);
}

Balancing::Balancing(const Prepared& prepared, const sync::Team& team, const SlowDown& slow)
    : p_(prepared),
      team_(team),
      slow_(slow),
      grains_(prepared.planned.plan.batch / prepared.planned.plan.grain),
      meter_(cores_of(prepared.planned.plan)),
      waited_(static_cast<size_t>(team.size())) {
  std::vector<int64_t> shares;
  for (const sync::GrainRange& range : team.ranges(grains_)) shares.push_back(range.size());
  largest_ = shares[static_cast<size_t>(team.rank())];
  for (int64_t share = 0; share <= grains_; ++share) memory_.push_back(memory_of(share));
  const plan::Plan& plan = p_.planned.plan;
  most_ = team.gather_numbers(room_for(plan.limit - plan.allocated()), "planning shares");
  std::vector<sync::ShareBounds> bounds;
  for (const int64_t most : most_) bounds.push_back({.least = 0, .most = most});
  sync::BalanceOptions options;
  options.predictor = p_.job.sync.predictor;
  options.solver = solver_of(p_.job.sync.solver);
  options.lanes = team.gather_numbers(plan.lanes, "planning shares");
  balancer_.emplace(shares, std::move(bounds), options);
  coming_.push_back(std::move(shares));
}

/// Partial sums of gradients wherever the share begins, and the ring of prepared samples.
Bytes Balancing::memory_of(int64_t share) const {
  const plan::Plan& plan = p_.planned.plan;
  const int64_t each = (share + plan.lanes - 1) / plan.lanes;
  Bytes memory{4 * plan.lanes * sync::RangeSum::most_slots(each) *
               p_.planned.program->arena().size()};
  if (share == 0) return memory;
  data::LoaderOptions loading;
  loading.batch = plan.batch;
  loading.grain = plan.grain;
  loading.grains = data::GrainRange{0, share};
  return memory + data::TrainLoader::memory(loading, p_.graph.input_shape());
}

/// The largest share for which no more than `available` is needed on top of what was taken so far.
int64_t Balancing::room_for(Bytes available) const {
  int64_t share = largest_;
  const Bytes taken = memory_[static_cast<size_t>(largest_)];
  while (share < grains_ && memory_[static_cast<size_t>(share + 1)] - taken <= available) ++share;
  return share;
}

void Balancing::prepare(sync::StepperOptions& options) {
  options.most_shares = most_;
  options.look = [this](int64_t step, sync::WorkerReport& report) { look(step, report); };
}

void Balancing::look(int64_t step, sync::WorkerReport& report) {
  const LoadReading reading = meter_.read();
  report.load = {.cpu = reading.cpu, .memory = reading.memory};
  report.throttled = reading.throttled;
  report.others = reading.others;
  largest_ = std::max(largest_, report.grains);
  report.most = room_for(reading.memory_available);
  // What the next step's worker would see.
  if (const auto load = slow_.load(step + 1)) report.load = *load;
}

void Balancing::set_lag(int lag) {
  while (static_cast<int>(coming_.size()) < lag + 1) coming_.push_back(coming_.back());
}

const std::vector<int64_t>& Balancing::after_step(const sync::StepResult& result) {
  const std::vector<int64_t> ran = std::move(coming_.front());
  coming_.pop_front();
  balancer_->after_step(ran, result.reports);
  coming_.push_back(balancer_->shares());
  const auto& standings = balancer_->standings();
  for (size_t i = 0; i < standings.size(); ++i) waited_[i] += standings[i].waited;
  ++steps_;
  return coming_.back();
}

nlohmann::json Balancing::event() {
  nlohmann::json event{{"shares", coming_.front()}};
  for (const sync::Balancer::Standing& s : balancer_->standings()) {
    event["grains_per_second"].push_back(s.speed);
    event["compute_seconds"].push_back(s.took.value);
    event["predicted_seconds"].push_back(s.predicted.value);
  }
  for (Seconds& waited : waited_) {
    event["waited_seconds"].push_back(steps_ > 0 ? waited.value / static_cast<double>(steps_)
                                                 : 0.0);
    waited = {};
  }
  steps_ = 0;
  event["moves"] = balancer_->moves() - told_moves_;
  told_moves_ = balancer_->moves();
  if (const auto worker = balancer_->slowest()) {
    const auto& slow = balancer_->standings()[static_cast<size_t>(*worker)];
    event["slowest"] = {{"worker", *worker}, {"cause", to_string(slow.cause)}};
  }
  return event;
}

std::string Balancing::summary() const {
  constexpr size_t kFew = 4;
  const std::vector<int64_t>& shares = coming_.front();
  const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
  std::string text = shares.size() <= kFew ? fmt::format("shares {}", fmt::join(shares, "+"))
                                           : fmt::format("shares {}…{}", *least, *most);
  if (const auto worker = balancer_->slowest()) {
    const auto& slow = balancer_->standings()[static_cast<size_t>(*worker)];
    text += fmt::format(", {} slowest ({})", team_.name(*worker), to_string(slow.cause));
  }
  return text;
}

void Balancing::trace(Trace& trace) const {
  if (!trace.on()) return;
  const auto own = static_cast<size_t>(team_.rank());
  trace.count("share", static_cast<double>(coming_.front()[own]), now());
  trace.count("grains per second", balancer_->standings()[own].speed, now());
}

}  // namespace convoy::train
