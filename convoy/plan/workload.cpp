#include "convoy/plan/workload.hpp"

#include <algorithm>
#include <map>

#include "convoy/base/error.hpp"
#include "convoy/plan/step_time.hpp"

namespace convoy::plan {
namespace {

int64_t floats_of(const model::Layer& layer) {
  int64_t sum = 0;
  for (const model::Parameter& p : layer.parameters) sum += p.size();
  return sum;
}

/// Stored rows are multiples of 8 floats.
int64_t padded(int64_t size) {
  return (size + 7) / 8 * 8;
}

/// The linear layers between the rest and the loss, with activations and dropout between them.
std::vector<model::LayerId> tail_of(const model::Graph& graph) {
  std::vector<model::LayerId> tail;
  model::LayerId at = graph.output();
  while (at > 0) {
    const model::Layer& layer = graph.layer(at);
    if (std::holds_alternative<model::Linear>(layer.kind)) {
      tail.push_back(at);
    } else if (!std::holds_alternative<model::SoftmaxCrossEntropy>(layer.kind) &&
               !std::holds_alternative<model::Dropout>(layer.kind) &&
               !std::holds_alternative<model::Activation>(layer.kind)) {
      break;
    }
    at = layer.inputs.front();
  }
  return tail;
}

}  // namespace

int64_t Workload::weights() const {
  int64_t sum = 0;
  for (const LayerWork& layer : layers) sum += layer.weights;
  return sum;
}

int Workload::tail() const {
  return static_cast<int>(std::ranges::count_if(layers, &LayerWork::is_tail));
}

int64_t Workload::tail_weights(int last) const {
  check(last <= tail(), "a tail has so many layers");
  int64_t sum = 0;
  for (size_t i = layers.size(); i-- > 0 && last > 0;) {
    if (!layers[i].is_tail()) continue;
    sum += layers[i].weights;
    --last;
  }
  return sum;
}

Seconds Workload::sample() const {
  Seconds sum;
  for (const LayerWork& layer : layers) sum += layer.forward + layer.backward;
  return sum;
}

double Workload::speed(const NodeType& node) const {
  return (node.gflops > 0 ? node.gflops / reference_gflops : node.speed) / node.workers;
}

Workload workload_of(const model::Graph& graph) {
  Workload w;
  w.model = graph.name();
  w.flops = graph.training_flops();
  w.origin = "from its arithmetic";
  const std::vector<model::LayerId> tail = tail_of(graph);
  bool first = true;
  for (model::LayerId id = 1; id < static_cast<model::LayerId>(graph.layers().size()); ++id) {
    const double forward = graph.forward_flops(id).value / 1e9;
    const int64_t floats = floats_of(graph.layer(id));
    if (forward == 0 && floats == 0) continue;
    LayerWork layer;
    layer.name = graph.layer(id).name;
    layer.forward = {forward};
    layer.backward = {first ? forward : 2 * forward};  // nobody needs the input's gradient
    first = false;
    layer.weights = floats;
    if (std::ranges::count(tail, id) > 0) {
      layer.inputs = padded(graph.layer(graph.layer(id).inputs.front()).out.size());
      layer.outputs = padded(graph.layer(id).out.size());
    }
    w.layers.push_back(layer);
  }
  // Weights, gradients and one state of the optimizer.
  w.model_memory = {3 * 4 * graph.parameter_count()};
  return w;
}

Workload measure_workload(const engine::Program& program, const optim::Optimizer& optimizer,
                          sync::StepperOptions options) {
  const StepTime time = measure_step(program, optimizer, options, true);
  const std::vector<double>& seconds = time.instructions;
  const std::vector<engine::InstructionInfo> infos = program.instructions();
  const model::Graph& graph = program.graph();
  Workload w = workload_of(graph);
  double sum = 0;
  for (const double s : seconds) sum += s;
  // Instructions of all lanes, scaled to what a round takes from the first to the last.
  const double samples = static_cast<double>(program.grain() * options.lanes);
  const double scale = time.round.value / samples / std::max(1e-30, sum);
  std::map<model::LayerId, std::pair<double, double>> by_layer;
  for (size_t i = 0; i < infos.size(); ++i) {
    const bool forward = infos[i].phase == engine::Phase::forward;
    auto& times = by_layer[infos[i].layer];
    (forward ? times.first : times.second) += scale * seconds[i];
  }
  std::vector<LayerWork> layers;
  for (const auto& [id, times] : by_layer) {
    LayerWork layer;
    layer.name = graph.layer(id).name;
    layer.forward = {times.first};
    layer.backward = {times.second};
    layer.weights = floats_of(graph.layer(id));
    if (program.tail()) {
      // What can be split is the engine's to say.
      const auto& linear = program.tail()->layers;
      const auto found = std::ranges::find(linear, id, &engine::Tail::Linear::layer);
      if (found != linear.end()) {
        layer.inputs = found->inputs;
        layer.outputs = found->outputs;
      }
    }
    layers.push_back(layer);
  }
  w.layers = layers;
  w.origin = "measured on this machine";
  w.reference_gflops = w.flops.value / 1e9 / std::max(1e-30, w.sample().value);
  w.update = time.update;
  w.linear = measure_linear(w.tail_weights(w.tail()));
  const sync::Stepper::Memory memory = sync::Stepper::memory(program, optimizer, options, 1);
  w.model_memory = memory.weights + memory.optimizer + memory.gradients;
  w.grain = program.grain();
  w.grain_memory = program.lane_memory();
  return w;
}

}  // namespace convoy::plan
