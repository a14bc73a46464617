#include "convoy/plan/step_model.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "convoy/base/text.hpp"
#include "convoy/plan/event_queue.hpp"
#include "convoy/plan/step_setting.hpp"
#include "convoy/sync/balancer.hpp"
#include "convoy/sync/exchange.hpp"
#include "convoy/sync/group_layout.hpp"

namespace convoy::plan {
namespace {

/// How much longer than planned a group computes, step by step, where some are slow at times; and
/// its shares, which follow that where it can be foreseen.
class Pace {
 public:
  /// `first`: of the group's workers.
  Pace(const StepSetting& setting, const Stragglers& stragglers, int first)
      : s_(setting), stragglers_(stragglers), first_(first), shares_(setting.shares) {
    if (!stragglers.load || !s_.c.balanced || s_.together() == 1) return;
    sync::BalanceOptions options;
    options.predictor = stragglers.predictor;
    options.lanes.assign(shares_.size(), s_.c.lanes);
    balancer_.emplace(shares_, std::vector<sync::ShareBounds>(shares_.size()), options);
  }

  /// Of the slowest worker in this step, in what the slowest was to take.
  double of(int64_t step) {
    if (!stragglers_.slowdown) return 1;
    Seconds longest;
    std::vector<sync::WorkerReport> reports;
    for (size_t i = 0; i < shares_.size(); ++i) {
      const int worker = first_ + static_cast<int>(i);
      const double factor = stragglers_.slowdown(worker, step) / s_.speeds[i];
      const Seconds took{factor * s_.computing(shares_[i]).value};
      longest = std::max(longest, took);
      if (!balancer_) continue;
      sync::WorkerReport report;
      report.grains = shares_[i];
      report.compute = took;
      report.load = stragglers_.load(worker, step + 1);
      reports.push_back(report);
    }
    if (balancer_) {
      balancer_->after_step(shares_, reports);
      shares_ = balancer_->shares();
    }
    return longest.value / (static_cast<double>(s_.rounds) * s_.round(s_.w.sample()).value);
  }

 private:
  const StepSetting& s_;
  const Stragglers& stragglers_;
  int first_;
  std::vector<int64_t> shares_;
  std::optional<sync::Balancer> balancer_;
};

/// A worker's lanes and its link. Where the lanes have all cores, each is slower while the other is
/// busy, because what drives the link needs a core, too. The link does one thing after the other.
class Host {
 public:
  using Then = std::function<void()>;

  Host(EventQueue& queue, double lanes_left, double beside_lanes)
      : queue_(queue), lanes_{lanes_left}, link_{beside_lanes} {}

  void compute(Seconds time, Then then) { start(lanes_, time, std::move(then)); }
  void send(Seconds time, Then then) {
    sends_.push_back({time, std::move(then)});
    next_send();
  }
  /// While it computed or sent so far.
  Seconds computed() const { return lanes_.busy; }
  Seconds sent() const { return link_.busy; }

 private:
  struct Work {
    double slowed;  // its speed while the other is busy
    bool active = false;
    Seconds left = {};
    Seconds busy = {};
    Then then = {};
  };
  struct Send {
    Seconds time;
    Then then;
  };

  void start(Work& work, Seconds time, Then then) {
    settle();
    work.active = true;
    work.left = time;
    work.then = std::move(then);
    foresee();
  }
  void next_send() {
    if (link_.active || sends_.empty()) return;
    Send next = std::move(sends_.front());
    sends_.pop_front();
    start(link_, next.time, std::move(next.then));
  }
  double speed(const Work& work) const { return lanes_.active && link_.active ? work.slowed : 1; }
  /// What was done since the last look.
  void settle() {
    const Seconds passed = queue_.now() - since_;
    since_ = queue_.now();
    const double lanes = speed(lanes_);
    const double link = speed(link_);
    for (const auto& [work, pace] : {std::pair(&lanes_, lanes), std::pair(&link_, link)}) {
      if (!work->active) continue;
      work->left = work->left - Seconds{passed.value * pace};
      work->busy += passed;
    }
  }
  /// What ends first, if nothing changes before.
  void foresee() {
    ++foreseen_;
    for (Work* work : {&lanes_, &link_}) {
      if (!work->active) continue;
      queue_.after({std::max(0.0, work->left.value) / speed(*work)},
                   [this, work, seen = foreseen_] {
                     if (seen == foreseen_) finish(*work);
                   });
    }
  }
  void finish(Work& work) {
    settle();
    work.active = false;
    const Then then = std::move(work.then);
    foresee();
    then();
    next_send();
  }

  EventQueue& queue_;
  Work lanes_;
  Work link_;
  std::deque<Send> sends_;
  Seconds since_;
  uint64_t foreseen_ = 0;
};

/// What all groups share.
struct Shared {
  EventQueue queue;
  ServedInTurn servers;
  ServedInTurn merged;
};

/// A group of workers, step after step.
class Actor {
 public:
  Actor(Shared& shared, const StepSetting& setting, const ForecastOptions& options, int index)
      : shared_(shared),
        queue_(shared.queue),
        s_(setting),
        options_(options),
        index_(index),
        pace_(setting, options.stragglers, index * setting.together()),
        host_(shared.queue, setting.lanes_left, setting.beside_lanes),
        missing_(setting.w.layers.size()) {
    for (size_t i = 0; i < s_.w.layers.size(); ++i) {
      const LayerWork& layer = s_.w.layers[i];
      const Seconds both = s_.round(layer.forward + layer.backward);
      (s_.elsewhere[i] ? tail_round_ : lane_round_) += both;
    }
    tail_round_ = tail_round_ - Seconds{s_.placement.saved.value / static_cast<double>(s_.rounds)};
  }

  /// Samples of a step are prepared beside the steps before it, at the pace of those who do it.
  void begin() {
    if (!s_.crowded()) prepared_ += s_.preparing();
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
    scale_ = pace_.of(step());
    layer_ = 0;
    if (s_.crowded() && s_.w.data.value > 0) {
      compute(s_.preparing(), "samples", [this] { forward(); });
    } else {
      forward();
    }
  }

  int64_t step() const { return static_cast<int64_t>(began_.size()) - 1; }
  const std::vector<Seconds>& began() const { return began_; }
  const std::vector<Seconds>& computed() const { return computed_; }
  Seconds link_busy() const { return host_.sent(); }
  const std::vector<Span>& spans() const { return spans_; }

 private:
  void span(const char* lane, const std::string& what, Seconds begin, Seconds end) {
    // A step in the middle, and what of it goes on in the next.
    const int64_t shown = options_.steps / 2;
    if (!options_.spans || index_ > 0 || step() < shown || step() > shown + 1) return;
    spans_.push_back({lane, what, begin, end});
  }

  void compute(Seconds time, const std::string& what, std::function<void()> then) {
    const Seconds began = queue_.now();
    host_.compute({time.value * scale_}, [this, began, what, then = std::move(then)] {
      computed_.back() += queue_.now() - began;
      span("lanes", what, began, queue_.now());
      then();
    });
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
    compute(s_.round(layer.forward), layer.name, [this] {
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
    const Placement& p = s_.placement;
    const Seconds network{(p.in_line - p.merged - p.between).value / rounds};
    if (s_.c.classifier == "merged") {
      const Seconds half{network.value / 2};
      queue_.after(half, [this, half, rounds] {
        const Seconds arithmetic{s_.placement.merged.value / rounds};
        const Seconds done = shared_.merged.reserve(queue_.now(), arithmetic);
        span("servers", "merged layers", queue_.now(), done);
        // Answered first, then updated.
        if (round_ == s_.rounds) shared_.merged.reserve(queue_.now(), s_.placement.update);
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
    compute(s_.round(s_.w.layers[i].backward), s_.w.layers[i].name, [this, i] {
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
    host_.send(bucket.busy, [this, &bucket, began = queue_.now()] {
      span("link", s_.w.layers[bucket.lowest].name, began, queue_.now());
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
    host_.send(s_.slices.busy, [this] {
      const Seconds there = shared_.servers.reserve(queue_.now(), s_.slices.served);
      span("servers", "split layers", queue_.now(), there);
      queue_.at(there + s_.slices.delay, [this] {
        slices_missing_ = false;
        if (std::exchange(tail_waits_, false)) tail();
      });
    });
  }

  /// Split layers are updated by one thread. So are merged ones, where it takes a core from the
  /// lanes of the worker that has them.
  void end() {
    const Placement& p = s_.placement;
    const bool waits = s_.c.classifier != "merged" ? !s_.served() : s_.crowded();
    const auto renew = [this, waits] {
      if (waits && s_.placement.update.value > 0) {
        compute(s_.placement.update, "update of the split layers", [this] { go_on(); });
      } else {
        go_on();
      }
    };
    if (p.between.value > 0) {
      host_.send(p.between, [this, renew, began = queue_.now()] {
        span("link", "sums between copies", began, queue_.now());
        renew();
      });
    } else {
      renew();
    }
  }

  void go_on() {
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
  const StepSetting& s_;
  const ForecastOptions& options_;
  int index_;
  Pace pace_;
  Host host_;
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

}  // namespace

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
  std::vector<int64_t> sizes = {sync::bucket_for_servers({4 * workload_.weights()}).value};
  if (!c.served() && c.workers > 1) {
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
  std::vector<std::unique_ptr<const StepSetting>> settings;
  std::vector<std::unique_ptr<Actor>> groups;
  for (int g = 0; g < c.groups; ++g) {
    settings.push_back(std::make_unique<const StepSetting>(workload_, cluster_, c, g));
    const StepSetting& own = *settings.back();
    groups.push_back(std::make_unique<Actor>(shared, own, options_, g));
    // One after the other, as they come to be in the long run.
    const Seconds turn{static_cast<double>(own.rounds) * own.round(own.w.sample()).value};
    shared.queue.at({turn.value * g / c.groups}, [actor = groups.back().get()] { actor->begin(); });
  }
  const auto done = [&] {
    return std::ranges::all_of(groups, [&](const auto& g) { return g->step() >= options_.steps; });
  };
  while (!done()) shared.queue.step();

  const StepSetting& s = *settings.front();
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
  const Placement& p = s.placement;
  f.link = {f.link.value / groups_count + (p.in_line - p.merged - p.between).value};
  f.update = {1 / updates};
  f.waiting = f.step - f.computing;
  f.data = s.preparing();
  for (const BucketWork& b : s.buckets) f.server += b.served;
  f.server += s.slices.served;
  if (p.merged.value > 0) f.server = std::max(f.server, p.merged + p.update);
  f.sent = s.sent;
  f.memory = worker_memory(workload_, c);
  f.spans = groups.front()->spans();
  return f;
}

Bytes worker_memory(const Workload& w, const Configuration& c) {
  const double grain =
      w.grain > 0 ? static_cast<double>(c.grain) / static_cast<double>(w.grain) : 1;
  Bytes sum = w.model_memory;
  sum += Bytes{static_cast<int64_t>(c.lanes * grain * static_cast<double>(w.grain_memory.value))};
  if (!c.served()) return sum;
  // Gradients on their way; beside workers also a server's shard.
  const int64_t third = w.model_memory.value / 3;
  const int servers = c.servers > 0 ? c.servers : c.workers;
  return sum + Bytes{third + (c.own_servers ? 0 : 2 * third / servers)};
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
