#include "convoy/plan/placement.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/comm/choose.hpp"
#include "convoy/optim/asynchrony.hpp"
#include "convoy/sync/split_tail.hpp"

namespace convoy::plan {
namespace {

/// What travels, and how long it takes on one link.
struct Way {
  Bytes sent;
  Seconds time;

  Way& operator+=(const Way& other) {
    sent += other.sent;
    time += other.time;
    return *this;
  }
};

/// Sums of so many floats over `ranks`, each of which updates its strip and spreads it.
Way exchange(int64_t floats, int ranks, const comm::LinkSpeed& link) {
  if (ranks < 2 || floats == 0) return {};
  const comm::Way way = comm::fastest(comm::Form::allreduce, ranks, floats, link);
  const comm::Strips strips = comm::strips_for(way, floats, ranks);
  return {comm::traffic(way, comm::Form::allreduce, 0, strips).bytes,
          comm::predicted_time(way, comm::Form::allreduce, ranks, floats, link)};
}

/// Samples of each worker in a round, and rounds of a step.
struct Rounds {
  int64_t rows = 0;
  int64_t count = 0;
};

Rounds rounds_of(const StepFacts& facts, int workers) {
  const double grains = static_cast<double>(facts.batch) / static_cast<double>(facts.grain);
  const double share = std::ceil(grains / workers);
  const double lanes = std::min<double>(facts.lanes, share);
  return {static_cast<int64_t>(lanes) * facts.grain,
          static_cast<int64_t>(std::ceil(share / lanes))};
}

/// Activations of a step among `team` workers that have a slice each.
Way activations(const engine::Tail& tail, const Rounds& rounds, int team,
                const comm::LinkSpeed& link) {
  if (team < 2) return {};
  const std::vector<int64_t> rows(static_cast<size_t>(team), rounds.rows);
  const comm::Traffic traffic = sync::SplitTail::traffic(tail, rows, 0);
  // Inputs, labels, outputs of each layer, gradients of each layer's inputs.
  const double phases = 2.0 + 2.0 * static_cast<double>(tail.layers.size());
  const double bytes = static_cast<double>(traffic.bytes.value);
  const double longest = bytes / static_cast<double>(std::max<int64_t>(1, traffic.messages));
  const double time = phases * link.latency.value +
                      static_cast<double>(traffic.messages) * link.per_message.value +
                      link.transfer(bytes, longest).value;
  const auto count = static_cast<double>(rounds.count);
  return {Bytes{rounds.count * traffic.bytes.value}, Seconds{count * time}};
}

/// Rows of a step to the one that computes all, and their gradients back: its link counts.
Way to_one(const engine::Tail& tail, const Rounds& rounds, int workers,
           const comm::LinkSpeed& link) {
  const auto row = static_cast<double>(4 * tail.layers.front().inputs);
  const double message = static_cast<double>(rounds.rows) * row;
  const double one_way = message * (workers - 1);
  const double time = 2 * (link.latency.value + (workers - 1) * link.per_message.value +
                           link.transfer(one_way, message).value);
  const auto count = static_cast<double>(rounds.count);
  return {Bytes{static_cast<int64_t>(count * one_way)}, Seconds{count * time}};
}

/// Sums of so many floats between copies, which go the direct way, one layer after the other.
Way between_copies(int64_t floats, int copies, const comm::LinkSpeed& link) {
  if (copies < 2) return {};
  constexpr comm::Algorithm kWay = comm::Algorithm::direct;
  const comm::Strips strips = comm::strips_for(kWay, floats, copies);
  return {comm::traffic(kWay, comm::Form::allreduce, 0, strips).bytes,
          comm::predicted_time(kWay, comm::Form::allreduce, copies, floats, link)};
}

/// A worker's strip to the servers, and its new weights back at the same time.
Way to_servers(int64_t floats, const comm::LinkSpeed& link) {
  const double bytes = 4.0 * static_cast<double>(floats);
  return {Bytes{4 * floats}, link.transfer(bytes, bytes)};
}

/// A round brings every weight from memory for the forward pass and the gradient of the inputs,
/// writes its gradient and adds it to the sum. In times of a pass there and back this is what
/// AlexNet's linear layers take on a grain of four beyond their arithmetic.
constexpr double kPasses = 4.5;

/// What `takers` rounds at once, in place of as many one after the other, save of `tail`, the time
/// of one of them; a product is never faster than its arithmetic.
Seconds saved_by_sharing(Seconds tail, const LinearTime& linear, double samples, double takers) {
  const double beyond = std::max(0.0, tail.value - samples * linear.arithmetic.value);
  const double brought = std::min(beyond, kPasses * linear.streaming.value);
  return {brought * (1 - 1 / takers)};
}

/// Their update brings weights and momentum from memory and back, and the gradient, where streaming
/// brings one array there and back; one thread does it, when a batch is over.
constexpr double kUpdatePasses = 2.5;

/// Of the tail's arithmetic, that of its last layers.
double part_of_tail(const engine::Tail& tail, const engine::Tail& last) {
  const auto weights = [](const engine::Tail& t) {
    double sum = 0;
    for (const auto& l : t.layers) sum += static_cast<double>(l.inputs * l.outputs);
    return sum;
  };
  return weights(last) / weights(tail);
}

}  // namespace

double tail_part(const engine::Program& program) {
  const auto& tail = program.tail();
  if (!tail) return 0;
  double linear = 0;
  // Forward, gradient of the weights, gradient of the inputs: a product each.
  for (const auto& l : tail->layers) linear += 6.0 * static_cast<double>(l.inputs * l.outputs);
  return std::min(1.0, linear / program.graph().training_flops().value);
}

Placement place(const StepFacts& facts, const std::string& classifier, int layers, int copies,
                int workers, const comm::LinkSpeed& link) {
  Placement p;
  p.classifier = classifier;
  p.copies = copies;
  double computing = facts.computing.value / workers;
  Way beside;
  Way in_line;
  if (classifier == "data") {
    beside = exchange(facts.weights, workers, link);
    if (facts.groups > 1) beside += to_servers(facts.weights / workers, link);
  } else {
    check(facts.tail.has_value(), "there are linear layers at the end");
    const engine::Tail tail = facts.tail->last(layers);
    p.layers = layers;
    const Rounds rounds = rounds_of(facts, workers);
    const double part = part_of_tail(*facts.tail, tail);
    const auto count = static_cast<double>(rounds.count);
    // Of a worker's round, by all its lanes.
    const Seconds round{facts.tail_part * part * computing / count};
    const auto grain = static_cast<double>(facts.grain);
    const LinearTime linear{{facts.linear.streaming.value * part},
                            {facts.linear.arithmetic.value * part}};
    beside = exchange(facts.weights - tail.floats, workers, link);
    if (facts.groups > 1) beside += to_servers((facts.weights - tail.floats) / workers, link);
    if (classifier == "merged") {
      in_line = to_one(tail, rounds, workers, link);
      // One thread computes for all, and the others wait.
      computing -= count * round.value;
      const Seconds own{round.value * facts.lanes};  // of one worker's rows, by one thread
      const Seconds each = own - saved_by_sharing(own, linear, grain * facts.lanes, workers);
      p.merged = {count * workers * each.value};
      in_line.time += p.merged;
      p.update = {kUpdatePasses * linear.streaming.value};
    } else {
      const int team = workers / copies;
      p.saved = {count * saved_by_sharing(round, linear, grain, team).value};
      computing -= p.saved.value;
      in_line = activations(tail, rounds, team, link);
      const Way copied = between_copies(tail.floats / team, copies, link);
      in_line += copied;
      p.between = copied.time;
      p.update = {kUpdatePasses * linear.streaming.value / team};
      // Slices to the servers and back, which the next step's activations wait for.
      if (facts.groups > 1) beside += to_servers(tail.floats / team, link);
    }
  }
  p.sent = beside.sent + in_line.sent;
  p.sent_in_line = in_line.sent;
  p.beside = beside.time;
  p.in_line = in_line.time;
  p.step = {std::max(computing, beside.time.value) + in_line.time.value + p.update.value};
  p.step = std::max(p.step, Seconds{facts.groups * (p.merged + p.update).value});
  return p;
}

std::vector<Placement> placements(const StepFacts& facts, int workers,
                                  const comm::LinkSpeed& link) {
  std::vector<Placement> all = {place(facts, "data", 0, 1, workers, link)};
  const int most = facts.tail ? static_cast<int>(facts.tail->layers.size()) : 0;
  for (int layers = 1; layers <= most; ++layers) {
    all.push_back(place(facts, "model", layers, 1, workers, link));
    all.push_back(place(facts, "merged", layers, 1, workers, link));
    for (int copies = 2; copies < workers; ++copies) {
      if (workers % copies != 0) continue;
      all.push_back(place(facts, "hybrid", layers, copies, workers, link));
    }
  }
  std::ranges::stable_sort(all, [](const Placement& a, const Placement& b) {
    return std::tuple(a.step, a.layers) < std::tuple(b.step, b.layers);
  });
  return all;
}

std::string describe(const Placement& p) {
  std::string text = p.classifier;
  if (p.classifier == "hybrid") text += fmt::format(" in {} copies", p.copies);
  if (p.layers > 0) text += fmt::format(", the last {}", plural(p.layers, "linear layer"));
  return fmt::format("{}: {} sent, {} a step", text, to_string(p.sent), to_string(p.step));
}

std::vector<GroupForecast> forecast_groups(const StepFacts& facts, int workers, int servers,
                                           const comm::LinkSpeed& link) {
  std::vector<GroupForecast> all;
  const double bytes = 4.0 * static_cast<double>(facts.weights);
  for (int groups = 1; groups <= workers; ++groups) {
    if (workers % groups != 0) continue;
    const int each = workers / groups;
    const Way sums = exchange(facts.weights, each, link);
    GroupForecast f;
    f.groups = groups;
    double busy = sums.time.value;
    double served = 0;
    if (groups > 1) {
      // A worker pushes and pulls its strips, both at the same time.
      busy += link.latency.value + link.transfer(bytes / each, bytes / each).value;
      served = link.transfer(bytes / servers, bytes / each).value;
    }
    f.turn = {std::max(facts.computing.value / each, busy)};
    f.update = {std::max(f.turn.value / groups, served)};
    all.push_back(f);
  }
  return all;
}

int choose_groups(const std::vector<GroupForecast>& forecasts, double momentum) {
  constexpr double kHardly = 1.1;
  const auto allowed = [&](const GroupForecast& f) {
    return f.groups == 1 || optim::implicit_momentum(f.groups) <= momentum;
  };
  Seconds least = forecasts.front().update;
  for (const GroupForecast& f : forecasts) {
    if (allowed(f)) least = std::min(least, f.update);
  }
  for (const GroupForecast& f : forecasts) {
    if (allowed(f) && f.update.value <= kHardly * least.value) return f.groups;
  }
  return 1;
}

}  // namespace convoy::plan
