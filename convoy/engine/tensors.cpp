// Which tensors a model has, in which layout, in which order.

#include <algorithm>

#include "convoy/engine/builder.hpp"

namespace convoy::engine {
namespace {

/// First layers with so few channels are read as they come (NCHW); blocking them would waste most
/// of each block.
constexpr int64_t kMostPlainChannels = 4;

/// How the values of a layer's output lie: in nChw8c of these extents, or plain.
struct Stored {
  model::Shape shape;
  bool blocked = true;
};

Stored stored_as(const model::Graph& graph, model::LayerId id) {
  const model::Layer& layer = graph.layer(id);
  if (id == 0) return {layer.out, false};
  if (std::holds_alternative<model::Flatten>(layer.kind)) {
    return flatten_is_free(graph, id) ? stored_as(graph, layer.inputs[0]) : Stored{layer.out};
  }
  if (std::holds_alternative<model::Activation>(layer.kind) ||
      std::holds_alternative<model::Dropout>(layer.kind)) {
    return {stored_as(graph, layer.inputs[0]).shape};
  }
  return {layer.out};
}

Tensor describe(const Builder& b, model::LayerId id, const model::Parameter& parameter) {
  const model::Layer& layer = b.graph.layer(id);
  Tensor t;
  t.name = parameter.name;
  t.role = parameter.role;
  t.layer = id;
  t.shape = parameter.shape;
  t.fan_in = parameter.fan_in;
  if (parameter.role != model::Role::weight) return t;
  if (const auto* conv = std::get_if<model::Conv>(&layer.kind)) {
    t.layout = conv_layout(b.graph, layer);
    t.groups = conv->groups;
  } else {
    t.layout = Layout::linear;
    const Stored source = stored_as(b.graph, layer.inputs[0]);
    t.source = source.shape;
    t.source_blocked = source.blocked;
  }
  return t;
}

}  // namespace

Layout conv_layout(const model::Graph& graph, const model::Layer& layer) {
  const auto& conv = std::get<model::Conv>(layer.kind);
  const int64_t in = graph.layer(layer.inputs[0]).out.channels;
  if (conv.groups == 1) {
    return layer.inputs[0] == 0 && in <= kMostPlainChannels ? Layout::conv_input : Layout::conv;
  }
  if (conv.groups == in && conv.out == in) return Layout::depthwise;
  const bool whole_blocks = in / conv.groups % kBlock == 0 && conv.out / conv.groups % kBlock == 0;
  return whole_blocks ? Layout::conv : Layout::conv_plain;
}

bool flatten_is_free(const model::Graph& graph, model::LayerId id) {
  const auto count = static_cast<model::LayerId>(graph.layers().size());
  if (std::holds_alternative<model::Flatten>(graph.layer(id).kind)) {
    const model::Shape in = graph.layer(graph.layer(id).inputs[0]).out;
    if (in.height == 1 && in.width == 1) return true;
  }
  for (model::LayerId user = id + 1; user < count; ++user) {
    const model::Layer& layer = graph.layer(user);
    if (std::find(layer.inputs.begin(), layer.inputs.end(), id) == layer.inputs.end()) continue;
    if (std::holds_alternative<model::Linear>(layer.kind)) continue;
    const bool pointwise = std::holds_alternative<model::Activation>(layer.kind) ||
                           std::holds_alternative<model::Dropout>(layer.kind) ||
                           std::holds_alternative<model::Flatten>(layer.kind);
    if (!pointwise || !flatten_is_free(graph, user)) return false;
  }
  return true;
}

void declare_tensors(Builder& b, const std::vector<Node>& nodes) {
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const model::LayerId id = node->head;
    const model::Layer& layer = b.graph.layer(id);
    for (const model::Parameter& parameter : layer.parameters) {
      b.arena.add(describe(b, id, parameter));
    }
    if (!std::holds_alternative<model::BatchNorm>(layer.kind)) continue;
    for (const Kind kind : {Kind::running_mean, Kind::running_variance}) {
      Tensor t;
      t.name = layer.name + (kind == Kind::running_mean ? ".running_mean" : ".running_var");
      t.kind = kind;
      t.role = model::Role::scale;
      t.layer = id;
      t.shape = {layer.out.channels};
      b.arena.add(t);
    }
  }
}

}  // namespace convoy::engine
