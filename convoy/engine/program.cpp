#include "convoy/engine/program.hpp"

#include <algorithm>
#include <cstring>

#include <omp.h>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/engine/builder.hpp"
#include "convoy/engine/dnnl_call.hpp"

namespace convoy::engine {
namespace {

/// Sets the number of OpenMP threads of the calling thread while it lives: oneDNN reads it both
/// when a primitive is made and when it runs.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~ThreadCount() { omp_set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

Backward emit_node(Builder& b, const Node& node) {
  return std::visit(
      [&](const auto& kind) -> Backward {
        using K = std::decay_t<decltype(kind)>;
        if constexpr (std::is_same_v<K, model::Conv>) return emit_conv(b, node);
        if constexpr (std::is_same_v<K, model::Linear>) return emit_linear(b, node);
        if constexpr (std::is_same_v<K, model::BatchNorm>) return emit_norm(b, node);
        if constexpr (std::is_same_v<K, model::Activation>) return emit_activation(b, node);
        if constexpr (std::is_same_v<K, model::Pool>) return emit_pool(b, node);
        if constexpr (std::is_same_v<K, model::GlobalAveragePool>) return emit_global_pool(b, node);
        if constexpr (std::is_same_v<K, model::Lrn>) return emit_lrn(b, node);
        if constexpr (std::is_same_v<K, model::Dropout>) return emit_dropout(b, node);
        if constexpr (std::is_same_v<K, model::Add>) return emit_add(b, node);
        if constexpr (std::is_same_v<K, model::Concat>) return emit_concat(b, node);
        if constexpr (std::is_same_v<K, model::Flatten>) return emit_flatten(b, node);
        if constexpr (std::is_same_v<K, model::SoftmaxCrossEntropy> ||
                      std::is_same_v<K, model::MeanSquaredError>) {
          return emit_loss(b, node);
        }
        check(false, "only the first layer is an input");
        return {};
      },
      b.graph.layer(node.head).kind);
}

/// Runs a part of the compilation; oneDNN's errors do not say which layer they are about.
void naming_layer(const Builder& b, const Node& node, const std::function<void()>& emit) {
  try {
    emit();
  } catch (const dnnl::error& error) {
    fail("layer '{}': oneDNN cannot compute it ({})", b.graph.layer(node.head).name, error.what());
  }
}

}  // namespace

struct Program::Compiled {
  model::Graph graph;
  CompileOptions options;
  Builder builder;
  MemoryPlan memory;
  int64_t largest_layer = 0;
  std::optional<Tail> tail;
  /// Of one of its layers: the node, its input as the forward pass has it, and where its gradient
  /// goes.
  struct Border {
    size_t node = 0;
    BufferId input = kNone;
    BufferId gradient = kNone;
  };
  std::vector<Border> borders;  // by layer of the tail

  Border* border_at(size_t node) {
    const auto found = std::ranges::find(borders, node, &Border::node);
    return found == borders.end() ? nullptr : &*found;
  }

  Compiled(const model::Graph& g, const CompileOptions& o)
      : graph(g), options(o), builder(graph, options) {}
};

namespace {

class CompiledLane final : public Lane {
 public:
  CompiledLane(const Program::Compiled& program, const Weights& weights)
      : program_(program), memory_(program.memory.total) {
    omp_set_num_threads(program.options.threads_per_lane);
    const LaneMemory lane{memory_.bytes().data(), &program.memory.offsets, weights};
    for (const Instruction& i : program.builder.instructions) bound_.push_back(i.bind(lane));
    output_ =
        lane.floats(program.builder.values[static_cast<size_t>(program.graph.output())].buffer);
    for (const auto& border : program.borders) {
      borders_.push_back({lane.floats(border.input), lane.floats(border.gradient)});
    }
  }

  GrainResult run(const GrainRun& grain) override {
    RunState state;
    state.grain = &grain;
    const auto& instructions = program_.builder.instructions;
    bool forward = true;
    bool handed_over = false;
    const size_t tail = grain.handover ? first_handed(grain.tail_layers) : 0;
    const model::LayerId border =
        grain.handover ? program_.tail->layers[tail].layer : model::LayerId{};
    for (size_t i = 0; i < instructions.size(); ++i) {
      if (instructions[i].training_only && !grain.training) break;
      if (forward && instructions[i].training_only) {
        forward = false;
        if (grain.on_loss) grain.on_loss(state.result);
      }
      if (grain.handover && instructions[i].info.layer >= border) {
        if (!handed_over) hand_over(grain, tail, state.result);
        handed_over = true;
        if (instructions[i].info.layer == border &&
            instructions[i].info.phase == Phase::backward_data) {
          std::ranges::copy(handed_.floats(), borders_[tail].gradient);
        }
        continue;
      }
      if (instructions[i].needs_end > instructions[i].needs_begin && grain.before_layer) {
        grain.before_layer(instructions[i].needs_begin, instructions[i].needs_end);
      }
      const bool timed = !profile_.empty() || grain.on_instruction;
      const Seconds before = timed ? now() : Seconds{};
      bound_[i](state);
      const Seconds after = timed ? now() : Seconds{};
      if (!profile_.empty()) profile_[i] += (after - before).value;
      if (grain.on_instruction) grain.on_instruction(i, before, after);
      if (instructions[i].complete_end > instructions[i].complete_begin && grain.on_layer) {
        grain.on_layer(instructions[i].complete_begin, instructions[i].complete_end);
      }
    }
    return state.result;
  }

  void output(std::span<float> plain) const override {
    const model::LayerId id = program_.graph.output();
    const Blocked s = program_.builder.values[static_cast<size_t>(id)].stored;
    program_.builder.kernels.unblock(s, 0, s.n, output_, plain.data());
  }

  std::vector<double> take_profile() override {
    std::vector<double> taken(bound_.size(), 0.0);
    std::swap(taken, profile_);
    return taken;
  }

 private:
  /// Its gradient waits outside the lane's memory, parts of which serve others until it is needed.
  void hand_over(const GrainRun& grain, size_t tail, GrainResult& result) {
    const int64_t floats = program_.options.grain * program_.tail->layers[tail].inputs;
    if (grain.training && static_cast<int64_t>(handed_.floats().size()) != floats) {
      handed_ = AlignedBuffer::of_floats(floats);
    }
    grain.handover(borders_[tail].input, result,
                   grain.training ? handed_.floats().data() : nullptr);
  }

  /// Of the tail's layers, the first of the last `count`.
  size_t first_handed(int count) const {
    const size_t all = program_.tail->layers.size();
    return count == 0 ? 0 : all - static_cast<size_t>(count);
  }

  struct Border {
    const float* input;
    float* gradient;
  };

  const Program::Compiled& program_;
  AlignedBuffer memory_;
  std::vector<Bound> bound_;
  const float* output_ = nullptr;
  std::vector<Border> borders_;  // by layer of the tail
  AlignedBuffer handed_;
  std::vector<double> profile_;
};

}  // namespace

const char* to_string(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward_data:
      return "backward data";
    case Phase::backward_weights:
      return "backward weights";
    case Phase::backward_other:
      return "backward";
    case Phase::reorder:
      return "reorder";
    case Phase::border:
      return "border";
  }
  return "";
}

namespace {

template <class Kind>
const Kind* as(const model::Graph& graph, model::LayerId id) {
  return std::get_if<Kind>(&graph.layer(id).kind);
}

/// The longest run of nodes at the end that is a chain of linear layers, dropout and a softmax.
/// After the arena's tensors are declared.
void find_tail(Program::Compiled& c, const std::vector<Node>& nodes) {
  const model::Graph& graph = c.graph;
  const auto* loss = as<model::SoftmaxCrossEntropy>(graph, nodes.back().head);
  if (loss == nullptr) return;
  const std::vector<int> users = graph.users();
  size_t first = nodes.size() - 1;
  std::optional<size_t> linear;  // the first one so far
  while (first > 0) {
    const Node& node = nodes[first - 1];
    const bool reads = graph.layer(nodes[first].head).inputs == std::vector{node.result} &&
                       users[static_cast<size_t>(node.result)] == 1;
    const bool is_linear = as<model::Linear>(graph, node.head) != nullptr;
    if (!reads || (!is_linear && as<model::Dropout>(graph, node.head) == nullptr)) break;
    --first;
    if (is_linear) linear = first;
  }
  if (!linear) return;
  const model::LayerId from = graph.layer(nodes[*linear].head).inputs[0];
  if (from == 0 || users[static_cast<size_t>(from)] != 1) return;
  Tail tail;
  std::vector<Program::Compiled::Border> borders;
  for (size_t i = *linear; i + 1 < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (const auto* dropout = as<model::Dropout>(graph, node.head)) {
      Tail::Linear& last = tail.layers.back();
      // What it left out is known from its output only behind a ReLU.
      if (!last.relu || last.dropout > 0) return;
      last.dropout = dropout->rate;
      last.dropout_layer = node.head;
      continue;
    }
    const Tensor* weight = c.builder.tensor(node.head, model::Role::weight);
    if (!weight->source_blocked) return;
    Tail::Linear layer;
    layer.layer = node.head;
    layer.outputs = round_up(graph.layer(node.head).out.channels, kBlock);
    layer.inputs = weight->stored / layer.outputs;
    layer.weight = weight->offset;
    if (const Tensor* bias = c.builder.tensor(node.head, model::Role::bias)) {
      layer.bias = bias->offset;
    }
    layer.relu = node.relu;
    layer.end = c.builder.span(node.head).second;
    tail.layers.push_back(layer);
    borders.push_back({.node = i});
  }
  for (size_t i = 0; i + 1 < tail.layers.size(); ++i) {
    if (!tail.layers[i].relu) return;
  }
  if (tail.layers.back().relu) return;
  tail.classes = graph.classes();
  tail.smoothing = loss->smoothing;
  tail.floats = tail.layers.front().end;
  c.tail = std::move(tail);
  c.borders = std::move(borders);
}

}  // namespace

Program::Program(const model::Graph& graph, const CompileOptions& options)
    : compiled_(std::make_unique<Compiled>(graph, options)) {
  compiled_->graph.check_complete();
  const ThreadCount threads(options.threads_per_lane);
  Builder& b = compiled_->builder;
  Value& input = b.value(0);
  input.stored = b.stored(graph.input_shape());
  input.wants_gradient = false;
  const std::vector<Node> nodes = plan_nodes(compiled_->graph);
  declare_tensors(b, nodes);

  find_tail(*compiled_, nodes);
  std::vector<Backward> backward;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (auto* border = compiled_->border_at(i)) {
      border->input = b.blocked(graph.layer(nodes[i].head).inputs[0]);
    }
    naming_layer(b, nodes[i], [&] { backward.push_back(emit_node(b, nodes[i])); });
  }
  b.mark_needs();
  // The output is read after the run (Lane::output), so in evaluation it must outlive the loss.
  const BufferId output = b.value(graph.output()).buffer;
  b.start_backward();
  for (size_t i = nodes.size(); i-- > 0;) {
    naming_layer(b, nodes[i], backward[i]);
    if (auto* border = compiled_->border_at(i)) {
      border->gradient = b.value(graph.layer(nodes[i].head).inputs[0]).gradient;
    }
  }
  if (output != kNone) {
    b.lifetimes[static_cast<size_t>(output)].last = static_cast<int>(b.instructions.size());
  }

  compiled_->memory = plan_memory(b.lifetimes);
  for (const Instruction& i : b.instructions) {
    compiled_->largest_layer =
        std::max(compiled_->largest_layer, i.complete_end - i.complete_begin);
  }
}

Program::~Program() = default;

const Arena& Program::arena() const {
  return compiled_->builder.arena;
}
int64_t Program::grain() const {
  return compiled_->options.grain;
}
const model::Graph& Program::graph() const {
  return compiled_->graph;
}
Bytes Program::lane_memory() const {
  return compiled_->memory.total;
}
Bytes Program::least_lane_memory() const {
  return lower_bound(compiled_->builder.lifetimes);
}
int64_t Program::prepared_size() const {
  return compiled_->builder.prepared_size;
}
int64_t Program::largest_layer() const {
  return compiled_->largest_layer;
}
Tail Tail::last(int count) const {
  check(count >= 0 && count <= static_cast<int>(layers.size()), "a tail has so many layers");
  Tail tail = *this;
  if (count > 0) tail.layers.erase(tail.layers.begin(), tail.layers.end() - count);
  tail.floats = tail.layers.front().end;
  return tail;
}

const std::optional<Tail>& Program::tail() const {
  return compiled_->tail;
}

std::unique_ptr<Lane> Program::make_lane(const Weights& weights) const {
  return std::make_unique<CompiledLane>(*compiled_, weights);
}

std::vector<Program::Preparation> Program::preparations() const {
  std::vector<Preparation> all;
  for (const auto& p : compiled_->builder.preparations) {
    const auto [begin, end] = compiled_->builder.span(p.layer);
    all.push_back({begin, end, p.units});
  }
  return all;
}

void Program::prepare(const Weights& weights, size_t index, int64_t begin, int64_t end) const {
  const auto& p = compiled_->builder.preparations[index];
  p.rewrite(weights.arena, weights.prepared + p.offset, begin, end);
}

void Program::prepare(const Weights& weights) const {
  const auto& all = compiled_->builder.preparations;
  for (size_t i = 0; i < all.size(); ++i) prepare(weights, i, 0, all[i].units);
}

std::vector<InstructionInfo> Program::instructions() const {
  std::vector<InstructionInfo> infos;
  for (const Instruction& i : compiled_->builder.instructions) infos.push_back(i.info);
  return infos;
}

int Program::reorder_count() const {
  const auto& all = compiled_->builder.instructions;
  return static_cast<int>(std::count_if(
      all.begin(), all.end(), [](const Instruction& i) { return i.info.phase == Phase::reorder; }));
}

}  // namespace convoy::engine
