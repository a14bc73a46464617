#include "convoy/engine/conv_trial.hpp"

#include <algorithm>
#include <cmath>

#include <omp.h>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/base/random.hpp"
#include "convoy/engine/builder.hpp"

namespace convoy::engine {
namespace {

/// The convolution between two layers that are never emitted.
model::Graph network_around(const ConvShape& s) {
  model::Graph g({s.ic, s.ih, s.iw}, "trial");
  const model::LayerId x = s.plain_input ? g.input() : g.batch_norm(g.input());
  const model::LayerId conv = g.conv(x, {.out = s.oc,
                                         .kernel = {s.kh, s.kw},
                                         .stride = {s.stride_h, s.stride_w},
                                         .pad = {s.pad_h, s.pad_w},
                                         .dilation = {s.dilation_h, s.dilation_w},
                                         .groups = s.groups,
                                         .bias = false});
  g.softmax_cross_entropy(g.linear(g.add(model::GlobalAveragePool{}, {conv}), 2));
  return g;
}

const Node& conv_node(const std::vector<Node>& nodes, const model::Graph& graph) {
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) {
    return std::holds_alternative<model::Conv>(graph.layer(node.head).kind);
  });
  check(found != nodes.end(), "the network has its convolution");
  return *found;
}

CompileOptions options_for(const model::Graph& graph, const ConvShape& s,
                           const ConvAlgorithms& algorithms, int threads,
                           int64_t lowered_together) {
  CompileOptions options;
  options.grain = s.n;
  options.threads_per_lane = threads;
  options.lowered_together = lowered_together;
  options.algorithms = {{conv_node(plan_nodes(graph), graph).head, algorithms}};
  return options;
}

}  // namespace

struct ConvTrial::State {
  ConvShape shape;
  model::Graph graph;
  Builder builder;
  model::LayerId conv = 0;
  BufferId x = kNone, y = kNone, dx = kNone, dy = kNone;
  /// Instructions of each direction: [begin, end).
  size_t begin[3] = {}, end[3] = {};
  AlignedBuffer memory, weights, prepared, gradient, plain_x;
  MemoryPlan plan;
  std::vector<Bound> bound;
  GrainRun grain;

  State(const ConvShape& s, const ConvAlgorithms& algorithms, int threads, int64_t together)
      : shape(s),
        graph(network_around(s)),
        builder(graph, options_for(graph, s, algorithms, threads, together)) {}

  Blocked x_shape() const { return {shape.n, shape.ic, shape.ih, shape.iw}; }
  Blocked y_shape() const { return {shape.n, shape.oc, shape.oh, shape.ow}; }
  LaneMemory lane() {
    return {
        memory.bytes().data(), &plan.offsets, {weights.floats().data(), prepared.floats().data()}};
  }
  const Tensor& weight() const { return *builder.tensor(conv, model::Role::weight); }

  void compile();
  void bind();
};

void ConvTrial::State::compile() {
  Builder& b = builder;
  const std::vector<Node> nodes = plan_nodes(graph);
  declare_tensors(b, nodes);
  const Node& node = conv_node(nodes, graph);
  conv = node.head;
  Value& in = b.value(graph.layer(conv).inputs[0]);
  in.stored = x_shape();
  in.wants_gradient = !shape.plain_input;
  if (!shape.plain_input) in.buffer = x = b.new_floats(in.stored.size());
  const Backward backward = emit_conv(b, node);
  begin[0] = 0;
  end[0] = b.instructions.size();
  y = b.value(conv).buffer;
  dy = b.value(conv).gradient = b.new_floats(y_shape().size());
  b.start_backward();
  backward();
  // The weights' gradient comes first, and its last instruction says so.
  size_t split = end[0];
  while (b.instructions[split].complete_end == 0) ++split;
  begin[2] = end[0];
  end[2] = begin[1] = split + 1;
  end[1] = b.instructions.size();
  dx = in.gradient;
}

void ConvTrial::State::bind() {
  const int last = static_cast<int>(builder.instructions.size());
  for (const BufferId id : {x, y, dy, dx}) {
    if (id == kNone) continue;
    Lifetime& life = builder.lifetimes[static_cast<size_t>(id)];
    life.first = 0;
    life.last = last;
  }
  plan = plan_memory(builder.lifetimes);
  memory = AlignedBuffer(plan.total);
  weights = AlignedBuffer::of_floats(builder.arena.size());
  prepared = AlignedBuffer::of_floats(builder.prepared_size);
  gradient = AlignedBuffer::of_floats(builder.arena.size());
  plain_x = AlignedBuffer::of_floats(shape.n * shape.ic * shape.ih * shape.iw);
  grain.input = plain_x.floats().data();
  grain.gradient = gradient.floats().data();
  const LaneMemory bound_to = lane();
  for (const Instruction& i : builder.instructions) bound.push_back(i.bind(bound_to));
}

ConvTrial::ConvTrial(const ConvShape& shape, const ConvAlgorithms& algorithms, int threads,
                     int64_t lowered_together)
    : state_(std::make_unique<State>(shape, algorithms, threads, lowered_together)) {
  // oneDNN asks OpenMP how many threads there are, when it compiles and when it runs.
  omp_set_num_threads(threads);
  state_->compile();
  state_->bind();
}

ConvTrial::~ConvTrial() = default;

void ConvTrial::fill(uint64_t seed) {
  State& s = *state_;
  const Kernels& k = s.builder.kernels;
  Stream random(seed, Purpose::synthetic);
  const auto normal = [&](std::span<float> values) {
    for (float& v : values) v = random.normal();
  };
  normal(s.plain_x.floats());
  if (s.x != kNone) {
    k.block(s.x_shape(), 0, s.shape.n, s.plain_x.floats().data(), s.lane().floats(s.x));
  }
  std::vector<float> w(static_cast<size_t>(s.weight().plain_size()));
  normal(w);
  from_plain(s.weight(), w, s.weights.floats());
  std::vector<float> dy(static_cast<size_t>(s.shape.n * s.shape.oc * s.shape.oh * s.shape.ow));
  normal(dy);
  k.block(s.y_shape(), 0, s.shape.n, dy.data(), s.lane().floats(s.dy));
  prepare();
}

void ConvTrial::prepare() {
  State& s = *state_;
  for (const auto& p : s.builder.preparations) {
    p.rewrite(s.weights.floats().data(), s.prepared.floats().data() + p.offset, 0, p.units);
  }
}

void ConvTrial::run(Direction direction) {
  State& s = *state_;
  const auto d = static_cast<size_t>(direction);
  RunState run;
  run.grain = &s.grain;
  for (size_t i = s.begin[d]; i < s.end[d]; ++i) s.bound[i](run);
}

std::string ConvTrial::kernel(Direction direction) const {
  const auto d = static_cast<size_t>(direction);
  for (size_t i = state_->begin[d]; i < state_->end[d]; ++i) {
    const InstructionInfo& info = state_->builder.instructions[i].info;
    if (info.phase != Phase::reorder) return info.kernel;
  }
  return "";
}

std::vector<float> ConvTrial::plain(Operand operand) const {
  State& s = *state_;
  if (operand == Operand::w || operand == Operand::dw) {
    std::vector<float> values(static_cast<size_t>(s.weight().plain_size()));
    to_plain(s.weight(), operand == Operand::w ? s.weights.floats() : s.gradient.floats(),
             std::span<float>(values));
    return values;
  }
  if (operand == Operand::x) {
    return {s.plain_x.floats().begin(),
            s.plain_x.floats().begin() + s.shape.n * s.shape.ic * s.shape.ih * s.shape.iw};
  }
  const Blocked shape = operand == Operand::dx ? s.x_shape() : s.y_shape();
  const BufferId from = operand == Operand::dx ? s.dx : operand == Operand::y ? s.y : s.dy;
  std::vector<float> values(
      static_cast<size_t>(shape.n * shape.channels * shape.height * shape.width));
  s.builder.kernels.unblock(shape, 0, shape.n, s.lane().floats(from), values.data());
  return values;
}

namespace {

/// The definition of convolution, value by value.
class Definition {
 public:
  explicit Definition(const ConvTrial& trial, const ConvShape& shape)
      : s_(shape),
        x_(trial.plain(ConvTrial::Operand::x)),
        w_(trial.plain(ConvTrial::Operand::w)),
        dy_(trial.plain(ConvTrial::Operand::dy)) {}

  double y(int64_t n, int64_t o, int64_t oy, int64_t ox) const {
    double sum = 0;
    const int64_t each = s_.ic / s_.groups;
    const int64_t first = o / (s_.oc / s_.groups) * each;
    for (int64_t i = 0; i < each; ++i) {
      for (int64_t ky = 0; ky < s_.kh; ++ky) {
        for (int64_t kx = 0; kx < s_.kw; ++kx) {
          sum += x(n, first + i, oy * s_.stride_h - s_.pad_h + ky * s_.dilation_h,
                   ox * s_.stride_w - s_.pad_w + kx * s_.dilation_w) *
                 w(o, i, ky, kx);
        }
      }
    }
    return sum;
  }

  double dx(int64_t n, int64_t c, int64_t iy, int64_t ix) const {
    double sum = 0;
    const int64_t each = s_.oc / s_.groups;
    const int64_t group = c / (s_.ic / s_.groups);
    for (int64_t ky = 0; ky < s_.kh; ++ky) {
      const int64_t y_at = iy + s_.pad_h - ky * s_.dilation_h;
      if (y_at % s_.stride_h != 0) continue;
      for (int64_t kx = 0; kx < s_.kw; ++kx) {
        const int64_t x_at = ix + s_.pad_w - kx * s_.dilation_w;
        if (x_at % s_.stride_w != 0) continue;
        for (int64_t o = group * each; o < (group + 1) * each; ++o) {
          sum += dy(n, o, y_at / s_.stride_h, x_at / s_.stride_w) *
                 w(o, c % (s_.ic / s_.groups), ky, kx);
        }
      }
    }
    return sum;
  }

  double dw(int64_t o, int64_t i, int64_t ky, int64_t kx) const {
    double sum = 0;
    const int64_t c = o / (s_.oc / s_.groups) * (s_.ic / s_.groups) + i;
    for (int64_t n = 0; n < s_.n; ++n) {
      for (int64_t oy = 0; oy < s_.oh; ++oy) {
        for (int64_t ox = 0; ox < s_.ow; ++ox) {
          sum += x(n, c, oy * s_.stride_h - s_.pad_h + ky * s_.dilation_h,
                   ox * s_.stride_w - s_.pad_w + kx * s_.dilation_w) *
                 dy(n, o, oy, ox);
        }
      }
    }
    return sum;
  }

 private:
  double x(int64_t n, int64_t c, int64_t y_at, int64_t x_at) const {
    if (y_at < 0 || x_at < 0 || y_at >= s_.ih || x_at >= s_.iw) return 0;
    return x_[static_cast<size_t>(((n * s_.ic + c) * s_.ih + y_at) * s_.iw + x_at)];
  }
  double dy(int64_t n, int64_t o, int64_t y_at, int64_t x_at) const {
    if (y_at < 0 || x_at < 0 || y_at >= s_.oh || x_at >= s_.ow) return 0;
    return dy_[static_cast<size_t>(((n * s_.oc + o) * s_.oh + y_at) * s_.ow + x_at)];
  }
  double w(int64_t o, int64_t i, int64_t ky, int64_t kx) const {
    return w_[static_cast<size_t>(((o * (s_.ic / s_.groups) + i) * s_.kh + ky) * s_.kw + kx)];
  }

  const ConvShape& s_;
  std::vector<float> x_, w_, dy_;
};

}  // namespace

ConvTrial::Error ConvTrial::error(Direction direction, int64_t samples) const {
  const ConvShape& s = state_->shape;
  const Definition definition(*this, s);
  Operand operand = Operand::y;
  int64_t extent[4] = {s.n, s.oc, s.oh, s.ow};
  if (direction == Direction::backward_data) {
    operand = Operand::dx;
    const int64_t of_x[4] = {s.n, s.ic, s.ih, s.iw};
    std::copy_n(of_x, 4, extent);
  } else if (direction == Direction::backward_weights) {
    operand = Operand::dw;
    const int64_t of_w[4] = {s.oc, s.ic / s.groups, s.kh, s.kw};
    std::copy_n(of_w, 4, extent);
  }
  const std::vector<float> result = plain(operand);
  const auto size = static_cast<int64_t>(result.size());
  // A step without a common factor with the extents visits edges and middles alike.
  const int64_t step = samples == 0 || samples >= size ? 1 : (size / samples) | 1;
  double worst = 0, largest = 0, differences = 0, values = 0;
  for (int64_t at = 0; at < size; at += step) {
    const int64_t d = at % extent[3];
    const int64_t c = at / extent[3] % extent[2];
    const int64_t b = at / extent[3] / extent[2] % extent[1];
    const int64_t a = at / extent[3] / extent[2] / extent[1];
    const double exact = operand == Operand::y    ? definition.y(a, b, c, d)
                         : operand == Operand::dx ? definition.dx(a, b, c, d)
                                                  : definition.dw(a, b, c, d);
    const double difference = std::abs(exact - result[static_cast<size_t>(at)]);
    worst = std::max(worst, difference);
    largest = std::max(largest, std::abs(exact));
    differences += difference;
    values += std::abs(exact);
  }
  return {largest > 0 ? worst / largest : worst, values > 0 ? differences / values : differences};
}

}  // namespace convoy::engine
