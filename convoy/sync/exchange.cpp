#include "convoy/sync/exchange.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "convoy/base/error.hpp"

namespace convoy::sync {
namespace {

/// Tags of the communicator across hosts; buckets follow.
constexpr int kResults = 0;
constexpr int kNorms = 1;
constexpr int kSpeeds = 2;
constexpr int kBuckets = 3;

/// Shows a function the values of a rank, in the same order everywhere.
using Shown = std::function<void(std::span<std::byte>)>;
using ShowValues = std::function<void(int rank, const Shown& take)>;

/// Every rank's values become what they are at that rank.
comm::Task swap_all(comm::Communicator& c, int tag, ShowValues show) {
  std::vector<std::vector<std::byte>> messages(static_cast<size_t>(c.size()));
  for (int r = 0; r < c.size(); ++r) {
    std::vector<std::byte>& message = messages[static_cast<size_t>(r)];
    show(r, [&](std::span<std::byte> values) {
      message.insert(message.end(), values.begin(), values.end());
    });
  }
  comm::Requests requests;
  for (int r = 0; r < c.size(); ++r) {
    if (r == c.rank()) continue;
    requests.add(c.receive(r, tag * comm::kTags, messages[static_cast<size_t>(r)]));
    requests.add(c.send(r, tag * comm::kTags, messages[static_cast<size_t>(c.rank())]));
  }
  co_await std::move(requests);
  for (int r = 0; r < c.size(); ++r) {
    if (r == c.rank()) continue;
    const std::byte* from = messages[static_cast<size_t>(r)].data();
    show(r, [&](std::span<std::byte> values) {
      std::copy_n(from, values.size(), values.begin());
      from += values.size();
    });
  }
}

comm::LinkSpeed measured(const Team& team, const ExchangeOptions& options) {
  const bool needed = options.in_flight.value == 0 || options.order != ExchangeOptions::Order::tree;
  if (team.across() == nullptr || team.nodes() == 1 || !needed) return {};
  return comm::measure_links(*team.across(), team.deadline());
}

Bytes window(const Team& team, const ExchangeOptions& options, const comm::LinkSpeed& link) {
  constexpr Bytes kAny{1 << 20};  // there are no other hosts
  if (options.in_flight.value > 0) return options.in_flight;
  return team.across() == nullptr || team.nodes() == 1 ? kAny : comm::Gate::window(link);
}

/// Without sizes that cut the arena into as many buckets as a smaller one.
std::vector<Bytes> sizes_that_differ(const std::vector<Bytes>& sizes,
                                     const std::vector<Chunk>& chunks, const engine::Arena& arena) {
  std::vector<Bytes> different;
  size_t last = 0;
  for (const Bytes size : sizes) {
    const size_t count = cut_into_buckets(chunks, arena, size).size();
    if (!different.empty() && count == last) continue;
    different.push_back(size);
    last = count;
  }
  return different;
}

template <class T>
std::span<T> part(std::span<T> all, const GrainRange& range) {
  return all.subspan(static_cast<size_t>(range.first), static_cast<size_t>(range.size()));
}

}  // namespace

Exchange::Exchange(const Team& team, Updater& updater, NodeState& node, int64_t grains,
                   const ExchangeOptions& options, Trace* trace)
    : team_(team),
      updater_(updater),
      node_(node),
      grains_(grains),
      trace_(trace),
      options_(options),
      link_(measured(team, options)),
      gate_(window(team, options, link_)),
      own_thread_(options.remote != nullptr
                      ? nullptr
                      : std::make_unique<comm::CommThread>(team.deadline(), options.pause)),
      thread_(options.remote != nullptr ? options.remote->thread() : *own_thread_) {
  if (own_thread_) thread_.set_pause(comm::pause_for(link_, options.pause));
  workspace_.resize(static_cast<size_t>(TreeTotal::workspace_size(grains, kChunk)));
  const std::vector<Bytes> sizes =
      sizes_that_differ(options.buckets, updater.chunks(), updater.arena());
  check(options.remote == nullptr || sizes.size() == 1, "servers know one size of buckets");
  if (sizes.size() > 1) tuner_.emplace(sizes);
  cut(tuner_ ? tuner_->size() : sizes.front());
  if (options.remote == nullptr) return;
  std::vector<comm::Strip> own;
  for (const auto& strips : strips_) own.push_back(strips[static_cast<size_t>(team.node())]);
  first_piece_ = options.remote->add_strips(own);
}

Exchange::~Exchange() {
  // Whatever is under way knows this exchange.
  thread_.stop();
}

void Exchange::cut(Bytes bucket) {
  buckets_ = cut_into_buckets(updater_.chunks(), updater_.arena(), bucket);
  done_.clear();
  strips_.clear();
  ways_.clear();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    done_.push_back(std::make_unique<std::atomic<int>>(0));
    if (team_.across() != nullptr) ways_.push_back(way_of(b));
  }
}

/// Into the buckets that the tuner wants. Collective, between two steps.
void Exchange::cut_again() {
  // Strips change hands, and with them the optimizer's state.
  share_states();
  team_.meet("cutting the gradient into other buckets");
  if (team_.local() == 0) {
    // As if there had been these buckets from the beginning.
    for (Counter& c : node_.completed) c = at_.lanes;
    for (Counter& c : node_.released) c = at_.lanes;
    for (Counter& c : node_.ready) c = updates_ * static_cast<uint64_t>(team_.channels());
  }
  cut(tuner_->size());
  team_.meet("cutting the gradient into other buckets");
}

std::unique_ptr<BucketExchange> Exchange::way_of(size_t b) {
  const std::vector<Chunk>& chunks = updater_.chunks();
  const int tag = kBuckets + static_cast<int>(b);
  // This channel's part of the bucket, as a bucket of its own.
  const comm::Strip part =
      cut_into_strips(chunks, buckets_[b], team_.channels())[static_cast<size_t>(team_.local())];
  Bucket own = buckets_[b];
  while (own.first < own.last && chunks[own.first].begin < part.begin) ++own.first;
  while (own.last > own.first && chunks[own.last - 1].begin >= part.end) --own.last;
  own.begin = part.begin;
  own.end = part.end;
  if (options_.order == ExchangeOptions::Order::tree) {
    strips_.push_back(cut_into_strips(chunks, own, team_.nodes()));
    return std::make_unique<TreeExchange>(*team_.across(), grains_, strips_[b], tag);
  }
  const int64_t count = part.size();
  const comm::Way way = options_.order == ExchangeOptions::Order::given
                            ? comm::tuned(options_.way.algorithm, comm::Form::part_reduce,
                                          team_.nodes(), count, link_)
                            : comm::fastest(comm::Form::part_reduce, team_.nodes(), count, link_);
  std::vector<int64_t> edges;
  for (size_t i = own.first; i < own.last; ++i) edges.push_back(chunks[i].begin - part.begin);
  comm::Strips strips = comm::strips_for(way, count, team_.nodes(), edges);
  for (comm::Strip& s : strips) s = {s.begin + part.begin, s.end + part.begin};
  strips_.push_back(strips);
  return std::make_unique<FastExchange>(*team_.across(), grains_, strips, way, tag);
}

void Exchange::await(const std::function<bool()>& holds,
                     const std::function<std::string()>& what) const {
  // The communication thread knows better who is missing, so it is given time to say so first.
  constexpr double kLonger = 1.25;
  sync::await(
      [&] {
        thread_.rethrow();
        return holds();
      },
      Seconds{kLonger * team_.deadline().value}, what);
}

void Exchange::begin(int64_t step, double learning_rate, std::shared_ptr<const Division> division) {
  at_.index = steps_;
  at_.step = step;
  at_.learning_rate = learning_rate;
  at_.lanes += static_cast<uint64_t>(division->lanes.active);
  at_.reports += static_cast<uint64_t>(division->hosts[static_cast<size_t>(team_.node())].size()) +
                 static_cast<uint64_t>(team_.locals());
  at_.division = std::move(division);
  node_.reported[0].fetch_add(1, std::memory_order_release);
  if (team_.across() == nullptr || at_.division->here > 0) return;
  post_results();
  // Without lanes that say what is complete, everything is.
  await_sent();
  for (size_t b = 0; b < buckets_.size(); ++b) post_bucket(b);
}

void Exchange::post_results() {
  if (team_.local() > 0) return;
  thread_.post(fmt::format("exchanging the results of step {}", at_.step),
               [this, at = at_] { return exchange_results(at); });
}

void Exchange::post_bucket(size_t bucket) {
  thread_.post(fmt::format("step {}, bucket {} of {}", at_.step, bucket + 1, buckets_.size()),
               [this, at = at_, bucket] { return exchange_bucket(at, bucket); });
  if (updater_.measures() && bucket + 1 == buckets_.size()) {
    thread_.post(fmt::format("exchanging the norms of step {}", at_.step),
                 [this, at = at_] { return exchange_norms(at); });
  }
}

void Exchange::await_weights(int64_t begin, int64_t end) const {
  const uint64_t target = updates_ * static_cast<uint64_t>(team_.channels());
  auto it = std::upper_bound(buckets_.begin(), buckets_.end(), begin,
                             [](int64_t at, const Bucket& b) { return at < b.end; });
  for (; it != buckets_.end() && it->begin < end; ++it) {
    const auto b = static_cast<size_t>(it - buckets_.begin());
    await(
        [&] { return node_.ready[b].load(std::memory_order_acquire) >= target; },
        [&] { return fmt::format("the new weights of bucket {} of {}", b + 1, buckets_.size()); });
  }
}

void Exchange::await_sent() const {
  const uint64_t target = steps_ * static_cast<uint64_t>(team_.channels());
  await([&] { return node_.finished[0].load(std::memory_order_acquire) >= target; },
        [] { return "the last step's gradients to be sent"; });
}

void Exchange::loss_known(bool last) {
  node_.reported[0].fetch_add(1, std::memory_order_release);
  await_sent();
  if (!last || losses_.fetch_add(1) + 1 < at_.division->here) return;
  losses_ = 0;
  if (team_.across() != nullptr) post_results();
}

Exchange::Passed Exchange::passed(const Passed& from, int64_t begin, int64_t end) {
  Passed now = from;
  for (; now.completed < buckets_.size() && buckets_[now.completed].end <= end; ++now.completed) {
    const size_t b = now.completed;
    node_.completed[b].fetch_add(1, std::memory_order_release);
    if (done_[b]->fetch_add(1) + 1 < at_.division->here) continue;
    done_[b]->store(0);
    if (team_.across() != nullptr) post_bucket(b);
  }
  for (; now.released < buckets_.size() && buckets_[now.released].end <= begin; ++now.released) {
    node_.released[now.released].fetch_add(1, std::memory_order_release);
  }
  return now;
}

void Exchange::await_results() const {
  await([&] { return node_.agreed[0].load(std::memory_order_acquire) > at_.index; },
        [] { return "the results of other hosts"; });
}

double Exchange::await_norm() {
  if (team_.across() != nullptr) {
    await([&] { return contexts_.load(std::memory_order_acquire) > at_.index; },
          [] { return "the gradient's norm"; });
    return updater_.gradient_norm();
  }
  await([&] { return node_.measured[0].load(std::memory_order_acquire) >= channels_target(at_); },
        [] { return "the gradient's norm"; });
  updater_.context(at_.step, at_.learning_rate);
  return updater_.gradient_norm();
}

void Exchange::swap_speeds() {
  node_.spoken[0].fetch_add(1, std::memory_order_release);
  if (team_.across() != nullptr && team_.local() == 0) {
    thread_.post(fmt::format("exchanging the speeds of step {}", at_.step),
                 [this, at = at_] { return exchange_speeds(at); });
  }
  await([&] { return node_.informed[0].load(std::memory_order_acquire) > at_.index; },
        [] { return "other hosts to say how fast they were"; });
}

void Exchange::end(bool updated, Seconds took) {
  ++steps_;
  if (updated) ++updates_;
  if (!tuner_ || tuner_->done() || took.value <= 0) return;
  const Bytes before = tuner_->size();
  tuner_->took(took);
  if (tuner_->size() != before) cut_again();
}

void Exchange::settle() const {
  await_sent();
  if (!buckets_.empty()) await_weights(0, buckets_.back().end);
}

bool Exchange::finite(const Step& at) const {
  const auto results = node_.results[at.index % 2];
  return std::all_of(results.begin(), results.end(),
                     [](const engine::GrainResult& r) { return std::isfinite(r.loss); });
}

comm::Task Exchange::exchange_bucket(Step at, size_t bucket) {
  const uint64_t lanes = at.lanes;
  co_await comm::Until(
      [this, lanes, bucket] {
        return node_.completed[bucket].load(std::memory_order_acquire) >= lanes;
      },
      "waiting for other workers of this host");
  comm::Tasks both;
  both.add(take(at, bucket));
  both.add(give(at, bucket));
  co_await std::move(both);
  if (brings_weights(at)) node_.ready[bucket].fetch_add(1, std::memory_order_release);
  if (++ended_ < buckets_.size()) co_return;
  ended_ = 0;
  if (updater_.measures()) {
    // Where there is no update, nothing else has waited for them, and the next step measures into
    // the same arrays.
    co_await norms_known(at);
  }
  node_.finished[0].fetch_add(1, std::memory_order_release);
}

/// After everything that could be not finite is known: whether there is an update.
bool Exchange::updates(const Step& at) const {
  return finite(at) && (!updater_.measures() || std::isfinite(updater_.gradient_norm()));
}

comm::Task Exchange::verdict(Step at) {
  const uint64_t index = at.index;
  co_await comm::Until(
      [this, index] { return node_.agreed[0].load(std::memory_order_acquire) > index; },
      "waiting for the results of other hosts");
  if (!finite(at) || !updater_.measures()) co_return;
  co_await norms_known(at);
}

comm::Task Exchange::norms_known(Step at) {
  const uint64_t index = at.index;
  co_await comm::Until([this, index] { return contexts_.load(std::memory_order_acquire) > index; },
                       "waiting for the gradient's norm");
}

comm::Task Exchange::weights_free(Step at, size_t bucket) {
  const uint64_t lanes = at.lanes;
  co_await comm::Until(
      [this, lanes, bucket] {
        return node_.released[bucket].load(std::memory_order_acquire) >= lanes;
      },
      "waiting for lanes that still read the weights");
}

comm::Task Exchange::take(Step at, size_t bucket) {
  co_await verdict(at);
  if (!brings_weights(at)) co_return;
  co_await weights_free(at, bucket);
  co_await ways_[bucket]->take_strips(node_.model.weights, gate_);
}

comm::Task Exchange::give(Step at, size_t bucket) {
  BucketExchange& way = *ways_[bucket];
  Seconds begin = now();
  HostSums sums(at.division->hosts, at.division->held);
  co_await way.part_reduce(std::move(sums), gate_, priority(bucket));
  trace(bucket, "reduce", begin);
  if (updater_.measures()) {
    each_sum(bucket, [this](size_t index, const Chunk& /*chunk*/, const float* sum) {
      updater_.measure(index, sum);
    });
    ++summed_;
  }
  co_await verdict(at);
  if (!brings_weights(at)) co_return;
  co_await weights_free(at, bucket);
  begin = now();
  co_await update(at, bucket);
  trace(bucket, "update", begin);
  begin = now();
  co_await way.give_strip(node_.model.weights, gate_, priority(bucket));
  trace(bucket, "broadcast", begin);
}

comm::Task Exchange::update(Step at, size_t bucket) {
  if (!updater_.measures()) context_ = updater_.context(at.step, at.learning_rate);
  if (options_.remote == nullptr) {
    each_sum(bucket, [this](size_t index, const Chunk& /*chunk*/, const float* sum) {
      updater_.update(index, sum, context_);
    });
    co_return;
  }
  const std::span<float> gradient = options_.remote->gradient(first_piece_ + bucket);
  const int64_t first = strips_[bucket][static_cast<size_t>(team_.node())].begin;
  each_sum(bucket, [gradient, first](size_t /*index*/, const Chunk& chunk, const float* sum) {
    std::copy_n(sum, chunk.end - chunk.begin, gradient.data() + (chunk.begin - first));
  });
  co_await options_.remote->swap(first_piece_ + bucket, context_, !updates(at),
                                 node_.model.weights);
}

/// The sums of this worker's strip, after the part-reduce.
template <class Visit>
void Exchange::each_sum(size_t bucket, const Visit& visit) {
  each_chunk(bucket, team_.node(), [&](size_t index, const Chunk& chunk) {
    visit(index, chunk, ways_[bucket]->sum(chunk.begin, chunk.end, workspace_));
  });
}

void Exchange::trace(size_t bucket, const char* what, Seconds begin) const {
  if (trace_ == nullptr || !trace_->on()) return;
  trace_->add(trace_->lanes(), Trace::Kind::exchange, fmt::format("bucket {} {}", bucket + 1, what),
              begin, now());
}

template <class Visit>
void Exchange::each_chunk(size_t bucket, int node, const Visit& visit) const {
  const comm::Strip& strip = strips_[bucket][static_cast<size_t>(node)];
  const std::vector<Chunk>& chunks = updater_.chunks();
  for (size_t i = buckets_[bucket].first; i < buckets_[bucket].last; ++i) {
    if (chunks[i].begin >= strip.begin && chunks[i].begin < strip.end) visit(i, chunks[i]);
  }
}

comm::Task Exchange::exchange_results(Step at) {
  const uint64_t reports = at.reports;
  co_await comm::Until(
      [this, reports] { return node_.reported[0].load(std::memory_order_acquire) >= reports; },
      "waiting for workers of this host");
  const size_t turn = at.index % 2;
  const Division* division = at.division.get();
  co_await swap_all(*team_.across(), kResults, [this, division, turn](int host, const Shown& take) {
    const GrainRange& grains = division->hosts[static_cast<size_t>(host)];
    take(std::as_writable_bytes(part(node_.results[turn], grains)));
    for (const int rank : team_.members(host)) {
      take(std::as_writable_bytes(node_.reports[turn].subspan(static_cast<size_t>(rank), 1)));
    }
  });
  node_.agreed[0].store(at.index + 1, std::memory_order_release);
}

comm::Task Exchange::exchange_norms(Step at) {
  co_await comm::Until([this] { return summed_ == buckets_.size(); }, "waiting for sums");
  summed_ = 0;
  co_await swap_all(*team_.across(), kNorms, [this](int host, const Shown& take) {
    for (size_t b = 0; b < buckets_.size(); ++b) {
      each_chunk(b, host, [&](size_t index, const Chunk&) {
        take(std::as_writable_bytes(node_.model.gradient_norm2.subspan(index, 1)));
        take(std::as_writable_bytes(node_.model.weight_norm2.subspan(index, 1)));
      });
    }
  });
  node_.measured[0].fetch_add(1, std::memory_order_release);
  const uint64_t channels = channels_target(at);
  co_await comm::Until(
      [this, channels] { return node_.measured[0].load(std::memory_order_acquire) >= channels; },
      "waiting for the norms of other workers of this host");
  context_ = updater_.context(at.step, at.learning_rate);
  contexts_.store(at.index + 1, std::memory_order_release);
}

comm::Task Exchange::exchange_speeds(Step at) {
  const uint64_t target = (at.index + 1) * static_cast<uint64_t>(team_.locals());
  co_await comm::Until(
      [this, target] { return node_.spoken[0].load(std::memory_order_acquire) >= target; },
      "waiting for workers of this host");
  const size_t turn = at.index % 2;
  co_await swap_all(*team_.across(), kSpeeds, [this, turn](int host, const Shown& take) {
    for (const int rank : team_.members(host)) {
      take(std::as_writable_bytes(node_.speeds[turn].subspan(static_cast<size_t>(rank), 1)));
    }
  });
  node_.informed[0].store(at.index + 1, std::memory_order_release);
}

comm::Task Exchange::share(size_t bucket, std::span<float> state) {
  comm::Tasks both;
  both.add(ways_[bucket]->take_strips(state, gate_));
  both.add(ways_[bucket]->give_strip(state, gate_, priority(bucket)));
  co_await std::move(both);
}

void Exchange::share_states() {
  settle();
  if (team_.across() == nullptr) return;
  for (const std::span<float> state : node_.model.states) {
    for (size_t b = 0; b < buckets_.size(); ++b) {
      comm::wait(share(b, state), team_.deadline(), "exchanging the optimizer's state");
    }
  }
}

}  // namespace convoy::sync
