#include "convoy/plan/step_setting.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "convoy/base/error.hpp"
#include "convoy/comm/choose.hpp"
#include "convoy/sync/shares.hpp"
#include "convoy/sync/tree_exchange.hpp"

namespace convoy::plan {
namespace {

constexpr double kFloat = 4;  // bytes

/// The workload as placements know it.
StepFacts facts_of(const Workload& w, const Configuration& c, double speed) {
  StepFacts facts;
  facts.computing = {w.sample().value * static_cast<double>(c.batch) / speed};
  facts.weights = w.weights();
  facts.batch = c.batch;
  facts.grain = c.grain;
  facts.lanes = c.lanes;
  double tail = 0;
  engine::Tail linear;
  for (const LayerWork& layer : w.layers) {
    if (!layer.is_tail()) continue;
    engine::Tail::Linear l;
    l.inputs = layer.inputs;
    l.outputs = layer.outputs;
    linear.layers.push_back(l);
    tail += (layer.forward + layer.backward).value;
  }
  if (linear.layers.empty()) return facts;
  int64_t end = 0;
  const int count = static_cast<int>(linear.layers.size());
  for (int i = count - 1; i >= 0; --i) {
    end = w.tail_weights(count - i);
    linear.layers[static_cast<size_t>(i)].end = end;
  }
  linear.floats = end;
  facts.tail = linear;
  facts.tail_part = tail / w.sample().value;
  facts.linear = {{w.linear.streaming.value / speed}, {w.linear.arithmetic.value / speed}};
  return facts;
}

/// Layers that are split or merged have gradients that do not travel, or by themselves.
std::vector<bool> handed_over(const Workload& w, const Configuration& c) {
  std::vector<bool> handed(w.layers.size());
  if (c.classifier == "data") return handed;
  int left = c.layers > 0 ? c.layers : w.tail();
  for (size_t i = w.layers.size(); i-- > 0 && left > 0;) {
    if (!w.layers[i].is_tail()) continue;
    handed[i] = true;
    --left;
  }
  return handed;
}

/// Which host each of these workers is on, counted from 0: those of a node come one after the
/// other.
std::vector<int> hosts_of(const std::vector<const NodeType*>& workers) {
  std::vector<int> hosts;
  int host = -1;
  int left = 0;
  const NodeType* last = nullptr;
  for (const NodeType* node : workers) {
    if (left == 0 || node != last) {
      ++host;
      left = node->workers;
      last = node;
    }
    --left;
    hosts.push_back(host);
  }
  return hosts;
}

/// How long sums take, of as many floats as were asked before or of others.
class Exchanges {
 public:
  Exchanges(int hosts, const comm::LinkSpeed& link, std::string collective, int64_t held)
      : hosts_(hosts), link_(link), collective_(std::move(collective)), held_(held) {
    without_latency_ = link;
    without_latency_.latency = {0};
  }
  /// Link time and all of the time.
  std::pair<Seconds, Seconds> of(int64_t floats) {
    if (hosts_ < 2 || floats == 0) return {};
    const auto found = known_.find(floats);
    if (found != known_.end()) return found->second;
    const auto [busy, all] = collective_ == "tree" ? tree(floats) : collective(floats);
    return known_[floats] = {std::min(busy, all), all};
  }

 private:
  std::pair<Seconds, Seconds> tree(int64_t floats) const {
    return {sync::TreeExchange::time(hosts_, held_, floats, without_latency_),
            sync::TreeExchange::time(hosts_, held_, floats, link_)};
  }
  std::pair<Seconds, Seconds> collective(int64_t floats) const {
    constexpr auto kForm = comm::Form::allreduce;
    const comm::Way way = collective_ == "auto" ? comm::fastest(kForm, hosts_, floats, link_)
                                                : comm::tuned(comm::parse_algorithm(collective_),
                                                              kForm, hosts_, floats, link_);
    return {comm::predicted_time(way, kForm, hosts_, floats, without_latency_),
            comm::predicted_time(way, kForm, hosts_, floats, link_)};
  }

  int hosts_;
  comm::LinkSpeed link_;
  std::string collective_;
  int64_t held_;
  comm::LinkSpeed without_latency_;
  std::map<int64_t, std::pair<Seconds, Seconds>> known_;
};

}  // namespace

StepSetting::StepSetting(const Workload& workload, const Cluster& cluster,
                         const Configuration& configuration, int group)
    : w(workload), c(configuration) {
  check(c.workers >= 1 && c.groups >= 1 && c.workers % c.groups == 0, "groups are equal");
  check(c.batch >= 1 && c.grain >= 1 && c.lanes >= 1, "there is something to compute");
  const std::vector<const NodeType*> all = cluster.fastest(c.workers);
  check(static_cast<int>(all.size()) == c.workers, "the cluster has so many nodes");
  link = cluster.link(all);
  const auto first = static_cast<std::ptrdiff_t>(group) * c.together();
  nodes.assign(all.begin() + first, all.begin() + first + c.together());
  const std::vector<int> where = hosts_of(all);
  host_of.assign(where.begin() + first, where.begin() + first + c.together());
  hosts = host_of.back() - host_of.front() + 1;
  shares = shares_of(w, c, nodes);
  double worst = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double speed = w.speed(*nodes[i]);
    speeds.push_back(speed);
    const double own = std::ceil(static_cast<double>(shares[i]) / c.lanes);
    if (own / speed <= worst) continue;
    worst = own / speed;
    rounds = static_cast<int64_t>(own);
    slowest = 1 / speed;
  }
  if (crowded()) {
    for (const NodeType* node : nodes) {
      beside_lanes = std::min(beside_lanes, node->link.beside_lanes);
      lanes_left = std::min(lanes_left, node->link.lanes_left);
    }
  }
  elsewhere = handed_over(w, c);
  update = shared_update();
  const int layers = c.classifier == "data" ? 0 : (c.layers > 0 ? c.layers : w.tail());
  placement = place(facts_of(w, c, 1 / slowest), c.classifier, layers, c.copies, together(), link);
  cut_buckets();
  cost_buckets();
  slices = slices_of(layers);
  sent += placement.sent_in_line;
  sent += Bytes{
      static_cast<int64_t>(kFloat * static_cast<double>(slices.floats) * c.copies / together())};
}

Seconds StepSetting::computing(int64_t grains) const {
  const double own = std::ceil(static_cast<double>(grains) / c.lanes);
  return {w.sample().value * own * static_cast<double>(c.grain * c.lanes)};
}

Seconds StepSetting::round(Seconds sample) const {
  return {sample.value * slowest * static_cast<double>(c.grain * c.lanes)};
}

bool StepSetting::crowded() const {
  return std::ranges::any_of(
      nodes, [&](const NodeType* node) { return node->cores <= node->workers * c.lanes; });
}

Seconds StepSetting::preparing() const {
  const auto samples = static_cast<double>(rounds * c.grain * c.lanes);
  return {samples * w.data.value * slowest};
}

/// Workers of a host share it. What it moves of a float: the gradient of every lane, weight and
/// momentum both ways, and the gradient that is cleared.
Seconds StepSetting::shared_update() const {
  constexpr double kOthers = 5;
  const double lanes = c.lanes;
  const double moved = (together() * lanes + kOthers) / (lanes + kOthers);
  double own = 0;
  for (size_t i = 0; i < w.layers.size(); ++i) {
    if (!elsewhere[i]) own += static_cast<double>(w.layers[i].weights);
  }
  own /= std::max<double>(1, static_cast<double>(w.weights()));
  return {w.update.value * own * slowest * moved / together()};
}

/// Subtrees of the host that has the most: grains that are no whole subtree are several.
int64_t StepSetting::held() const {
  size_t most = 1;
  int64_t begin = 0;
  int64_t end = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    end += shares[i];
    if (i + 1 < shares.size() && host_of[i + 1] == host_of[i]) continue;
    most = std::max(most, sync::subtrees({begin, end}).size());
    begin = end;
  }
  return static_cast<int64_t>(most);
}

void StepSetting::cut_buckets() {
  if (hosts == 1 && !served()) return;
  const bool by_layer = c.bucket.value == 0;
  const int64_t most =
      by_layer ? std::numeric_limits<int64_t>::max() : std::max<int64_t>(1, c.bucket.value / 4);
  BucketWork open;
  const auto close = [&] {
    if (open.floats > 0) buckets.push_back(open);
    open = {};
  };
  for (size_t i = w.layers.size(); i-- > 0;) {
    if (elsewhere[i]) continue;
    for (int64_t left = w.layers[i].weights; left > 0;) {
      const int64_t taken = std::min(left, most - open.floats);
      if (open.floats == 0) open.highest = i;
      open.lowest = i;
      open.floats += taken;
      left -= taken;
      if (open.floats == most) close();
    }
    if (by_layer) close();
  }
  close();
}

void StepSetting::cost_buckets() {
  const bool tree = c.collective == "tree";
  const int64_t parts = tree ? held() : 1;
  Exchanges exchanges(hosts, link, c.collective, parts);
  const double weights = std::max<double>(1, static_cast<double>(w.weights()));
  for (BucketWork& b : buckets) {
    const auto [busy, all] = exchanges.of(b.floats);
    b.busy = busy;
    b.delay = all - busy;
    const double bytes = kFloat * static_cast<double>(b.floats);
    const double by_host = static_cast<double>(parts + 1) * bytes * (hosts - 1) / hosts;
    sent += Bytes{static_cast<int64_t>(by_host / locals())};
    if (served()) {
      const double own = bytes / together();
      b.busy += link.transfer(own * locals(), own);
      b.delay += Seconds{2 * link.latency.value};
      b.served = link.transfer(bytes / servers(), own);
      sent += Bytes{static_cast<int64_t>(own)};
    } else {
      // Each worker updates its part, on the thread that drives the link.
      b.busy +=
          Seconds{w.update.value * slowest * static_cast<double>(b.floats) / weights / together()};
    }
  }
}

/// Of split layers every slice goes to the servers by one worker.
BucketWork StepSetting::slices_of(int layers) const {
  BucketWork b;
  if (!served() || (c.classifier != "model" && c.classifier != "hybrid")) return b;
  b.floats = w.tail_weights(layers);
  const double bytes = kFloat * static_cast<double>(b.floats);
  const double own = bytes * c.copies / together();
  b.busy = link.transfer(own * locals(), own);
  b.delay = {2 * link.latency.value};
  b.served = link.transfer(bytes / servers(), own);
  return b;
}

}  // namespace convoy::plan
