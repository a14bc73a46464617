#include "convoy/model/yaml.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/model/layer_table.hpp"

namespace convoy::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Graph read(const std::string& text, const ZooOptions& defaults = {}) {
  return from_yaml(YAML::Load(text), "job.yaml", defaults);
}

/// A graph of these entries, then a linear layer and a loss.
Graph read_layers(const std::string& entries) {
  return read("input: [4, 8, 8]\nlayers:\n" + entries +
              "\n- linear: 10\n- softmax-cross-entropy\n");
}

template <typename... Parts>
auto refuses(Parts... parts) {
  return ThrowsMessage<InputError>(AllOf(HasSubstr(parts)...));
}

Layer layer(const Graph& graph, const std::string& name) {
  const auto id = graph.find(name);
  if (!id) throw std::runtime_error("no layer " + name + " in\n" + describe(graph));
  return graph.layer(*id);
}

std::vector<std::string> inputs(const Graph& graph, const std::string& name) {
  std::vector<std::string> names;
  for (const LayerId id : layer(graph, name).inputs) names.push_back(graph.layer(id).name);
  return names;
}

using Names = std::vector<std::string>;

void expect_same(const Graph& a, const Graph& b) {
  EXPECT_EQ(a.name(), b.name());
  ASSERT_EQ(a.layers().size(), b.layers().size());
  for (size_t i = 0; i < a.layers().size(); ++i) {
    EXPECT_EQ(a.layers()[i].name, b.layers()[i].name);
    EXPECT_EQ(a.layers()[i].kind, b.layers()[i].kind) << a.layers()[i].name;
    EXPECT_EQ(a.layers()[i].inputs, b.layers()[i].inputs) << a.layers()[i].name;
    EXPECT_EQ(a.layers()[i].out, b.layers()[i].out) << a.layers()[i].name;
  }
}

TEST(Yaml, ReadsEveryZooNetBackFromItsYaml) {
  for (const ZooEntry& entry : zoo()) {
    const Graph graph = build(entry.name, {.smoothing = 0.1F});
    expect_same(read(to_yaml(graph)), graph);
  }
}

TEST(Yaml, ReadsEveryLayerBackWithUnusualSettings) {
  Graph graph({4, 9, 9}, "odd: name");
  LayerId x = graph.conv(graph.input(),
                         {.out = 6,
                          .kernel = {3, 1},
                          .stride = {1, 2},
                          .pad = {1, 0},
                          .dilation = {1, 2},
                          .groups = 2,
                          .bias = false},
                         "1");
  x = graph.add(BatchNorm{.epsilon = 1e-3F, .momentum = 0.3F}, {x}, "null");
  for (const auto kind :
       {ActivationKind::relu, ActivationKind::leaky_relu, ActivationKind::relu6,
        ActivationKind::elu, ActivationKind::sigmoid, ActivationKind::tanh, ActivationKind::gelu}) {
    const bool has_alpha = kind == ActivationKind::leaky_relu || kind == ActivationKind::elu;
    x = graph.add(Activation{.kind = kind, .alpha = has_alpha ? 0.3F : 0.01F}, {x});
  }
  const LayerId pooled = graph.add(Pool{.kind = PoolKind::average,
                                        .kernel = {3, 3},
                                        .stride = {1, 1},
                                        .pad = {1, 1},
                                        .ceil = true,
                                        .count_padding = false},
                                   {x}, "-");
  x = graph.add(Add{}, {pooled, x});
  x = graph.add(Concat{}, {x, pooled});
  x = graph.add(Lrn{.size = 3, .alpha = 0.1F, .beta = 0.5F, .k = 2}, {x});
  x = graph.add(Dropout{.rate = 0.25F}, {x});
  x = graph.add(Linear{.out = 5, .bias = false}, {graph.add(Flatten{}, {x})});
  graph.add(MeanSquaredError{}, {x});
  expect_same(read(to_yaml(graph)), graph);
}

TEST(Yaml, BuildsZooNetsWithOptionsAndDefaults) {
  expect_same(read("resnet-20"), build("resnet-20"));
  expect_same(read("{name: resnet-20, classes: 100, input: [3, 48, 48], smoothing: 0.2}"),
              build("resnet-20", {.input = Shape{3, 48, 48}, .classes = 100, .smoothing = 0.2F}));
  expect_same(read("{name: mlp, hidden: [7, 5]}"), build("mlp", {.hidden = {7, 5}}));
  const ZooOptions data{.input = Shape{1, 40, 40}, .classes = 3};
  expect_same(read("lenet", data), build("lenet", data));
  EXPECT_EQ(read("{name: lenet, classes: 4}", data).classes(), 4);
}

TEST(Yaml, ReadsAllFormsOfALayer) {
  const Graph graph = read_layers(R"(
- conv: {out: 8, kernel: [3, 1], pad: [1, 0], bias: false}
- relu
- batch-norm: {}
- max-pool: 3
- {dropout: 0.2, name: drop}
- {elu: {alpha: 0.7}, from: relu1, name: side}
- {global-average-pool: , name: a}
- {flatten: {}, from: drop, name: b}
- {concat: {}, from: [a, b]})");
  EXPECT_EQ(layer(graph, "conv1").kind,
            LayerKind(Conv{.out = 8, .kernel = {3, 1}, .pad = {1, 0}, .bias = false}));
  EXPECT_EQ(layer(graph, "max-pool1").kind, LayerKind(Pool{.kernel = {3, 3}}));
  EXPECT_EQ(layer(graph, "drop").kind, LayerKind(Dropout{.rate = 0.2F}));
  EXPECT_EQ(inputs(graph, "side"), Names{"relu1"});
  EXPECT_EQ(inputs(graph, "concat1"), (Names{"a", "b"}));
  EXPECT_EQ(std::get<Linear>(layer(graph, "linear1").kind).out, 10);
}

TEST(Yaml, RepeatsBlocksWithPrefixesReadingTheirStart) {
  const Graph graph = read_layers(R"(
- repeat: 3
  name: stage
  layers:
  - {conv: {out: 4, kernel: 3, pad: 1, bias: false}, name: a, from: start}
  - batch-norm
  - {add: {}, from: [previous, start]}
  - relu)");
  EXPECT_EQ(inputs(graph, "stage.0.a"), Names{"input"});
  EXPECT_EQ(inputs(graph, "stage.1.a"), Names{"stage.0.relu1"});
  EXPECT_EQ(inputs(graph, "stage.2.add1"), (Names{"stage.2.batch-norm1", "stage.1.relu1"}));
  EXPECT_EQ(inputs(graph, "linear1"), Names{"stage.2.relu1"});
}

TEST(Yaml, ResolvesNamesInTheInnermostBlockFirst) {
  const Graph graph = read_layers(R"(
- {relu: , name: a}
- {relu: , name: outer}
- repeat: 2
  name: s
  layers:
  - {relu: , name: a}
  - repeat: 2
    name: t
    from: a
    layers:
    - {tanh: , name: b, from: start}
    - {add: {}, from: [b, a], name: inner}
    - {add: {}, from: [previous, outer]}
- repeat: 1
  layers: [gelu])");
  EXPECT_EQ(inputs(graph, "s.1.t.0.b"), Names{"s.1.a"});
  EXPECT_EQ(inputs(graph, "s.1.t.1.b"), Names{"s.1.t.0.add1"});
  EXPECT_EQ(inputs(graph, "s.1.t.1.inner"), (Names{"s.1.t.1.b", "s.1.a"}));
  EXPECT_EQ(inputs(graph, "s.0.t.1.add1"), (Names{"s.0.t.1.inner", "outer"}));
  EXPECT_EQ(inputs(graph, "block1.0.gelu1"), Names{"s.1.t.1.add1"});
}

TEST(Yaml, FillsInWhatTheGraphLeavesOutFromTheDefaults) {
  const Graph graph = read("layers: [linear: 3, softmax-cross-entropy]",
                           {.input = Shape{2, 5, 5}, .smoothing = 0.1F});
  EXPECT_EQ(graph.input_shape(), (Shape{2, 5, 5}));
  EXPECT_EQ(graph.layers().back().kind, LayerKind(SoftmaxCrossEntropy{.smoothing = 0.1F}));
  EXPECT_EQ(read("{input: 9, layers: [linear: 3, mean-squared-error]}").input_shape(),
            (Shape{9, 1, 1}));
  EXPECT_THAT([] { read("layers: [linear: 3, mean-squared-error]"); },
              refuses("job.yaml:1", "input: [channels, height, width]"));
}

TEST(Yaml, RefusesUnknownWordsWithLineNearestAndAccepted) {
  EXPECT_THAT([] { read("\nresnet-21"); }, refuses("job.yaml:2: ", "'resnet-20'"));
  EXPECT_THAT([] { read_layers("- rellu"); },
              refuses("job.yaml:3: ", "'rellu'", "did you mean 'relu'?", "batch-norm"));
  EXPECT_THAT([] { read_layers("- cnov: {out: 3}"); }, refuses(":3: ", "did you mean 'conv'?"));
  EXPECT_THAT([] { read_layers("- conv: {out: 3,\n    kernal: 3}"); },
              refuses(":4: ", "conv has no key 'kernal', did you mean 'kernel'?", "dilation"));
  EXPECT_THAT([] { read_layers("- relu\n- {relu: , from: rely1}"); },
              refuses(":4: ", "'rely1'", "did you mean 'relu1'?"));
  EXPECT_THAT([] { read("{name: lenet, clases: 3}"); }, refuses("did you mean 'classes'?"));
  EXPECT_THAT([] { read_layers("- {repeat: 2, layer: [relu]}"); }, refuses("'layers'?"));
}

TEST(Yaml, RefusesValuesOfTheWrongKind) {
  EXPECT_THAT([] { read_layers("- conv: {out: many}"); },
              refuses(":3: conv.out must be an integer, not 'many'"));
  EXPECT_THAT([] { read_layers("- linear: [3]"); }, refuses("linear.out", "a list"));
  EXPECT_THAT([] { read_layers("- linear: 3.5"); }, refuses("linear.out", "'3.5'"));
  EXPECT_THAT([] { read_layers("- conv: {out: 3, kernel: [1, 2, 3]}"); },
              refuses("conv.kernel", "[vertical, horizontal]", "3"));
  EXPECT_THAT([] { read_layers("- conv: {out: 3, bias: perhaps}"); }, refuses("true or false"));
  EXPECT_THAT([] { read_layers("- dropout: much"); }, refuses("dropout.rate", "a number"));
  EXPECT_THAT([] { read_layers("- conv: 3"); }, refuses("conv takes no single value", "kernel"));
  EXPECT_THAT([] { read_layers("- relu: 3"); }, refuses("relu takes no single value"));
  EXPECT_THAT([] { read_layers("- relu: {alpha: 3}"); }, refuses("relu has no keys"));
  EXPECT_THAT([] { read_layers("- linear"); }, refuses(":3: linear needs the key 'out'"));
  EXPECT_THAT([] { read_layers("- conv: {kernel: 3}"); }, refuses("conv needs the key 'out'"));
  EXPECT_THAT([] { read_layers("- [relu]"); }, refuses(":3: ", "must name a layer"));
  EXPECT_THAT([] { read_layers("- {relu: , tanh: }"); }, refuses("'relu' and 'tanh'"));
  EXPECT_THAT([] { read_layers("- {relu: , relu: }"); }, refuses("'relu' twice"));
  EXPECT_THAT([] { read_layers("- {relu: , name: start}"); }, refuses("named 'start'"));
  EXPECT_THAT([] { read("[relu]"); }, refuses("zoo name or a map"));
  EXPECT_THAT([] { read(""); }, refuses("model is missing"));
  EXPECT_THAT([] { read("{classes: 3}"); }, refuses("name", "layers"));
  EXPECT_THAT([] { read("{input: [1, 2], layers: [relu]}"); }, refuses("input must be"));
  EXPECT_THAT([] { read("{input: [1, 2, 2], layers: []}"); }, refuses("at least one layer"));
}

TEST(Yaml, PutsTheLineBeforeWhatTheGraphRefuses) {
  EXPECT_THAT([] { read_layers("- relu\n- conv: {out: 2, kernel: 9}"); },
              refuses("job.yaml:4: layer 'conv1'", "window of 9"));
  EXPECT_THAT([] { read("input: [4, 8, 8]\nlayers:\n- linear: 4\n"); },
              refuses("job.yaml:3: ", "must end with a loss"));
  EXPECT_THAT([] { read("{name: alexnet, input: [3, 9, 9]}"); },
              refuses("job.yaml:1: model 'alexnet'"));
}

TEST(Yaml, LimitsHowMuchAGraphMayGrow) {
  EXPECT_THAT([] { read_layers("- {repeat: 10001, layers: [relu]}"); }, refuses("10000"));
  EXPECT_THAT([] { read_layers("- {repeat: 0, layers: [relu]}"); }, refuses("repeat is 0"));
  EXPECT_THAT([] { read_layers("- {repeat: 200, layers: [{repeat: 200, layers: [relu]}]}"); },
              refuses("more than 10000 layers"));
  EXPECT_THAT([] { read("{input: 3, layers: &x [{repeat: 1, layers: *x}]}"); },
              refuses("nested more than 32 deep"));
}

TEST(LayerTable, HoldsEveryKindUnderItsOwnName) {
  // One variant alternative is the input, which is not written as a layer; activations are seven
  // kinds in one alternative, pools two.
  EXPECT_EQ(layer_types().size(), std::variant_size_v<LayerKind> - 1 + 6 + 1);
  for (const LayerType& type : layer_types()) EXPECT_EQ(kind_name(type.prototype), type.name);
}

std::string manual() {
  const auto bytes = read_file(CONVOY_SOURCE_DIR "/docs/model.md");
  return {bytes.begin(), bytes.end()};
}

TEST(Manual, ShowsTheTableOfLayers) {
  const std::string text = manual();
  const std::string begin = "<!-- layer reference: generated -->\n\n";
  const size_t from = text.find(begin);
  const size_t to = text.find("<!-- end of layer reference -->\n");
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  EXPECT_EQ(text.substr(from + begin.size(), to - from - begin.size()), layer_reference())
      << "put layer_reference() between the markers of docs/model.md";
}

TEST(Manual, ListsTheZooWithItsParameterCounts) {
  const std::string text = manual();
  for (const ZooEntry& entry : zoo()) {
    const std::string total = describe(build(entry.name));
    const size_t row = total.rfind("total");
    const std::string count = total.substr(total.find_first_of("0123456789", row));
    EXPECT_THAT(
        text, HasSubstr(fmt::format("| {} | {} |", entry.name, count.substr(0, count.find(' ')))));
  }
}

TEST(Manual, ShowsModelsThatCanBeBuilt) {
  const std::string text = manual();
  const std::string fence = "```yaml\n";
  int models = 0;
  for (size_t at = text.find(fence); at != std::string::npos; at = text.find(fence, at)) {
    at += fence.size();
    const YAML::Node job = YAML::Load(text.substr(at, text.find("```", at) - at));
    EXPECT_NO_THROW(from_yaml(job["model"], "docs/model.md")) << "at character " << at;
    ++models;
  }
  EXPECT_GE(models, 4);
}

}  // namespace
}  // namespace convoy::model
