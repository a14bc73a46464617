// Writes what the engine computes for one grain of a zoo network, for tests/torch/agreement.py.
//
//   tests_dump NET OUT.safetensors
//
// The networks are published ones on small inputs. Dropout is set to 0, since another framework
// draws other numbers. Batch norm keeps most of its outputs away from zero (scale 0.3, shift ±1):
// with the usual initial values a deep net has ReLU inputs so close to zero that rounding decides
// on their side, and not even float32 and float64 of one framework agree on the gradients.

#include <algorithm>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/base/random.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/model/layer_table.hpp"
#include "convoy/train/safetensors.hpp"

#include "tests/engine/small_zoo.hpp"

namespace convoy::engine {
namespace {

using model::Shape;

constexpr int64_t kGrain = 6;
constexpr uint64_t kSeed = 5;

model::Graph without_dropout(const model::Graph& graph) {
  model::Graph copy(graph.input_shape(), graph.name());
  for (const model::Layer& layer : std::span(graph.layers()).subspan(1)) {
    model::LayerKind kind = layer.kind;
    if (auto* dropout = std::get_if<model::Dropout>(&kind)) dropout->rate = 0;
    copy.add(kind, layer.inputs, layer.name);
  }
  return copy;
}

nlohmann::json as_json(const model::FieldValue& value) {
  return std::visit([](const auto& v) -> nlohmann::json { return v; }, value);
}

/// "count-padding" in YAML is count_padding in Python.
std::string attribute_name(std::string key) {
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

nlohmann::json as_json(const model::Graph& graph) {
  nlohmann::json layers = nlohmann::json::array();
  for (const model::Layer& layer : graph.layers()) {
    const std::string kind(model::kind_name(layer.kind));
    nlohmann::json attributes = nlohmann::json::object();
    if (const model::LayerType* type = model::find_layer_type(kind)) {
      for (const model::Field& field : type->fields) {
        attributes[attribute_name(field.name)] = as_json(field.get(layer.kind));
      }
    }
    layers.push_back({{"name", layer.name},
                      {"kind", kind},
                      {"inputs", layer.inputs},
                      {"attributes", std::move(attributes)}});
  }
  return layers;
}

bool has_depthwise(const model::Graph& graph) {
  return std::any_of(graph.layers().begin(), graph.layers().end(), [](const model::Layer& layer) {
    const auto* conv = std::get_if<model::Conv>(&layer.kind);
    return conv != nullptr && conv->groups > 1 && conv->groups == conv->out;
  });
}

void spread_batch_norm(const Program& program, std::span<float> weights) {
  // A channel that is nearly always 0 leaves a depthwise convolution with almost no variance, and
  // the next batch norm magnifies the rounding error in it.
  const float negative_share = has_depthwise(program.graph()) ? 0 : 0.3F;
  std::vector<float> plain;
  Stream random(kSeed, Purpose::test, 1);
  for (const Tensor& t : program.arena().tensors()) {
    const bool scale = t.role == model::Role::scale;
    if (t.kind != Kind::parameter || (!scale && t.role != model::Role::shift)) continue;
    plain.resize(static_cast<size_t>(t.plain_size()));
    for (float& value : plain) {
      const float near_one = 1 + 0.2F * (random.uniform() - 0.5F);
      const bool negative = !scale && random.uniform() < negative_share;
      value = (scale ? 0.3F : (negative ? -1.0F : 1.0F)) * near_one;
    }
    from_plain(t, plain, weights);
  }
}

std::vector<train::NamedTensor> plain_parameters(const Arena& arena, std::span<const float> from,
                                                 const std::string& prefix) {
  std::vector<train::NamedTensor> tensors;
  for (const Tensor& t : arena.tensors()) {
    if (t.kind != Kind::parameter) continue;
    train::NamedTensor named{prefix + t.name, t.shape, {}};
    named.values.resize(static_cast<size_t>(t.plain_size()));
    to_plain(t, from, named.values);
    tensors.push_back(std::move(named));
  }
  return tensors;
}

train::NamedTensor random_input(const Shape& shape) {
  std::vector<int64_t> extents{kGrain, shape.channels};
  if (shape.height * shape.width > 1) extents.insert(extents.end(), {shape.height, shape.width});
  train::NamedTensor input{"input", extents, {}};
  input.values.resize(static_cast<size_t>(kGrain * shape.size()));
  Stream random(kSeed, Purpose::test);
  for (float& value : input.values) value = random.normal();
  return input;
}

void dump(const std::string& net, const std::string& path) {
  const model::Graph graph = without_dropout(small_net(net));
  CompileOptions options;
  options.grain = kGrain;
  const Program program(graph, options);
  const Arena& arena = program.arena();
  AlignedBuffer weights = AlignedBuffer::of_floats(arena.size());
  AlignedBuffer prepared = AlignedBuffer::of_floats(program.prepared_size());
  AlignedBuffer gradient = AlignedBuffer::of_floats(arena.size());
  initialise(arena, kSeed, weights.floats());
  spread_batch_norm(program, weights.floats());
  const Weights shared{weights.floats().data(), prepared.floats().data()};
  program.prepare(shared);

  const train::NamedTensor input = random_input(graph.input_shape());
  std::vector<int32_t> labels;
  train::NamedTensor label_values{"labels", {kGrain}, {}};
  for (int32_t i = 0; i < kGrain; ++i) {
    labels.push_back(static_cast<int32_t>(5 * i % graph.classes()));
    label_values.values.push_back(static_cast<float>(labels.back()));
  }
  GrainRun run;
  run.input = input.values.data();
  run.labels = labels.data();
  run.gradient_scale = 1.0F / kGrain;
  run.gradient = gradient.floats().data();
  const GrainResult result = program.make_lane(shared)->run(run);

  std::vector<train::NamedTensor> all = plain_parameters(arena, weights.floats(), "");
  for (auto& t : plain_parameters(arena, gradient.floats(), "grad.")) all.push_back(std::move(t));
  all.push_back({"loss", {1}, {static_cast<float>(result.loss / kGrain)}});
  all.push_back(label_values);
  all.push_back(input);
  std::vector<train::Tensor> views;
  views.reserve(all.size());
  for (const train::NamedTensor& t : all) views.push_back(view(t));
  train::write_safetensors(path, views, {{"graph", as_json(graph).dump()}});
}

}  // namespace
}  // namespace convoy::engine

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: tests_dump NET OUT.safetensors\n", stderr);
    return 2;
  }
  try {
    convoy::engine::dump(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tests_dump: %s\n", error.what());
    return 1;
  }
}
