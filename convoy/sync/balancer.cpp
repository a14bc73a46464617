#include "convoy/sync/balancer.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::sync {
namespace {

// The first step touches new memory everywhere and says little about the next.
constexpr int64_t kWarmUp = 1;
// A worker without grains is tried again after so many steps; each time in vain, twice as many.
constexpr int64_t kFirstProbe = 20;
constexpr int64_t kLastProbe = 1280;

/// Where its time goes, if it is clear.
Cause cause_of(const WorkerReport& r) {
  constexpr double kMuch = 0.1;
  if (r.throttled > kMuch) return Cause::throttled;
  if (r.data.value > kMuch * r.compute.value) return Cause::data;
  if (r.others > kMuch) return Cause::other_programs;
  if (r.weights.value > r.compute.value) return Cause::network;
  return Cause::computing;
}

}  // namespace

std::string to_string(Cause cause) {
  switch (cause) {
    case Cause::computing:
      return "computing";
    case Cause::throttled:
      return "throttled";
    case Cause::other_programs:
      return "other programs";
    case Cause::data:
      return "data";
    case Cause::network:
      return "network";
  }
  return "";
}

Balancer::Balancer(std::vector<int64_t> shares, std::vector<ShareBounds> bounds,
                   const BalanceOptions& options)
    : options_(options),
      shares_(std::move(shares)),
      bounds_(std::move(bounds)),
      reader_(static_cast<int>(shares_.size())),
      loads_(shares_.size()),
      idle_(shares_.size(), 0),
      probe_after_(shares_.size(), kFirstProbe),
      standings_(shares_.size()),
      clamped_(shares_.size(), false) {
  check(bounds_.size() == shares_.size(), "every worker has bounds");
  for (size_t i = 0; i < shares_.size(); ++i) {
    predictors_.push_back(make_predictor(options.predictor));
    profiles_.emplace_back(options.lanes.empty() ? 1 : options.lanes[i]);
  }
  if (options.solver == BalanceOptions::Solver::feedback) feedback_.emplace(shares_, bounds_);
  if (options.solver == BalanceOptions::Solver::profile) {
    steady_ = SteadyShares({.profile = [this](size_t worker, double speed) {
      return profiles_[worker].profile(speed);
    }});
  }
}

int64_t Balancer::grains() const {
  return std::accumulate(shares_.begin(), shares_.end(), int64_t{0});
}

bool Balancer::after_step(std::span<const int64_t> ran, std::span<const WorkerReport> reports) {
  check(reports.size() == shares_.size() && ran.size() == shares_.size(), "every worker reports");
  const std::vector<int64_t> before = shares_;
  ReportReader::Read read = reader_.read(reports);
  messages_.insert(messages_.end(), read.messages.begin(), read.messages.end());
  for (size_t i = 0; i < ran.size(); ++i) idle_[i] = ran[i] > 0 ? 0 : idle_[i] + 1;
  show(reports, read);
  if (++steps_ > kWarmUp) {
    learn(reports, read);
    decide(reports, read);
  }
  for (size_t i = 0; i < reports.size(); ++i) loads_[i] = reports[i].load;
  if (shares_ == before) return false;
  ++moves_;
  return true;
}

void Balancer::learn(std::span<const WorkerReport> reports, const ReportReader::Read& read) {
  std::vector<double> came;
  for (size_t i = 0; i < reports.size(); ++i) {
    if (!read.speeds[i]) continue;
    predictors_[i]->observe({.speed = *read.speeds[i], .load = loads_[i]});
    profiles_[i].observe(reports[i].grains, reports[i].compute);
    came.push_back(*read.speeds[i]);
  }
  // Promises are judged only by steps of which everything is known.
  if (came.size() == reports.size()) steady_.came(came);
}

/// Of the next step; 0 where nothing is known.
std::vector<double> Balancer::predicted(std::span<const WorkerReport> reports) const {
  std::vector<double> speeds;
  for (size_t i = 0; i < reports.size(); ++i) {
    const bool unknown = reader_.ignored(static_cast<int>(i));
    speeds.push_back(unknown ? 0 : predictors_[i]->predict(reports[i].load));
  }
  return speeds;
}

/// By the memory that workers have now; and who has had no grains for long gets one.
std::vector<ShareBounds> Balancer::bounds_now(std::span<const WorkerReport> reports) {
  std::vector<ShareBounds> now = bounds_;
  int64_t room = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    now[i].most = std::clamp<int64_t>(reports[i].most, 0, now[i].most);
    room += std::min(now[i].most, grains());
  }
  // Somebody has to take them: rather than ending the training, what was planned is kept to.
  if (room < grains()) now = bounds_;
  for (size_t i = 0; i < now.size(); ++i) {
    if (idle_[i] < probe_after_[i] || now[i].most == 0) continue;
    now[i].least = std::max<int64_t>(now[i].least, 1);
    idle_[i] = 0;
    probe_after_[i] = std::min(2 * probe_after_[i], kLastProbe);
  }
  return now;
}

void Balancer::decide(std::span<const WorkerReport> reports, const ReportReader::Read& read) {
  if (feedback_) {
    std::vector<Seconds> times;
    for (const WorkerReport& r : reports) times.push_back(r.compute);
    if (read.ignored.empty() && feedback_->took(times)) shares_ = feedback_->shares();
    return;
  }
  std::vector<double> speeds = predicted(reports);
  // Nobody is slower than what nobody knows: such a worker gets an equal share.
  double sum = 0;
  int64_t known = 0;
  for (const double speed : speeds) {
    if (speed > 0) sum += speed, ++known;
  }
  if (known == 0) return;
  for (double& speed : speeds) {
    if (speed <= 0) speed = sum / static_cast<double>(known);
  }
  const Shares& decided = steady_.decide(grains(), speeds, bounds_now(reports));
  shares_ = decided.grains;
  tell_clamped(decided);
  for (size_t i = 0; i < speeds.size(); ++i) {
    standings_[i].expected = {static_cast<double>(shares_[i]) / speeds[i]};
  }
}

void Balancer::tell_clamped(const Shares& shares) {
  std::vector<bool> now(clamped_.size(), false);
  for (const int worker : shares.clamped) now[static_cast<size_t>(worker)] = true;
  if (now != clamped_) {
    for (std::string& line : describe_clamped(shares)) messages_.push_back(std::move(line));
  }
  clamped_ = now;
}

void Balancer::show(std::span<const WorkerReport> reports, const ReportReader::Read& read) {
  Seconds longest;
  const auto busy = [](const WorkerReport& r) { return r.compute + r.data; };
  for (size_t i = 0; i < reports.size(); ++i) {
    if (read.speeds[i]) longest = std::max(longest, busy(reports[i]));
  }
  for (size_t i = 0; i < reports.size(); ++i) {
    Standing& s = standings_[i];
    s.speed = read.speeds[i].value_or(0);
    s.predicted = s.expected;
    s.took = reports[i].compute;
    s.waited = read.speeds[i] ? longest - busy(reports[i]) : longest;
    s.cause = cause_of(reports[i]);
  }
}

std::optional<int> Balancer::slowest() const {
  constexpr double kSlower = 0.9;
  double fastest = 0;
  std::optional<size_t> found;
  for (size_t i = 0; i < standings_.size(); ++i) {
    const double speed = standings_[i].speed;
    if (speed <= 0) continue;
    fastest = std::max(fastest, speed);
    if (!found || speed < standings_[*found].speed) found = i;
  }
  if (!found || standings_[*found].speed > kSlower * fastest) return std::nullopt;
  return static_cast<int>(*found);
}

std::vector<std::string> Balancer::take_messages() {
  return std::exchange(messages_, {});
}

}  // namespace convoy::sync
