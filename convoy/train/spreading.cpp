#include "convoy/train/spreading.hpp"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/comm/choose.hpp"
#include "convoy/plan/lemmas.hpp"
#include "convoy/plan/step_time.hpp"
#include "convoy/sync/exchange.hpp"

namespace convoy::train {
namespace {

bool classifier_open(const job::Job& job) {
  return job.parallel.classifier == "auto";
}
bool groups_open(const job::Job& job) {
  return job.cluster.groups == 0;
}
bool servers_open(const job::Job& job) {
  return job.cluster.servers == 0 && job.cluster.own_servers && job.cluster.groups != 1;
}

plan::StepFacts facts_of(const plan::Planned& planned, int workers) {
  const plan::Plan& p = planned.plan;
  plan::StepFacts facts;
  facts.computing = {p.step.value * workers};
  facts.tail_part = plan::tail_part(*planned.program);
  facts.weights = planned.program->arena().size();
  facts.tail = planned.program->tail();
  if (facts.tail) facts.linear = plan::measure_linear(facts.tail->floats);
  facts.batch = p.batch;
  facts.grain = p.grain;
  facts.lanes = p.lanes;
  return facts;
}

/// What workers do where nothing says how fast the steps are: nothing unusual.
void fall_back(job::Job& job) {
  if (groups_open(job)) job.cluster.groups = 1;
  if (classifier_open(job)) job.parallel.classifier = "data";
}

class Decision {
 public:
  Decision(job::Job& job, const plan::StepFacts& facts, const sync::Team& team,
           const comm::LinkSpeed& link)
      : job_(job), facts_(facts), team_(team), link_(link) {}

  Spread make() {
    if (groups_open(job_)) decide_groups();
    if (servers_open(job_)) decide_servers();
    if (classifier_open(job_)) decide_classifier();
    return {reasons_, placements_};
  }

 private:
  int workers() const {
    const int64_t own = job_.cluster.own_servers ? std::max<int64_t>(1, job_.cluster.servers) : 0;
    return std::max(1, team_.size() - static_cast<int>(own));
  }

  void decide_groups() {
    const bool waits = job_.sync.mode == "bsp" || job_.sync.mode == "balanced";
    if (!waits || !job_.sync.shares.empty()) {
      job_.cluster.groups = 1;
      reasons_.push_back(fmt::format(
          "groups 1, because {}",
          waits ? "sync.shares names shares" : fmt::format("sync.mode is {}", job_.sync.mode)));
      return;
    }
    const int servers =
        job_.cluster.servers > 0 ? static_cast<int>(job_.cluster.servers) : team_.nodes();
    const auto forecasts = plan::forecast_groups(facts_, workers(), servers, link_);
    const double momentum = job_.train.optimizer == "adam" ? 0.9 : job_.train.momentum;
    const int groups = job_.sync.reproducible ? 1 : plan::choose_groups(forecasts, momentum);
    job_.cluster.groups = groups;
    std::string table;
    for (const plan::GroupForecast& f : forecasts) {
      table += fmt::format("{}{}: {}", table.empty() ? "" : ", ", f.groups, to_string(f.update));
    }
    reasons_.push_back(fmt::format(
        "groups {}{}; predicted time between updates by their number: {}", groups,
        job_.sync.reproducible ? ", because sync.reproducible asks for the bits of one worker" : "",
        table));
  }

  void decide_servers() {
    const int64_t groups = job_.cluster.groups;
    if (groups < 2) return;
    const double bandwidth = 1 / std::max(1e-12, link_.per_byte.value);
    const Bytes model{4 * facts_.weights};
    // The turn of a group that has its part of all processes.
    const Seconds turn{facts_.computing.value * static_cast<double>(groups) / team_.size()};
    const int needed = plan::servers_needed(model, static_cast<int>(groups), bandwidth, turn);
    const int64_t most = team_.size() - groups;
    if (most < 1) return;  // there are too few processes, which is said later
    const auto right = [&](int64_t s) { return (team_.size() - s) % groups == 0; };
    int64_t servers = std::min<int64_t>(needed, most);
    while (servers < most && !right(servers)) ++servers;
    while (servers > 1 && !right(servers)) --servers;
    job_.cluster.servers = servers;
    reasons_.push_back(fmt::format(
        "servers {}: {} needed, so that links of {}/s hide {} behind a turn of {}", servers, needed,
        to_string(Bytes{static_cast<int64_t>(bandwidth)}), to_string(model), to_string(turn)));
  }

  void decide_classifier() {
    job::Parallel& parallel = job_.parallel;
    parallel.classifier = "data";
    const bool norms = job_.train.optimizer == "lars" || job_.train.clip_norm > 0;
    const bool waits = job_.sync.mode == "bsp" || job_.sync.mode == "balanced";
    if (!facts_.tail || norms || !waits || job_.sync.reproducible) {
      reasons_.push_back(fmt::format("classifier data: {}",
                                     !facts_.tail ? "the network does not end in linear layers"
                                     : norms      ? "norms need the whole gradient"
                                     : job_.sync.reproducible
                                         ? "sync.reproducible asks for the bits of one worker"
                                         : "sync.mode is of single workers"));
      return;
    }
    const int groups = static_cast<int>(std::max<int64_t>(1, job_.cluster.groups));
    const int together = std::max(1, workers() / groups);
    plan::StepFacts facts = facts_;
    facts.groups = groups;
    placements_ = plan::placements(facts, together, link_);
    const plan::Placement& best = placements_.front();
    parallel.classifier = best.classifier;
    parallel.copies = std::max(1, best.copies);
    parallel.layers = best.layers;
    const auto data = std::ranges::find(placements_, "data", &plan::Placement::classifier);
    reasons_.push_back("classifier " + plan::describe(best));
    if (best.classifier != "data") reasons_.back() += "; " + plan::describe(*data);
  }

  job::Job& job_;
  const plan::StepFacts& facts_;
  const sync::Team& team_;
  const comm::LinkSpeed& link_;
  std::vector<std::string> reasons_;
  std::vector<plan::Placement> placements_;
};

/// What was decided, in a line that others can read.
std::string to_text(const job::Job& job) {
  return fmt::format("{} {} {} {} {}", job.cluster.groups, job.cluster.servers,
                     job.parallel.classifier, job.parallel.layers, job.parallel.copies);
}

void take_over(job::Job& job, const std::string& text) {
  std::istringstream in(text);
  in >> job.cluster.groups >> job.cluster.servers >> job.parallel.classifier >>
      job.parallel.layers >> job.parallel.copies;
}

}  // namespace

bool leaves_spread_open(const job::Job& job, int workers) {
  if (workers < 2) return false;
  return classifier_open(job) || groups_open(job) || servers_open(job);
}

Spread decide_spread(job::Job& job, const plan::Planned& planned, const sync::Team& team) {
  const comm::LinkSpeed idle = comm::measure_links(*team.world(), team.deadline());
  const Seconds pause = comm::pause_for(idle, sync::ExchangeOptions{}.pause);
  const comm::LinkSpeed link =
      comm::measure_in_use(*team.world(), idle, pause, 0, team.deadline()).link;
  Spread spread;
  if (team.rank() == 0) {
    if (planned.plan.step.value > 0) {
      const plan::StepFacts facts = facts_of(planned, team.size());
      spread = Decision(job, facts, team, link).make();
    } else {
      spread.reasons.emplace_back("one group, classifier data: steps were not measured");
    }
    fall_back(job);
  }
  take_over(job, team.text_from_first(to_text(job), "deciding about groups and the classifier"));
  return spread;
}

}  // namespace convoy::train
