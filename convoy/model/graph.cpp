#include "convoy/model/graph.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "convoy/base/error.hpp"
#include "convoy/model/infer.hpp"

namespace convoy::model {
namespace {

struct KindName {
  std::string_view operator()(const Input& /*kind*/) const { return "input"; }
  std::string_view operator()(const Conv& /*kind*/) const { return "conv"; }
  std::string_view operator()(const Linear& /*kind*/) const { return "linear"; }
  std::string_view operator()(const BatchNorm& /*kind*/) const { return "batch-norm"; }
  std::string_view operator()(const Activation& activation) const {
    return kind_name(activation.kind);
  }
  std::string_view operator()(const Pool& pool) const {
    return pool.kind == PoolKind::max ? "max-pool" : "average-pool";
  }
  std::string_view operator()(const GlobalAveragePool& /*kind*/) const {
    return "global-average-pool";
  }
  std::string_view operator()(const Lrn& /*kind*/) const { return "lrn"; }
  std::string_view operator()(const Dropout& /*kind*/) const { return "dropout"; }
  std::string_view operator()(const Add& /*kind*/) const { return "add"; }
  std::string_view operator()(const Concat& /*kind*/) const { return "concat"; }
  std::string_view operator()(const Flatten& /*kind*/) const { return "flatten"; }
  std::string_view operator()(const SoftmaxCrossEntropy& /*kind*/) const {
    return "softmax-cross-entropy";
  }
  std::string_view operator()(const MeanSquaredError& /*kind*/) const {
    return "mean-squared-error";
  }
};

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-' || c == '/';
}

int64_t parameters_of(const Layer& layer) {
  return std::accumulate(layer.parameters.begin(), layer.parameters.end(), int64_t{0},
                         [](int64_t sum, const Parameter& p) { return sum + p.size(); });
}

/// 1234567 → "1,234,567"
std::string with_commas(int64_t value) {
  std::string text = std::to_string(value);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

}  // namespace

std::string to_string(const Shape& shape) {
  if (shape.height == 1 && shape.width == 1) return std::to_string(shape.channels);
  return fmt::format("{}×{}×{}", shape.channels, shape.height, shape.width);
}

std::string_view kind_name(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::relu:
      return "relu";
    case ActivationKind::leaky_relu:
      return "leaky-relu";
    case ActivationKind::relu6:
      return "relu6";
    case ActivationKind::elu:
      return "elu";
    case ActivationKind::sigmoid:
      return "sigmoid";
    case ActivationKind::tanh:
      return "tanh";
    case ActivationKind::gelu:
      return "gelu";
  }
  throw std::logic_error("broken invariant: an activation outside its enum");
}

std::string_view kind_name(const LayerKind& kind) {
  return std::visit(KindName{}, kind);
}

bool is_loss(const LayerKind& kind) {
  return std::holds_alternative<SoftmaxCrossEntropy>(kind) ||
         std::holds_alternative<MeanSquaredError>(kind);
}

int64_t Parameter::size() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Graph::Graph(Shape input, std::string name) : name_(std::move(name)) {
  check_shape("input", input);
  layers_.push_back({"input", Input{}, {}, input, {}});
  ids_.emplace("input", 0);
}

std::string Graph::unused_name(const LayerKind& kind) const {
  const auto known = numbers_.find(kind_name(kind));
  int number = known == numbers_.end() ? 0 : known->second;
  std::string name;
  do {
    name = fmt::format("{}{}", kind_name(kind), ++number);
  } while (ids_.contains(name));
  return name;
}

void Graph::check_name(const std::string& name) const {
  if (!std::all_of(name.begin(), name.end(), is_name_character)) {
    refuse("layer '{}': a name is made of letters, digits, '.', '_', '-' and '/'", name);
  }
  if (name == "start" || name == "previous") {
    refuse("layer '{}': this name is taken: in a graph it means what a block or layer reads", name);
  }
  if (const auto taken = ids_.find(name); taken != ids_.end()) {
    refuse("layer '{}': there already is a layer of this name (number {}, {})", name, taken->second,
           kind_name(layer(taken->second).kind));
  }
}

LayerId Graph::add(LayerKind kind, std::vector<LayerId> inputs, std::string name) {
  if (name.empty()) {
    name = unused_name(kind);
  } else {
    check_name(name);
  }
  std::vector<const Layer*> sources;
  for (const LayerId id : inputs) {
    if (id < 0 || id >= static_cast<LayerId>(layers_.size())) {
      refuse("layer '{}': reads layer number {}, but there are only 0 to {} so far", name, id,
             layers_.size() - 1);
    }
    if (is_loss(layer(id).kind)) {
      refuse("layer '{}': reads '{}', which is a loss; a loss is the end of a network", name,
             layer(id).name);
    }
    sources.push_back(&layer(id));
  }
  Layer added{std::move(name), kind, std::move(inputs), {}, {}};
  infer(added, sources);
  const auto id = static_cast<LayerId>(layers_.size());
  ids_.emplace(added.name, id);
  ++numbers_[std::string(kind_name(added.kind))];
  layers_.push_back(std::move(added));
  return id;
}

LayerId Graph::conv(LayerId from, Conv conv, std::string name) {
  return add(conv, {from}, std::move(name));
}

LayerId Graph::linear(LayerId from, int64_t out, std::string name) {
  return add(Linear{.out = out}, {from}, std::move(name));
}

LayerId Graph::batch_norm(LayerId from, std::string name) {
  return add(BatchNorm{}, {from}, std::move(name));
}

LayerId Graph::relu(LayerId from, std::string name) {
  return add(Activation{.kind = ActivationKind::relu}, {from}, std::move(name));
}

LayerId Graph::max_pool(LayerId from, int64_t kernel, int64_t stride, int64_t pad,
                        std::string name) {
  return add(Pool{.kind = PoolKind::max,
                  .kernel = {kernel, kernel},
                  .stride = {stride, stride},
                  .pad = {pad, pad}},
             {from}, std::move(name));
}

LayerId Graph::softmax_cross_entropy(LayerId from, float smoothing, std::string name) {
  return add(SoftmaxCrossEntropy{.smoothing = smoothing}, {from}, std::move(name));
}

void Graph::check_complete() const {
  static_cast<void>(output());
  const std::vector<int> readers = users();
  for (size_t i = 0; i + 1 < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    if (is_loss(layer.kind)) {
      refuse("graph '{}': has two losses, '{}' and '{}'; it needs exactly one", name_, layer.name,
             layers_.back().name);
    }
    if (readers[i] == 0) {
      refuse("graph '{}': nothing reads layer '{}' ({}, {})", name_, layer.name,
             kind_name(layer.kind), to_string(layer.out));
    }
  }
}

std::optional<LayerId> Graph::find(std::string_view layer_name) const {
  const auto found = ids_.find(layer_name);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

LayerId Graph::output() const {
  const Layer& last = layers_.back();
  if (!is_loss(last.kind)) {
    refuse(
        "graph '{}': must end with a loss (softmax-cross-entropy or mean-squared-error), but "
        "its last layer is '{}' ({})",
        name_, last.name, kind_name(last.kind));
  }
  return last.inputs.front();
}

std::vector<int> Graph::users() const {
  std::vector<int> readers(layers_.size(), 0);
  for (const Layer& layer : layers_) {
    for (const LayerId id : layer.inputs) ++readers[static_cast<size_t>(id)];
  }
  return readers;
}

int64_t Graph::parameter_count() const {
  return std::accumulate(layers_.begin(), layers_.end(), int64_t{0},
                         [](int64_t sum, const Layer& l) { return sum + parameters_of(l); });
}

Flops Graph::forward_flops() const {
  Flops total;
  for (LayerId id = 0; id < static_cast<LayerId>(layers_.size()); ++id) total += forward_flops(id);
  return total;
}

Flops Graph::training_flops() const {
  Flops total{3 * forward_flops().value};
  for (LayerId id = 1; id < static_cast<LayerId>(layers_.size()); ++id) {
    const auto& inputs = layer(id).inputs;
    const bool first = std::find(inputs.begin(), inputs.end(), 0) != inputs.end();
    if (first) total.value -= forward_flops(id).value;
  }
  return total;
}

Flops Graph::forward_flops(LayerId id) const {
  const Layer& at = layer(id);
  if (!std::holds_alternative<Conv>(at.kind) && !std::holds_alternative<Linear>(at.kind)) {
    return {};
  }
  // Every output value is a dot product over the weight's fan-in.
  return {2.0 * static_cast<double>(at.out.size()) *
          static_cast<double>(at.parameters.front().fan_in)};
}

std::string describe(const Graph& graph) {
  size_t widest = 5;
  for (const Layer& layer : graph.layers()) widest = std::max(widest, layer.name.size());
  std::string text = fmt::format("{}\n", graph.name());
  const auto row = [&](std::string_view name, std::string_view kind, std::string_view shape,
                       std::string_view parameters, std::string_view mflop) {
    std::string line = fmt::format("{:<{}}  {:<21}  {:>14}  {:>13}  {:>10}", name, widest, kind,
                                   shape, parameters, mflop);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  const auto mflop = [](Flops flops) { return fmt::format("{:.3f}", flops.value / 1e6); };
  row("layer", "kind", "output", "parameters", "MFLOP");
  for (LayerId id = 0; id < static_cast<LayerId>(graph.layers().size()); ++id) {
    const Layer& layer = graph.layer(id);
    const Flops flops = graph.forward_flops(id);
    row(layer.name, kind_name(layer.kind), to_string(layer.out),
        layer.parameters.empty() ? "" : with_commas(parameters_of(layer)),
        flops.value > 0 ? mflop(flops) : "");
  }
  row("total", "", "", with_commas(graph.parameter_count()), mflop(graph.forward_flops()));
  return text;
}

}  // namespace convoy::model
