#include "convoy/model/graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"

namespace convoy::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <typename... Parts>
auto refuses(Parts... parts) {
  return ThrowsMessage<InputError>(AllOf(HasSubstr(parts)...));
}

Shape after(Shape input, LayerKind kind) {
  Graph graph(input);
  return graph.layer(graph.add(kind, {graph.input()})).out;
}

TEST(Shape, IsPrintedAsAVectorWhenItIsOne) {
  EXPECT_EQ(to_string(Shape{64, 56, 48}), "64×56×48");
  EXPECT_EQ(to_string(Shape{1000, 1, 1}), "1000");
}

TEST(Graph, SlidesWindowsWithStridePadAndDilationPerDirection) {
  const Conv conv{.out = 8, .kernel = {3, 5}, .stride = {2, 1}, .pad = {1, 0}, .dilation = {2, 1}};
  // Vertical: (20 + 2 − 5) / 2 + 1, horizontal: 9 − 5 + 1.
  EXPECT_EQ(after({3, 20, 9}, conv), (Shape{8, 9, 5}));
}

TEST(Graph, RoundsPooledExtentsDownOrUp) {
  Pool pool{.kernel = {3, 3}, .stride = {2, 2}};
  EXPECT_EQ(after({4, 112, 7}, pool), (Shape{4, 55, 3}));
  pool.ceil = true;
  EXPECT_EQ(after({4, 112, 7}, pool), (Shape{4, 56, 3}));
}

TEST(Graph, DropsARoundedUpWindowThatWouldStartBeyondTheInput) {
  // Rounded up there would be 3 windows, the third starting at 4 − 1 = 3, past the 3 values.
  const Pool pool{.kernel = {2, 2}, .stride = {2, 2}, .pad = {1, 1}, .ceil = true};
  EXPECT_EQ(after({1, 3, 3}, pool), (Shape{1, 2, 2}));
}

TEST(Graph, KeepsOrReducesShapesAsEachLayerSays) {
  const Shape in{6, 4, 5};
  EXPECT_EQ(after(in, Linear{.out = 7}), (Shape{7, 1, 1}));
  EXPECT_EQ(after(in, BatchNorm{}), in);
  EXPECT_EQ(after(in, Activation{}), in);
  EXPECT_EQ(after(in, Lrn{}), in);
  EXPECT_EQ(after(in, Dropout{}), in);
  EXPECT_EQ(after(in, GlobalAveragePool{}), (Shape{6, 1, 1}));
  EXPECT_EQ(after(in, Flatten{}), (Shape{120, 1, 1}));
  EXPECT_EQ(after(in, MeanSquaredError{}), (Shape{1, 1, 1}));
}

TEST(Graph, NamesShapesAndRolesOfParameters) {
  Graph graph({6, 8, 8});
  const LayerId conv = graph.conv(graph.input(), {.out = 4, .kernel = {3, 2}, .groups = 2}, "c");
  const Layer& layer = graph.layer(conv);
  ASSERT_EQ(layer.parameters.size(), 2U);
  EXPECT_EQ(layer.parameters[0].name, "c.weight");
  EXPECT_EQ(layer.parameters[0].shape, (std::vector<int64_t>{4, 3, 3, 2}));
  EXPECT_EQ(layer.parameters[0].role, Role::weight);
  EXPECT_EQ(layer.parameters[0].fan_in, 18);
  EXPECT_EQ(layer.parameters[1].name, "c.bias");
  EXPECT_EQ(layer.parameters[1].shape, (std::vector<int64_t>{4}));
  EXPECT_EQ(layer.parameters[1].role, Role::bias);
  EXPECT_EQ(layer.parameters[1].fan_in, 18);
  const Layer& linear = graph.layer(graph.add(Linear{.out = 5, .bias = false}, {conv}));
  ASSERT_EQ(linear.parameters.size(), 1U);
  EXPECT_EQ(linear.parameters[0].shape, (std::vector<int64_t>{5, 4 * 6 * 7}));
  EXPECT_EQ(graph.parameter_count(), 72 + 4 + 5 * 168);
}

TEST(Graph, CountsMultiplicationsAndAdditions) {
  Graph graph({6, 8, 8});
  const LayerId conv =
      graph.conv(graph.input(), {.out = 4, .kernel = {3, 3}, .pad = {1, 1}, .groups = 2});
  const LayerId linear = graph.linear(graph.relu(conv), 10);
  EXPECT_EQ(graph.forward_flops(conv).value, 2.0 * 4 * 64 * 27);
  EXPECT_EQ(graph.forward_flops(linear).value, 2.0 * 256 * 10);
  EXPECT_EQ(graph.forward_flops().value, 2.0 * (4 * 64 * 27 + 256 * 10));
}

TEST(Graph, NumbersUnnamedLayersPerKindAndSkipsTakenNames) {
  Graph graph({1, 8, 8});
  LayerId x = graph.relu(graph.input(), "relu2");
  x = graph.relu(x);
  x = graph.relu(x);
  x = graph.linear(x, 3);
  EXPECT_EQ(graph.layer(2).name, "relu3");
  EXPECT_EQ(graph.layer(3).name, "relu4");
  EXPECT_EQ(graph.layer(x).name, "linear1");
}

TEST(Graph, FindsLayersByName) {
  Graph graph({1, 8, 8});
  const LayerId x = graph.relu(graph.input(), "a.b");
  EXPECT_EQ(graph.find("a.b"), x);
  EXPECT_EQ(graph.find("input"), graph.input());
  EXPECT_EQ(graph.find("a"), std::nullopt);
}

TEST(Graph, RefusesUnequalShapesNamingBoth) {
  Graph graph({3, 8, 8});
  const LayerId a = graph.conv(graph.input(), {.out = 64}, "conv2");
  const LayerId b = graph.conv(graph.input(), {.out = 128, .stride = {2, 2}}, "conv5");
  EXPECT_THAT(
      [&] {
        graph.add(Add{}, {a, b}, "add3");
      },
      refuses("layer 'add3': inputs have shapes 64×8×8 ('conv2') and 128×4×4 ('conv5'); "
              "add needs equal shapes"));
  EXPECT_THAT(
      [&] {
        graph.add(Concat{}, {a, b});
      },
      refuses("64×8×8 ('conv2') and 128×4×4 ('conv5')", "heights and widths"));
  EXPECT_THAT([&] { graph.add(Add{}, {a, a}); }, refuses("reads 'conv2' twice"));
  EXPECT_THAT([&] { graph.add(Add{}, {a}); }, refuses("add reads two layers or more, not 1"));
  EXPECT_THAT([&] { graph.add(Flatten{}, {a, b}); }, refuses("exactly one layer, not 2"));
}

TEST(Graph, IsUnchangedByWhatItRefuses) {
  Graph graph({3, 8, 8});
  EXPECT_THROW(graph.conv(graph.input(), {.out = 0}), InputError);
  EXPECT_EQ(graph.layers().size(), 1U);
  EXPECT_EQ(graph.layer(graph.conv(graph.input(), {.out = 2})).name, "conv1");
}

TEST(Graph, ConcatenatesChannels) {
  Graph graph({3, 8, 8});
  const LayerId a = graph.conv(graph.input(), {.out = 64});
  EXPECT_EQ(graph.layer(graph.add(Concat{}, {graph.input(), a})).out, (Shape{67, 8, 8}));
}

TEST(Graph, RefusesWindowsThatDoNotFit) {
  EXPECT_THAT(
      [] {
        after({3, 8, 4}, Conv{.out = 1, .kernel = {7, 7}, .pad = {1, 1}});
      },
      refuses("window of 7 (kernel 7×7)", "padded width of 6", "3×8×4", "pad 1×1"));
  EXPECT_THAT(
      [] {
        after({3, 8, 8}, Conv{.out = 1, .kernel = {5, 5}, .dilation = {2, 2}});
      },
      refuses("window of 9 (kernel 5×5, dilation 2×2)", "padded height of 8"));
  EXPECT_THAT(
      [] {
        after({3, 8, 8}, Pool{.kernel = {2, 2}, .pad = {2, 2}});
      },
      refuses("pad 2×2 must be smaller than kernel 2×2"));
}

TEST(Graph, RefusesGroupsThatDoNotDivideTheChannels) {
  EXPECT_THAT(
      [] {
        after({6, 8, 8}, Conv{.out = 9, .groups = 2});
      },
      refuses("groups is 2", "6 input channels", "9 output channels"));
  EXPECT_THAT([] { after({5, 8, 8}, Conv{.out = 8, .groups = 2}); }, refuses("groups is 2"));
}

TEST(Graph, RefusesSettingsOutsideTheirRange) {
  const Shape in{4, 8, 8};
  EXPECT_THAT([&] { after(in, Conv{.out = -1}); }, refuses("out is -1"));
  EXPECT_THAT([&] { after(in, Conv{.out = 1, .stride = {1, 0}}); }, refuses("stride is 0"));
  EXPECT_THAT([&] { after(in, Conv{.out = 1, .pad = {-1, 0}}); }, refuses("pad is -1"));
  EXPECT_THAT([&] { after(in, Conv{.out = 1, .groups = 0}); }, refuses("groups is 0"));
  EXPECT_THAT([&] { after(in, Dropout{.rate = 1}); }, refuses("rate is 1"));
  EXPECT_THAT([&] { after(in, Dropout{.rate = std::numeric_limits<float>::quiet_NaN()}); },
              refuses("rate is nan"));
  EXPECT_THAT([&] { after(in, Lrn{.size = 4}); }, refuses("size is 4", "odd"));
  EXPECT_THAT([&] { after(in, BatchNorm{.epsilon = 0}); }, refuses("epsilon is 0"));
  EXPECT_THAT(
      [&] {
        after({4, 1, 1}, SoftmaxCrossEntropy{.smoothing = 1});
      },
      refuses("smoothing is 1"));
}

TEST(Graph, RefusesNumbersThatWouldOverflow) {
  constexpr int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_THAT([] { Graph({huge, huge, 1}); }, refuses("more than 2147483647 values"));
  EXPECT_THAT([] { Graph({3, 0, 1}); }, refuses("3×0×1", "not positive"));
  EXPECT_THAT([] { after({1, 8, 8}, Conv{.out = huge}); }, refuses("out is"));
  EXPECT_THAT([] { after({1, 8, 8}, Conv{.out = 1, .kernel = {huge, 1}}); }, refuses("kernel is"));
  EXPECT_THAT([] { after({1, 8, 8}, Conv{.out = 1, .pad = {huge, 1}}); }, refuses("pad is"));
  EXPECT_THAT([] { after({1, 40'000, 40'000}, Linear{.out = 1'000'000}); }, refuses("2^40"));
}

TEST(Graph, RefusesNamesThatAreTakenOrMeanSomethingElse) {
  Graph graph({3, 8, 8});
  graph.relu(graph.input(), "a");
  EXPECT_THAT([&] { graph.relu(graph.input(), "a"); }, refuses("already is a layer", "relu"));
  EXPECT_THAT([&] { graph.relu(graph.input(), "a b"); }, refuses("letters, digits"));
  EXPECT_THAT([&] { graph.relu(graph.input(), "previous"); }, refuses("taken"));
}

TEST(Graph, RefusesInputsThatAreNotThere) {
  Graph graph({3, 1, 1});
  EXPECT_THAT([&] { graph.relu(4); }, refuses("layer number 4", "only 0 to 0"));
  EXPECT_THAT([&] { graph.relu(-1); }, refuses("layer number -1"));
  EXPECT_THAT([&] { graph.add(Input{}, {}); }, refuses("one input"));
  const LayerId loss = graph.softmax_cross_entropy(graph.input());
  EXPECT_THAT([&] { graph.relu(loss); }, refuses("'loss'", "is a loss"));
}

TEST(Graph, IsCompleteWithOneLossAtTheEndAndNothingUnused) {
  Graph graph({3, 8, 8}, "net");
  EXPECT_THAT([&] { graph.check_complete(); }, refuses("'net'", "must end with a loss", "'input'"));
  EXPECT_THAT([&] { graph.softmax_cross_entropy(graph.input()); }, refuses("3×8×8", "a vector"));
  const LayerId x = graph.linear(graph.input(), 10, "fc");
  const LayerId unused = graph.relu(x, "unused");
  graph.softmax_cross_entropy(x);
  EXPECT_EQ(graph.output(), x);
  EXPECT_EQ(graph.classes(), 10);
  EXPECT_EQ(graph.users(), (std::vector<int>{1, 2, 0, 0}));
  EXPECT_THAT([&] { graph.check_complete(); }, refuses("nothing reads layer 'unused'"));
  graph.add(MeanSquaredError{}, {unused}, "second");
  EXPECT_THAT([&] { graph.check_complete(); }, refuses("two losses, 'loss' and 'second'"));
}

TEST(Graph, IsDescribedLayerByLayerWithTotals) {
  Graph graph({3, 32, 32}, "net");
  const LayerId x = graph.conv(graph.input(), {.out = 64, .kernel = {3, 3}, .pad = {1, 1}});
  graph.softmax_cross_entropy(graph.linear(x, 10, "fc"));
  const std::string text = describe(graph);
  EXPECT_THAT(text, HasSubstr("64×32×32"));
  EXPECT_THAT(text, HasSubstr("655,370"));
  EXPECT_THAT(text, HasSubstr("657,162"));
  // 2 · 64 · 32 · 32 · 27 and 2 · 65536 · 10
  EXPECT_THAT(text, HasSubstr("3.539"));
  EXPECT_THAT(text, HasSubstr("4.850"));
}

}  // namespace
}  // namespace convoy::model
