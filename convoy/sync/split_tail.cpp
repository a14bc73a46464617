#include "convoy/sync/split_tail.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "convoy/base/error.hpp"
#include "convoy/base/random.hpp"

namespace convoy::sync {
namespace {

constexpr int kRowsTag = 1;
constexpr int kLabelsTag = 2;
constexpr int kColumnsTag = 3;  // and so many more as there are layers
constexpr int kGradientTag = 100;
constexpr int kInputTag = 200;
constexpr int kCopiesTag = 1;  // of collectives, and so many more
constexpr int kShareTag = 400;
constexpr int kRenewTag = 10000;  // behind those

std::span<float> first(std::vector<float>& values, int64_t count) {
  if (static_cast<int64_t>(values.size()) < count) values.resize(static_cast<size_t>(count));
  return std::span(values).first(static_cast<size_t>(count));
}

/// Columns [slice) of rows of `length` floats, packed; and back.
void pack(const float* rows, int64_t count, int64_t length, const OutputSlice& slice, float* to) {
  for (int64_t r = 0; r < count; ++r) {
    std::copy_n(rows + r * length + slice.first, slice.size(), to + r * slice.size());
  }
}
void unpack(const float* packed, int64_t count, int64_t length, const OutputSlice& slice,
            float* rows) {
  for (int64_t r = 0; r < count; ++r) {
    std::copy_n(packed + r * slice.size(), slice.size(), rows + r * length + slice.first);
  }
}

void add(std::span<const float> values, std::span<float> to) {
  for (size_t i = 0; i < values.size(); ++i) to[i] += values[i];
}

/// The ranks that have the slices of a copy: this one's.
std::vector<int> team_of(const comm::Communicator& workers, int copies) {
  check(copies >= 1 && workers.size() % copies == 0, "copies are of equal numbers of workers");
  const int each = workers.size() / copies;
  std::vector<int> ranks(static_cast<size_t>(each));
  std::iota(ranks.begin(), ranks.end(), workers.rank() / each * each);
  return ranks;
}

}  // namespace

OutputSlice slice_of(int64_t outputs, int index, int count) {
  const int64_t blocks = outputs / engine::kBlock;
  return {blocks * index / count * engine::kBlock, blocks * (index + 1) / count * engine::kBlock};
}

/// A layer, as this worker has it.
struct SplitTail::Layer {
  engine::Tail::Linear of;
  std::vector<OutputSlice> slices;  // by member of the team
  OutputSlice own;
  std::vector<float> outputs;        // of all rows, all of them, after dropout
  std::vector<float> own_outputs;    // packed
  std::vector<float> own_gradient;   // of them
  std::vector<float> partial;        // of the inputs' gradient: this slice's part
  std::vector<float> weights, bias;  // gradients of the slice, summed over rounds
  std::vector<float> round;          // that of a round
};

SplitTail::SplitTail(std::vector<int> team, int place, const engine::Program& program,
                     const optim::Optimizer& optimizer, const SplitTailOptions& options,
                     std::span<float> weights, std::vector<std::span<float>> states)
    : TailPart(std::move(team), place),
      program_(program),
      optimizer_(optimizer),
      options_(options),
      tail_(program.tail()->last(options.layers)),
      kernels_(engine::select_kernels()),
      weights_(weights),
      states_(std::move(states)) {
  make_layers();
}

SplitTail::SplitTail(comm::Communicator& workers, const engine::Program& program,
                     const optim::Optimizer& optimizer, const SplitTailOptions& options,
                     std::span<float> weights, std::vector<std::span<float>> states)
    : SplitTail(team_of(workers, options.copies),
                workers.rank() % (workers.size() / options.copies), program, optimizer, options,
                weights, std::move(states)) {
  const int each = workers.size() / options.copies;
  const int copy = workers.rank() / each;
  team_ = workers.split(copy);
  auto same = workers.split(workers.rank() % each);
  if (options.copies > 1) copies_ = std::move(same);
  for (int c = 0; copies_ && c < copies_->rank(); ++c) {
    const auto& hosts = copies_->hosts();
    if (hosts[static_cast<size_t>(c)] == hosts[static_cast<size_t>(copies_->rank())]) {
      updates_ = false;
    }
  }
  for (int i = 0; i < each; ++i) {
    const auto rank = workers.rank() / each * each + i;
    const auto found =
        std::ranges::find(workers.hosts(), workers.hosts()[static_cast<size_t>(rank)]);
    takes_.push_back(found - workers.hosts().begin() == rank);
  }
  if (options.remote != nullptr && (!copies_ || copies_->rank() == 0)) {
    first_piece_ = options.remote->add_strips(own_strips());
  }
}

SplitTail::SplitTail(const engine::Program& program, const optim::Optimizer& optimizer,
                     const SplitTailOptions& options, std::span<float> weights,
                     std::vector<std::span<float>> states)
    : SplitTail({0}, 0, program, optimizer, options, weights, std::move(states)) {}

void SplitTail::make_layers() {
  const int each = members();
  for (const engine::Tail::Linear& l : tail_.layers) {
    auto layer = std::make_unique<Layer>();
    layer->of = l;
    for (int i = 0; i < each; ++i) layer->slices.push_back(slice_of(l.outputs, i, each));
    layer->own = layer->slices[static_cast<size_t>(place())];
    layer->weights.resize(static_cast<size_t>(layer->own.size() * l.inputs));
    layer->round.resize(layer->weights.size());
    if (l.bias >= 0) layer->bias.resize(static_cast<size_t>(layer->own.size()));
    layers_.push_back(std::move(layer));
  }
  parcels_.resize(static_cast<size_t>(each));
  arrived_.resize(static_cast<size_t>(each));
}

/// What is under way of a swap knows this.
SplitTail::~SplitTail() {
  if (options_.remote != nullptr) options_.remote->thread().stop();
}

void SplitTail::wait(comm::Task task, const char* what) {
  comm::wait(std::move(task), options_.deadline, what);
}

void SplitTail::begin_step() {
  for (const auto& layer : layers_) {
    std::ranges::fill(layer->weights, 0.0F);
    std::ranges::fill(layer->bias, 0.0F);
  }
}

void SplitTail::run_round(const std::vector<Place>& places) {
  settle();
  const int64_t grain = program_.grain();
  const int64_t inputs = tail_.layers.front().inputs;
  const auto rows = static_cast<int64_t>(places.size()) * grain;
  std::vector<int64_t> counts(static_cast<size_t>(members()));
  samples_.clear();
  for (const Place& p : places) {
    counts[static_cast<size_t>(p.worker)] += grain;
    samples_.push_back(p.grain * grain);
  }
  const std::span<float> all = first(rows_, rows * inputs);
  labels_.resize(static_cast<size_t>(rows));
  results_.assign(places.size(), {});
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].worker != place()) continue;
    const Brought& w = brought(places[i].grain);
    const auto at = static_cast<int64_t>(i) * grain;
    std::copy_n(w.rows, grain * inputs, all.data() + at * inputs);
    std::copy_n(w.labels, grain, labels_.data() + at);
  }
  compute_round(counts);

  // Rows of this worker are now first in gradient_.
  int64_t at = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].worker != place()) continue;
    const Brought& w = brought(places[i].grain);
    *w.result = results_[i];
    if (w.gradient != nullptr) {
      std::copy_n(gradient_.data() + at * inputs, grain * inputs, w.gradient);
    }
    at += grain;
  }
}

/// From the own rows and labels, in their places, to results and the own rows' gradient.
void SplitTail::compute_round(const std::vector<int64_t>& counts) {
  const int64_t grain = program_.grain();
  const int64_t inputs = tail_.layers.front().inputs;
  const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  wait(gather_rows(counts, inputs, first(rows_, rows * inputs)),
       "gathering the classifier's inputs");
  wait(gather_labels(counts), "gathering labels");
  forward(rows);

  Layer& last = *layers_.back();
  std::vector<float>& d = last.partial;  // of the scores, until it is packed
  const std::span<float> scores = first(d, rows * last.of.outputs);
  for (size_t i = 0; i < results_.size(); ++i) {
    const auto at = static_cast<int64_t>(i) * grain;
    kernels_.softmax_cross_entropy(
        grain, tail_.classes, tail_.smoothing, 1.0F / static_cast<float>(options_.batch),
        last.outputs.data() + at * last.of.outputs, labels_.data() + at,
        scores.data() + at * last.of.outputs, &results_[i].loss, &results_[i].correct);
  }
  pack(scores.data(), rows, last.of.outputs, last.own,
       first(last.own_gradient, rows * last.own.size()).data());
  backward(rows);
  wait(reduce_rows(counts, inputs), "summing the classifier's input gradients");
}

void SplitTail::compute(const std::vector<Rows>& parts) {
  check(members() == 1, "rows of others are for a tail that is not split");
  const int64_t inputs = tail_.layers.front().inputs;
  int64_t rows = 0;
  for (const Rows& p : parts) rows += static_cast<int64_t>(p.labels.size());
  const std::span<float> all = first(rows_, rows * inputs);
  labels_.clear();
  samples_.clear();
  size_t at = 0;
  for (const Rows& p : parts) {
    std::ranges::copy(p.rows, all.begin() + static_cast<std::ptrdiff_t>(at));
    at += p.rows.size();
    labels_.insert(labels_.end(), p.labels.begin(), p.labels.end());
    samples_.insert(samples_.end(), p.samples.begin(), p.samples.end());
  }
  results_.assign(samples_.size(), {});
  compute_round({rows});
  auto gradient = gradient_.begin();
  auto result = results_.begin();
  for (const Rows& p : parts) {
    std::copy_n(gradient, p.rows.size(), p.rows.begin());
    std::copy_n(result, p.results.size(), p.results.begin());
    gradient += static_cast<std::ptrdiff_t>(p.rows.size());
    result += static_cast<std::ptrdiff_t>(p.results.size());
  }
}

void SplitTail::forward(int64_t rows) {
  const float* x = rows_.data();
  for (size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = *layers_[l];
    const engine::Tail::Linear& of = layer.of;
    const int64_t outputs = layer.own.size();
    const std::span<float> own = first(layer.own_outputs, rows * outputs);
    const float* w = weights_.data() + of.weight + layer.own.first * of.inputs;
    const float* bias = of.bias >= 0 ? weights_.data() + of.bias + layer.own.first : nullptr;
    in_parallel(outputs / engine::kBlock, [&](int64_t b0, int64_t b1) {
      kernels_.linear_forward(rows, of.inputs, outputs, b0 * engine::kBlock, b1 * engine::kBlock, x,
                              w, bias, of.relu, own.data());
    });
    first(layer.outputs, rows * of.outputs);
    wait(gather_columns(l, rows), "gathering the classifier's outputs");
    drop_out(l, rows);
    x = layer.outputs.data();
  }
}

/// Everybody on all rows, in place: what is left out depends on the sample and the output only.
void SplitTail::drop_out(size_t l, int64_t rows) {
  Layer& layer = *layers_[l];
  if (layer.of.dropout == 0) return;
  const uint64_t key = stream_key(options_.seed, Purpose::dropout, static_cast<uint64_t>(step()),
                                  static_cast<uint64_t>(layer.of.dropout_layer));
  const int64_t grain = program_.grain();
  const int64_t length = layer.of.outputs;
  in_parallel(rows / grain, [&](int64_t b0, int64_t b1) {
    for (int64_t b = b0; b < b1; ++b) {
      float* at = layer.outputs.data() + b * grain * length;
      kernels_.dropout(grain, length, samples_[static_cast<size_t>(b)], key, layer.of.dropout, at,
                       at);
    }
  });
}

void SplitTail::backward(int64_t rows) {
  for (size_t l = layers_.size(); l-- > 0;) {
    Layer& layer = *layers_[l];
    const engine::Tail::Linear& of = layer.of;
    const int64_t outputs = layer.own.size();
    const std::span<float> dy = first(layer.own_gradient, rows * outputs);
    const float* x = l == 0 ? rows_.data() : layers_[l - 1]->outputs.data();
    in_parallel(outputs / engine::kBlock, [&](int64_t b0, int64_t b1) {
      const int64_t f0 = b0 * engine::kBlock;
      const int64_t f1 = b1 * engine::kBlock;
      kernels_.linear_backward_weights(rows, of.inputs, outputs, f0, f1, x, dy.data(),
                                       layer.round.data());
      add(std::span<const float>(layer.round)
              .subspan(static_cast<size_t>(f0 * of.inputs),
                       static_cast<size_t>((f1 - f0) * of.inputs)),
          std::span(layer.weights).subspan(static_cast<size_t>(f0 * of.inputs)));
      if (of.bias < 0) return;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t f = f0; f < f1; ++f) {
          layer.bias[static_cast<size_t>(f)] += dy[static_cast<size_t>(r * outputs + f)];
        }
      }
    });
    const std::span<float> partial = first(layer.partial, rows * of.inputs);
    const float* w = weights_.data() + of.weight + layer.own.first * of.inputs;
    if (outputs == 0) {
      std::ranges::fill(partial, 0.0F);
    } else {
      in_parallel(of.inputs / engine::kBlock, [&](int64_t b0, int64_t b1) {
        kernels_.linear_backward_data(rows, of.inputs, outputs, b0 * engine::kBlock,
                                      b1 * engine::kBlock, dy.data(), w, partial.data());
      });
    }
    if (l > 0) wait(reduce_columns(l, rows), "summing the classifier's gradients");
  }
}

comm::Task SplitTail::gather_rows(const std::vector<int64_t>& rows, int64_t length,
                                  std::span<float> all) {
  comm::Requests requests;
  int64_t begin = 0;
  int64_t own = 0;
  for (int m = 0; m < members(); ++m) {
    const int64_t count = rows[static_cast<size_t>(m)];
    if (m == place()) {
      own = begin;
    } else if (count > 0) {
      requests.add(
          team_->receive(m, kRowsTag,
                         std::as_writable_bytes(all.subspan(static_cast<size_t>(begin * length),
                                                            static_cast<size_t>(count * length)))));
    }
    begin += count;
  }
  const int64_t count = rows[static_cast<size_t>(place())];
  const std::span<const float> mine =
      all.subspan(static_cast<size_t>(own * length), static_cast<size_t>(count * length));
  for (int step = 1; step < members() && count > 0; ++step) {
    requests.add(team_->send((place() + step) % members(), kRowsTag, std::as_bytes(mine)));
  }
  co_await std::move(requests);
}

comm::Task SplitTail::gather_labels(const std::vector<int64_t>& rows) {
  comm::Requests requests;
  int64_t begin = 0;
  std::span<const int32_t> mine;
  for (int m = 0; m < members(); ++m) {
    const std::span<int32_t> theirs = std::span(labels_).subspan(
        static_cast<size_t>(begin), static_cast<size_t>(rows[static_cast<size_t>(m)]));
    if (m == place()) {
      mine = theirs;
    } else if (!theirs.empty()) {
      requests.add(team_->receive(m, kLabelsTag, std::as_writable_bytes(theirs)));
    }
    begin += rows[static_cast<size_t>(m)];
  }
  for (int step = 1; step < members() && !mine.empty(); ++step) {
    requests.add(team_->send((place() + step) % members(), kLabelsTag, std::as_bytes(mine)));
  }
  co_await std::move(requests);
}

comm::Task SplitTail::gather_columns(size_t l, int64_t rows) {
  Layer& layer = *layers_[l];
  const int tag = kColumnsTag + static_cast<int>(l);
  comm::Requests requests;
  for (int m = 0; m < members(); ++m) {
    const OutputSlice& slice = layer.slices[static_cast<size_t>(m)];
    if (m == place() || slice.size() == 0) continue;
    requests.add(team_->receive(
        m, tag,
        std::as_writable_bytes(first(arrived_[static_cast<size_t>(m)], rows * slice.size()))));
  }
  const std::span<float> own = first(layer.own_outputs, rows * layer.own.size());
  for (int step = 1; step < members() && !own.empty(); ++step) {
    requests.add(team_->send((place() + step) % members(), tag, std::as_bytes(own)));
  }
  co_await std::move(requests);
  for (int m = 0; m < members(); ++m) {
    const OutputSlice& slice = layer.slices[static_cast<size_t>(m)];
    const std::vector<float>& from =
        m == place() ? layer.own_outputs : arrived_[static_cast<size_t>(m)];
    unpack(from.data(), rows, layer.of.outputs, slice, layer.outputs.data());
  }
}

/// Of layer l's inputs, which are the outputs of the one before: each worker's own, added up in the
/// order of the workers, and back through dropout and ReLU.
comm::Task SplitTail::reduce_columns(size_t l, int64_t rows) {
  const Layer& layer = *layers_[l];
  Layer& before = *layers_[l - 1];
  const int tag = kGradientTag + static_cast<int>(l);
  const int64_t own = rows * before.own.size();
  comm::Requests requests;
  for (int m = 0; m < members(); ++m) {
    if (m == place() || own == 0) continue;
    requests.add(team_->receive(
        m, tag, std::as_writable_bytes(first(arrived_[static_cast<size_t>(m)], own))));
  }
  for (int step = 0; step < members(); ++step) {
    const int to = (place() + step) % members();
    const OutputSlice& slice = before.slices[static_cast<size_t>(to)];
    std::vector<float>& parcel =
        to == place() ? arrived_[static_cast<size_t>(to)] : parcels_[static_cast<size_t>(to)];
    const std::span<float> packed = first(parcel, rows * slice.size());
    pack(layer.partial.data(), rows, layer.of.inputs, slice, packed.data());
    if (to == place() || packed.empty()) continue;
    requests.add(team_->send(to, tag, std::as_bytes(packed)));
  }
  co_await std::move(requests);
  const std::span<float> sum = first(before.own_gradient, own);
  for (int m = 0; m < members() && own > 0; ++m) {
    const std::span<const float> part = first(arrived_[static_cast<size_t>(m)], own);
    if (m == 0) {
      std::ranges::copy(part, sum.begin());
    } else {
      add(part, sum);
    }
  }
  // Behind a ReLU an output is 0 where it was left out or not positive: no gradient either way.
  const float scale = before.of.dropout > 0 ? 1 / (1 - before.of.dropout) : 1;
  for (int64_t r = 0; r < rows; ++r) {
    const float* z = before.outputs.data() + r * before.of.outputs + before.own.first;
    float* d = sum.data() + r * before.own.size();
    for (int64_t i = 0; i < before.own.size(); ++i) d[i] = z[i] > 0 ? d[i] * scale : 0;
  }
}

/// Of the tail's input: every worker gets its own rows, added up in the order of the workers.
comm::Task SplitTail::reduce_rows(const std::vector<int64_t>& rows, int64_t length) {
  const std::vector<float>& partial = layers_.front()->partial;
  const int64_t own = rows[static_cast<size_t>(place())] * length;
  comm::Requests requests;
  int64_t begin = 0;
  int64_t mine = 0;
  for (int m = 0; m < members(); ++m) {
    const int64_t count = rows[static_cast<size_t>(m)] * length;
    if (m == place()) {
      mine = begin;
    } else {
      if (count > 0) {
        requests.add(team_->send(m, kInputTag,
                                 std::as_bytes(std::span(partial).subspan(
                                     static_cast<size_t>(begin), static_cast<size_t>(count)))));
      }
      if (own > 0) {
        requests.add(team_->receive(
            m, kInputTag, std::as_writable_bytes(first(arrived_[static_cast<size_t>(m)], own))));
      }
    }
    begin += count;
  }
  co_await std::move(requests);
  const std::span<float> sum = first(gradient_, own);
  for (int m = 0; m < members(); ++m) {
    const std::span<const float> part =
        m == place() ? std::span<const float>(partial).subspan(static_cast<size_t>(mine),
                                                               static_cast<size_t>(own))
                     : std::span<const float>(arrived_[static_cast<size_t>(m)])
                           .first(static_cast<size_t>(own));
    if (m == 0) {
      std::ranges::copy(part, sum.begin());
    } else {
      add(part, sum);
    }
  }
}

/// Arena floats of the slices: weights and bias of each layer.
std::vector<comm::Strip> SplitTail::own_strips() const {
  std::vector<comm::Strip> strips;
  for (const auto& layer : layers_) {
    const engine::Tail::Linear& of = layer->of;
    strips.push_back(
        {of.weight + layer->own.first * of.inputs, of.weight + layer->own.last * of.inputs});
    if (of.bias < 0) continue;
    strips.push_back({of.bias + layer->own.first, of.bias + layer->own.last});
  }
  return strips;
}

/// All copies have the sums of their gradients: the first hands them over.
void SplitTail::push(const optim::StepContext& context) {
  swapping_ = true;
  if (copies_ && copies_->rank() > 0) return;
  swapped_ = false;
  RemoteModel& remote = *options_.remote;
  size_t piece = first_piece_;
  for (const auto& layer : layers_) {
    std::ranges::copy(layer->weights, remote.gradient(piece++).begin());
    if (layer->of.bias >= 0) std::ranges::copy(layer->bias, remote.gradient(piece++).begin());
  }
  remote.thread().post("swapping the classifier", [this, context] { return swap_all(context); });
}

comm::Task SplitTail::swap_all(optim::StepContext context) {
  comm::Tasks all;
  const size_t pieces = own_strips().size();
  for (size_t i = 0; i < pieces; ++i) {
    all.add(options_.remote->swap(first_piece_ + i, context, false, weights_));
  }
  co_await std::move(all);
  swapped_.store(true, std::memory_order_release);
}

void SplitTail::settle() {
  if (!std::exchange(swapping_, false)) return;
  if (!copies_ || copies_->rank() == 0) {
    options_.remote->await([this] { return swapped_.load(std::memory_order_acquire); });
  }
  if (copies_) wait(renew_copies(), "renewing the classifier's copies");
}

/// The first copy has new weights. Others on its host see them, and only need to know.
comm::Task SplitTail::renew_copies() {
  const auto& hosts = copies_->hosts();
  const auto sees = [&](int copy) { return hosts[static_cast<size_t>(copy)] == hosts.front(); };
  const std::vector<comm::Strip> strips = own_strips();
  const std::byte news{1};
  std::byte heard{};
  comm::Requests requests;
  if (copies_->rank() == 0) {
    for (int c = 1; c < copies_->size(); ++c) {
      if (sees(c)) {
        requests.add(copies_->send(c, kRenewTag, {&news, 1}));
        continue;
      }
      for (const comm::Strip& s : strips) {
        if (s.size() == 0) continue;
        requests.add(copies_->send(c, kRenewTag, std::as_bytes(comm::at(weights_, s))));
      }
    }
  } else if (sees(copies_->rank())) {
    requests.add(copies_->receive(0, kRenewTag, {&heard, 1}));
  } else {
    for (const comm::Strip& s : strips) {
      if (s.size() == 0) continue;
      requests.add(copies_->receive(0, kRenewTag, std::as_writable_bytes(comm::at(weights_, s))));
    }
  }
  co_await std::move(requests);
}

void SplitTail::update(const optim::StepContext& context) {
  settle();
  std::vector<float*> states;
  for (const std::span<float> s : states_) states.push_back(s.data());
  const auto& tensors = program_.arena().tensors();
  for (size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = *layers_[l];
    if (copies_) {
      const int tag = kCopiesTag + 2 * static_cast<int>(l);
      const char* what = "summing gradients of the classifier's copies";
      wait(comm::direct_allreduce(*copies_, layer.weights, tag), what);
      wait(comm::direct_allreduce(*copies_, layer.bias, tag + 1), what);
    }
    if (!updates_ || options_.remote != nullptr) continue;
    const auto apply = [&](int64_t offset, int64_t begin, std::span<const float> gradient) {
      const auto tensor = std::ranges::find_if(
          tensors, [&](const engine::Tensor& t) { return t.offset == offset; });
      const bool weight = tensor->role == model::Role::weight;
      const optim::Segment segment{tensor->offset, tensor->stored, options_.decay_all || weight,
                                   weight};
      optimizer_.update(context, segment, tensor - tensors.begin(), begin,
                        begin + static_cast<int64_t>(gradient.size()), weights_.data(),
                        gradient.data(), states);
    };
    apply(layer.of.weight, layer.of.weight + layer.own.first * layer.of.inputs, layer.weights);
    if (layer.of.bias >= 0) apply(layer.of.bias, layer.of.bias + layer.own.first, layer.bias);
  }
  if (options_.remote != nullptr) push(context);
}

void SplitTail::collect(bool states) {
  settle();
  if (options_.remote != nullptr) return;  // which brings the model to all itself
  wait(share(weights_), "collecting the classifier");
  for (const std::span<float> s : states_) {
    if (states) wait(share(s), "collecting the classifier");
  }
}

comm::Task SplitTail::share(std::span<float> arena) {
  comm::Requests requests;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = *layers_[l];
    const int tag = kShareTag + 2 * static_cast<int>(l);
    for (int m = 0; m < members(); ++m) {
      const OutputSlice& slice = layer.slices[static_cast<size_t>(m)];
      const auto part = [&](int64_t offset, int64_t width) {
        return arena.subspan(static_cast<size_t>(offset + slice.first * width),
                             static_cast<size_t>(slice.size() * width));
      };
      // Workers of one host see the same arena, which one of them writes to.
      const auto takes = [&](int from, int to) {
        const auto& hosts = team_->hosts();
        return takes_[static_cast<size_t>(to)] &&
               hosts[static_cast<size_t>(from)] != hosts[static_cast<size_t>(to)];
      };
      const auto move = [&](std::span<float> values, int t) {
        if (values.empty()) return;
        if (m != place()) {
          if (takes(m, place())) requests.add(team_->receive(m, t, std::as_writable_bytes(values)));
          return;
        }
        for (int step = 1; step < members(); ++step) {
          const int to = (place() + step) % members();
          if (takes(place(), to)) requests.add(team_->send(to, t, std::as_bytes(values)));
        }
      };
      move(part(layer.of.weight, layer.of.inputs), tag);
      if (layer.of.bias >= 0) move(part(layer.of.bias, 1), tag + 1);
    }
  }
  co_await std::move(requests);
}

comm::Traffic SplitTail::traffic(const engine::Tail& tail, const std::vector<int64_t>& rows,
                                 int member) {
  const auto members = static_cast<int>(rows.size());
  const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const int64_t inputs = tail.layers.front().inputs;
  comm::Traffic t;
  const auto send = [&](int64_t values) {
    if (values == 0) return;
    ++t.messages;
    t.bytes += Bytes{4 * values};
  };
  for (int to = 0; to < members; ++to) {
    if (to == member) continue;
    const int64_t own = rows[static_cast<size_t>(member)];
    send(own * inputs);
    send(own);  // labels
    send(rows[static_cast<size_t>(to)] * inputs);
    for (size_t l = 0; l < tail.layers.size(); ++l) {
      send(all * slice_of(tail.layers[l].outputs, member, members).size());
      if (l > 0) send(all * slice_of(tail.layers[l - 1].outputs, to, members).size());
    }
  }
  return t;
}

}  // namespace convoy::sync
