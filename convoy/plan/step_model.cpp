#include "convoy/plan/step_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/random.hpp"
#include "convoy/base/text.hpp"
#include "convoy/comm/choose.hpp"
#include "convoy/plan/event_queue.hpp"
#include "convoy/plan/lemmas.hpp"
#include "convoy/plan/placement.hpp"
#include "convoy/sync/exchange.hpp"
#include "convoy/sync/shares.hpp"

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
  return facts;
}

/// What of a gradient travels together: of the layers from `lowest` to `highest`.
struct BucketWork {
  int64_t floats = 0;
  size_t highest = 0;
  size_t lowest = 0;  ///< its backward pass completes the bucket, its forward pass needs it first
  Seconds busy;       ///< on the worker's link
  Seconds delay;      ///< until it has arrived, while others may be on the link
  Seconds served;     ///< at the servers
};

/// Everything of a configuration that does not change from step to step.
struct Setting {
  Setting(const Workload& workload, const Configuration& configuration)
      : w(workload), c(configuration) {}

  const Workload& w;
  Configuration c;
  std::vector<const NodeType*> nodes;
  comm::LinkSpeed link;
  std::vector<int64_t> shares;  ///< grains of the workers of a group
  std::vector<double> speeds;
  int64_t rounds = 1;
  double slowest = 1;  ///< its time for a sample, in those of the reference
  Placement placement;
  std::vector<bool> elsewhere;  ///< by layer: not the lanes' to compute
  std::vector<BucketWork> buckets;
  BucketWork slices;  ///< of split layers, to servers: when a step is over, before the next tail
  Seconds update;
  Bytes sent;

  int together() const { return c.together(); }
  bool served() const { return c.groups > 1 || c.servers > 0; }
  int servers() const { return c.servers > 0 ? c.servers : c.workers; }
};

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

class Exchanges {
 public:
  Exchanges(int ranks, const comm::LinkSpeed& link, const std::string& collective)
      : ranks_(ranks), link_(link), collective_(collective) {
    without_latency_ = link;
    without_latency_.latency = {0};
  }
  /// Link time and all of the time.
  std::pair<Seconds, Seconds> of(int64_t floats) {
    if (ranks_ < 2 || floats == 0) return {};
    const auto found = known_.find(floats);
    if (found != known_.end()) return found->second;
    const comm::Way way = collective_ == "auto"
                              ? comm::fastest(comm::Form::allreduce, ranks_, floats, link_)
                              : comm::tuned(comm::parse_algorithm(collective_),
                                            comm::Form::allreduce, ranks_, floats, link_);
    const Seconds all = comm::predicted_time(way, comm::Form::allreduce, ranks_, floats, link_);
    const Seconds busy =
        comm::predicted_time(way, comm::Form::allreduce, ranks_, floats, without_latency_);
    return known_[floats] = {std::min(busy, all), all};
  }

 private:
  int ranks_;
  comm::LinkSpeed link_;
  std::string collective_;
  comm::LinkSpeed without_latency_;
  std::map<int64_t, std::pair<Seconds, Seconds>> known_;
};

void cut_buckets(Setting& s) {
  if (s.together() == 1 && !s.served()) return;
  const bool by_layer = s.c.bucket.value == 0;
  const int64_t most =
      by_layer ? std::numeric_limits<int64_t>::max() : std::max<int64_t>(1, s.c.bucket.value / 4);
  BucketWork open;
  const auto close = [&] {
    if (open.floats > 0) s.buckets.push_back(open);
    open = {};
  };
  for (size_t i = s.w.layers.size(); i-- > 0;) {
    if (s.elsewhere[i]) continue;
    for (int64_t left = s.w.layers[i].weights; left > 0;) {
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
  Exchanges exchanges(s.together(), s.link, s.c.collective);
  const double weights = std::max<double>(1, static_cast<double>(s.w.weights()));
  for (BucketWork& b : s.buckets) {
    const auto [busy, all] = exchanges.of(b.floats);
    b.busy = busy;
    b.delay = all - busy;
    const double bytes = kFloat * static_cast<double>(b.floats);
    s.sent += Bytes{
        static_cast<int64_t>(s.together() > 1 ? 2 * bytes * (s.together() - 1) / s.together() : 0)};
    if (s.served()) {
      const double own = bytes / s.together();
      b.busy += Seconds{s.link.transfer(own, own).value};
      b.delay += Seconds{2 * s.link.latency.value};
      b.served = {s.link.transfer(bytes / s.servers(), own).value};
      s.sent += Bytes{static_cast<int64_t>(own)};
    } else if (s.together() > 1) {
      // Each worker updates its part, on the thread that drives the link.
      b.busy += Seconds{s.update.value * static_cast<double>(b.floats) / weights / s.together()};
    }
  }
}

/// Of split layers every slice goes to the servers by one worker.
BucketWork slices_of(const Setting& s, int layers) {
  BucketWork b;
  if (!s.served() || (s.c.classifier != "model" && s.c.classifier != "hybrid")) return b;
  b.floats = s.w.tail_weights(layers);
  const double bytes = kFloat * static_cast<double>(b.floats);
  const double own = bytes * s.c.copies / s.together();
  b.busy = s.link.transfer(own, own);
  b.delay = {2 * s.link.latency.value};
  b.served = s.link.transfer(bytes / s.servers(), own);
  return b;
}

/// Of group `group`, whose workers are neighbours.
Setting make_setting(const Workload& w, const Cluster& cluster, const Configuration& c, int group) {
  check(c.workers >= 1 && c.groups >= 1 && c.workers % c.groups == 0, "groups are equal");
  check(c.batch >= 1 && c.grain >= 1 && c.lanes >= 1, "there is something to compute");
  Setting s(w, c);
  const std::vector<const NodeType*> all = cluster.fastest(c.workers);
  check(static_cast<int>(all.size()) == c.workers, "the cluster has so many nodes");
  s.link = cluster.link(all);
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(group) * c.together();
  s.nodes.assign(first, first + c.together());
  s.shares = shares_of(w, c, s.nodes);
  double worst = 0;
  for (size_t i = 0; i < s.shares.size(); ++i) {
    const double speed = w.speed(*s.nodes[i]);
    s.speeds.push_back(speed);
    const double rounds = std::ceil(static_cast<double>(s.shares[i]) / c.lanes);
    if (rounds / speed <= worst) continue;
    worst = rounds / speed;
    s.rounds = static_cast<int64_t>(rounds);
    s.slowest = 1 / speed;
  }
  s.elsewhere = handed_over(w, c);
  s.update = {w.update.value * s.slowest};
  const int layers = c.classifier == "data" ? 0 : (c.layers > 0 ? c.layers : w.tail());
  s.placement =
      place(facts_of(w, c, 1 / s.slowest), c.classifier, layers, c.copies, s.together(), s.link);
  cut_buckets(s);
  s.slices = slices_of(s, layers);
  s.sent += s.placement.sent_in_line;
  s.sent += Bytes{static_cast<int64_t>(kFloat * static_cast<double>(s.slices.floats) * c.copies /
                                       s.together())};
  return s;
}

/// Seconds of the slowest worker's lanes for a round of one layer.
Seconds round_time(const Setting& s, Seconds sample) {
  return {sample.value * s.slowest * static_cast<double>(s.c.grain * s.c.lanes)};
}

/// What all groups share.
struct Shared {
  EventQueue queue;
  ServedInTurn servers;
  ServedInTurn merged;
};

/// A group of workers, step after step.
class Actor {
 public:
  Actor(Shared& shared, const Setting& setting, const ForecastOptions& options, int index)
      : shared_(shared),
        queue_(shared.queue),
        s_(setting),
        options_(options),
        index_(index),
        missing_(setting.w.layers.size()) {
    for (size_t i = 0; i < s_.w.layers.size(); ++i) {
      const LayerWork& layer = s_.w.layers[i];
      const Seconds both = round_time(s_, layer.forward + layer.backward);
      (s_.elsewhere[i] ? tail_round_ : lane_round_) += both;
    }
  }

  /// Samples of a step are prepared beside the steps before it, at the pace of those who do it.
  void begin() {
    const double samples = static_cast<double>(s_.rounds * s_.c.grain * s_.c.lanes);
    prepared_ += Seconds{samples * s_.w.data.value * s_.slowest};
    if (queue_.now() < prepared_) {
      span("data", "samples", queue_.now(), prepared_);
      queue_.at(prepared_, [this] { start(); });
    } else {
      start();
    }
  }

  void start() {
    began_.push_back(queue_.now());
    computed_.push_back({});
    scale_ = slowdown();
    layer_ = 0;
    forward();
  }

  int64_t step() const { return static_cast<int64_t>(began_.size()) - 1; }
  const std::vector<Seconds>& began() const { return began_; }
  const std::vector<Seconds>& computed() const { return computed_; }
  Seconds link_busy() const { return link_.busy(); }
  const std::vector<Span>& spans() const { return spans_; }

 private:
  /// Of the slowest worker in this step, by the options.
  double slowdown() const {
    if (!options_.slowdown) return 1;
    double worst = 0;
    const int first = index_ * s_.together();
    for (int i = 0; i < s_.together(); ++i) {
      const auto place = static_cast<size_t>(i);
      const double rounds = std::ceil(static_cast<double>(s_.shares[place]) / s_.c.lanes);
      worst = std::max(worst, rounds / s_.speeds[place] * options_.slowdown(first + i, step()));
    }
    return worst / (static_cast<double>(s_.rounds) * s_.slowest);
  }

  void span(const char* lane, const std::string& what, Seconds begin, Seconds end) {
    // A step in the middle, and what of it goes on in the next.
    const int64_t shown = options_.steps / 2;
    if (!options_.spans || index_ > 0 || step() < shown || step() > shown + 1) return;
    spans_.push_back({lane, what, begin, end});
  }

  void compute(Seconds time, const std::string& what, std::function<void()> then) {
    const Seconds scaled{time.value * scale_};
    computed_.back() += scaled;
    span("lanes", what, queue_.now(), queue_.now() + scaled);
    queue_.after(scaled, std::move(then));
  }

  /// The first round's forward pass waits for weights, layer by layer.
  void forward() {
    while (layer_ < s_.w.layers.size() && s_.elsewhere[layer_]) ++layer_;
    if (layer_ == s_.w.layers.size()) {
      round_ = 1;
      tail();
      return;
    }
    if (missing_[layer_] > 0) {
      waits_ = true;
      return;
    }
    const LayerWork& layer = s_.w.layers[layer_];
    compute(round_time(s_, layer.forward), layer.name, [this] {
      ++layer_;
      forward();
    });
  }

  /// Linear layers that others compute, or whose activations travel, once in every round.
  void tail() {
    if (slices_missing_) {
      tail_waits_ = true;
      return;
    }
    const auto rounds = static_cast<double>(s_.rounds);
    const Seconds network{(s_.placement.in_line - s_.placement.merged).value / rounds};
    if (s_.c.classifier == "merged") {
      const Seconds half{network.value / 2};
      queue_.after(half, [this, half, rounds] {
        const Seconds arithmetic{s_.placement.merged.value / rounds};
        const Seconds done = shared_.merged.reserve(queue_.now(), arithmetic);
        span("servers", "merged layers", queue_.now(), done);
        queue_.at(done + half, [this] { further(); });
      });
    } else if (s_.c.classifier != "data") {
      span("link", "activations", queue_.now(), queue_.now() + network);
      queue_.after(network,
                   [this] { compute(tail_round_, "split layers", [this] { further(); }); });
    } else {
      further();
    }
  }

  /// The backward pass of this round and the forward pass of the next, until the last one.
  void further() {
    if (round_ == s_.rounds) {
      for (const BucketWork& b : s_.buckets) {
        for (size_t i = b.lowest; i <= b.highest; ++i) missing_[i] += s_.elsewhere[i] ? 0 : 1;
      }
      outstanding_ = s_.buckets.size();
      layer_ = s_.w.layers.size();
      backward();
      return;
    }
    ++round_;
    compute(lane_round_, fmt::format("round {}", round_), [this] { tail(); });
  }

  void backward() {
    while (layer_ > 0 && s_.elsewhere[layer_ - 1]) --layer_;
    if (layer_ == 0) {
      end();
      return;
    }
    const size_t i = --layer_;
    compute(round_time(s_, s_.w.layers[i].backward), s_.w.layers[i].name, [this, i] {
      if (s_.c.overlap) post([i](const BucketWork& b) { return b.lowest == i; });
      backward();
    });
  }

  template <class Which>
  void post(const Which& which) {
    for (size_t b = 0; b < s_.buckets.size(); ++b) {
      if (which(s_.buckets[b])) waiting_.push_back(b);
    }
    send();
  }

  /// The link takes what is needed first.
  void send() {
    if (sending_ || waiting_.empty()) return;
    const auto next =
        std::ranges::min_element(waiting_, {}, [&](size_t b) { return s_.buckets[b].lowest; });
    const BucketWork& bucket = s_.buckets[*next];
    waiting_.erase(next);
    sending_ = true;
    const Seconds sent = link_.reserve(queue_.now(), bucket.busy);
    span("link", s_.w.layers[bucket.lowest].name, queue_.now(), sent);
    queue_.at(sent, [this, &bucket] {
      sending_ = false;
      Seconds there = queue_.now();
      if (s_.served()) {
        there = shared_.servers.reserve(queue_.now(), bucket.served);
        span("servers", s_.w.layers[bucket.lowest].name, queue_.now(), there);
      }
      queue_.at(there + bucket.delay, [this, &bucket] { arrive(bucket); });
      send();
    });
  }

  void arrive(const BucketWork& bucket) {
    for (size_t i = bucket.lowest; i <= bucket.highest; ++i) missing_[i] -= s_.elsewhere[i] ? 0 : 1;
    --outstanding_;
    if (outstanding_ == 0 && held_) {
      held_ = false;
      begin();
    } else if (waits_ && missing_[layer_] == 0) {
      waits_ = false;
      forward();
    }
  }

  /// New weights of split layers, behind everything else on the link.
  void swap_slices() {
    if (s_.slices.floats == 0) return;
    slices_missing_ = true;
    queue_.at(link_.reserve(queue_.now(), s_.slices.busy), [this] {
      const Seconds there = shared_.servers.reserve(queue_.now(), s_.slices.served);
      span("servers", "split layers", queue_.now(), there);
      queue_.at(there + s_.slices.delay, [this] {
        slices_missing_ = false;
        if (std::exchange(tail_waits_, false)) tail();
      });
    });
  }

  void end() {
    swap_slices();
    if (s_.buckets.empty()) {
      compute(s_.update, "update", [this] { begin(); });
      return;
    }
    if (s_.c.overlap) {
      begin();
      return;
    }
    held_ = true;
    post([](const BucketWork&) { return true; });
  }

  Shared& shared_;
  EventQueue& queue_;
  const Setting& s_;
  const ForecastOptions& options_;
  int index_;
  ServedInTurn link_;
  Seconds lane_round_;           // of a round, what lanes compute by themselves
  Seconds tail_round_;           // and of layers that are handed over
  std::vector<int> missing_;     // by layer: buckets with new weights for it
  std::vector<size_t> waiting_;  // buckets, for the link
  bool sending_ = false;
  bool waits_ = false;  // the lanes stand at layer_
  bool slices_missing_ = false;
  bool tail_waits_ = false;  // the lanes stand before the split layers
  bool held_ = false;        // the lanes stand until all is here
  size_t outstanding_ = 0;
  size_t layer_ = 0;
  int64_t round_ = 1;
  double scale_ = 1;
  Seconds prepared_;               // the samples of the step that is next
  std::vector<Seconds> began_;     // by step
  std::vector<Seconds> computed_;  // by step
  std::vector<Span> spans_;
};

Bytes memory_of(const Setting& s) {
  Bytes sum = s.w.model_memory + s.c.lanes * s.w.grain_memory;
  if (s.served())
    sum += Bytes{s.w.model_memory.value / 3 + 2 * s.w.model_memory.value / 3 / s.servers()};
  return sum;
}

}  // namespace

double random_factor(double spread, uint64_t seed, int worker, int64_t step) {
  Stream random(seed, Purpose::synthetic, static_cast<uint64_t>(step),
                static_cast<uint64_t>(worker));
  return std::exp(spread * static_cast<double>(random.normal()) - spread * spread / 2);
}

std::string StepForecast::bottleneck() const {
  const double rest = std::max(0.0, (step - computing).value);
  if (rest < 0.1 * step.value) return "computing";
  if (data.value > 0.95 * step.value) return "data";
  if (server.value > 0.8 * update.value && server.value > 0) return "servers";
  if (link.value > 0.5 * rest) return "link";
  return "latency";
}

std::vector<int64_t> shares_of(const Workload& workload, const Configuration& c,
                               const std::vector<const NodeType*>& nodes) {
  const auto members = static_cast<size_t>(c.together());
  const int64_t grains = (c.batch + c.grain - 1) / c.grain;
  const std::vector<sync::ShareBounds> bounds(members);
  if (!c.balanced) return sync::equal_shares(grains, bounds).grains;
  std::vector<double> speeds;
  for (size_t i = 0; i < members; ++i) speeds.push_back(workload.speed(*nodes[i]));
  return sync::proportional_shares(grains, speeds, bounds).grains;
}

EventModel::EventModel(const Workload& workload, const Cluster& cluster, ForecastOptions options)
    : workload_(workload), cluster_(cluster), options_(std::move(options)) {}

StepForecast EventModel::forecast(const Configuration& c) const {
  if (c.bucket.value >= 0) return with_buckets(c);
  Configuration sized = c;
  // Servers know one size of buckets; else several are tried.
  const bool served = c.groups > 1 || c.servers > 0;
  std::vector<int64_t> sizes = {4 << 20};
  if (!served && c.workers > 1) {
    sizes.clear();
    for (const Bytes size : sync::ExchangeOptions{}.buckets) sizes.push_back(size.value);
  }
  std::optional<StepForecast> best;
  for (const int64_t size : sizes) {
    sized.bucket = {size};
    StepForecast now = with_buckets(sized);
    if (!best || now.step < best->step) best = std::move(now);
  }
  return *best;
}

StepForecast EventModel::with_buckets(const Configuration& c) const {
  Shared shared;
  std::vector<std::unique_ptr<const Setting>> settings;
  std::vector<std::unique_ptr<Actor>> groups;
  for (int g = 0; g < c.groups; ++g) {
    settings.push_back(std::make_unique<const Setting>(make_setting(workload_, cluster_, c, g)));
    const Setting& own = *settings.back();
    groups.push_back(std::make_unique<Actor>(shared, own, options_, g));
    // One after the other, as they come to be in the long run.
    const Seconds turn{own.w.sample().value * own.slowest * static_cast<double>(own.rounds) *
                       static_cast<double>(c.grain * c.lanes)};
    shared.queue.at({turn.value * g / c.groups}, [actor = groups.back().get()] { actor->begin(); });
  }
  const auto done = [&] {
    return std::ranges::all_of(groups, [&](const auto& g) { return g->step() >= options_.steps; });
  };
  while (!done()) shared.queue.step();

  const Setting& s = *settings.front();
  StepForecast f;
  double updates = 0;  // in a second
  const auto first = static_cast<size_t>(options_.steps / 3);
  const auto last = static_cast<size_t>(options_.steps);
  for (const auto& g : groups) {
    const auto counted = static_cast<double>(last - first);
    const double step = (g->began()[last] - g->began()[first]).value / counted;
    f.step += Seconds{step};
    updates += 1 / step;
    for (size_t i = first; i < last; ++i) f.computing += Seconds{g->computed()[i].value / counted};
    f.link += Seconds{g->link_busy().value / static_cast<double>(g->step() + 1)};
  }
  const double groups_count = c.groups;
  f.step = {f.step.value / groups_count};
  f.computing = {f.computing.value / groups_count};
  f.link = {f.link.value / groups_count + (s.placement.in_line - s.placement.merged).value};
  f.update = {1 / updates};
  f.waiting = f.step - f.computing;
  f.data = {static_cast<double>(s.rounds * c.grain * c.lanes) * s.w.data.value * s.slowest};
  for (const BucketWork& b : s.buckets) f.server += b.served;
  f.server += s.slices.served;
  f.server = std::max(f.server, s.placement.merged);
  f.sent = s.sent;
  f.memory = memory_of(s);
  f.spans = groups.front()->spans();
  return f;
}

StepForecast LemmaModel::forecast(const Configuration& given) const {
  Configuration c = given;
  c.bucket = {0};
  const Setting s = make_setting(workload_, cluster_, c, c.groups - 1);  // the slowest
  StepForecast f;
  const double computing = workload_.sample().value * s.slowest * static_cast<double>(s.rounds) *
                           static_cast<double>(c.grain * c.lanes);
  f.computing = {computing};
  double bytes = 0;
  for (size_t i = 0; i < workload_.layers.size(); ++i) {
    const LayerWork& layer = workload_.layers[i];
    if (!s.elsewhere[i]) {
      bytes += s.together() > 1 ? 2 * kFloat * static_cast<double>(layer.weights) : 0;
      continue;
    }
    const LayerSize size{.inputs = layer.inputs, .outputs = layer.outputs};
    bytes += c.classifier == "merged" ? 2 * kFloat * static_cast<double>(layer.inputs * c.batch)
                                      : hybrid_bytes(size, c.batch, s.together(), c.copies, 0);
  }
  f.sent = {static_cast<int64_t>(bytes)};
  f.link = s.link.transfer(bytes, bytes);
  if (!s.served()) {
    f.step = f.computing + f.link + (s.together() == 1 ? s.update : Seconds{0});
    f.update = f.step;
  } else {
    const double model = kFloat * static_cast<double>(workload_.weights());
    GroupTimes times;
    times.computing = {computing * s.together()};
    times.network = s.link.transfer(model / s.servers(), model);
    times.classifier = s.placement.merged;
    f.update = update_time(times, c.workers, c.groups);
    f.step = {f.update.value * c.groups};
  }
  f.waiting = f.step - f.computing;
  f.memory = memory_of(s);
  return f;
}

std::string describe(const Configuration& c) {
  std::string text = plural(c.workers, "worker");
  if (c.groups > 1) text += fmt::format(" in {}", plural(c.groups, "group"));
  if (c.groups > 1 || c.servers > 0) {
    text += c.servers > 0 ? fmt::format(", {}", plural(c.servers, "server")) : "";
  }
  if (c.classifier != "data") {
    text += fmt::format(", classifier {}", c.classifier);
    if (c.classifier == "hybrid") text += fmt::format(" in {} copies", c.copies);
    if (c.layers > 0) text += fmt::format(" ({})", plural(c.layers, "layer"));
  }
  return text + fmt::format(", batch {}", c.batch);
}

}  // namespace convoy::plan
