#include "convoy/model/zoo.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"

namespace convoy::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Published counts, or the sum that gives them.
const std::map<std::string, int64_t> kParameters{
    // 784·512 + 512 + 512·512 + 512 + 512·10 + 10
    {"mlp", 669'706},
    {"lenet", 431'080},
    // Without projections (option A) 269,722; the two projections add 16·32 + 2·32 and
    // 32·64 + 2·64.
    {"resnet-20", 272'474},
    // One more block in each stage of width w ∈ {16, 32, 64} adds Σ 2·9·w² + 4·w = 97,216;
    // resnet-32 has two more than resnet-20, resnet-56 six.
    {"resnet-32", 272'474 + 2 * 97'216},
    {"resnet-56", 272'474 + 6 * 97'216},
    {"resnet-18", 11'689'512},
    {"resnet-50", 25'557'032},
    {"alexnet", 61'100'840},
    {"caffenet", 60'965'224},
    {"overfeat-fast", 145'920'872},
    {"vgg-a", 132'863'336},
    {"vgg-16", 138'357'544},
    // The variant with 3×3 in place of the 5×5 convolutions has 6,624,904; 5×5 adds 16 values per
    // pair of channels: 16 · (16·32 + 32·96 + 16·48 + 24·64 + 24·64 + 32·64 + 32·128 + 32·128 +
    // 48·128) = 16 · 23,808.
    {"googlenet-bn", 6'624'904 + 16 * 23'808},
    {"mobilenet-v1", 4'231'976},
    // 429·2048 + 2048 + 6·(2048·2048 + 2048) + 2048·9304 + 9304
    {"cd-dnn", 45'122'648},
};

TEST(Zoo, HasThePublishedNumbersOfParameters) {
  EXPECT_EQ(zoo().size(), kParameters.size());
  for (const ZooEntry& entry : zoo()) {
    EXPECT_EQ(build(entry.name).parameter_count(), kParameters.at(entry.name)) << entry.name;
  }
}

// Multiply-adds per image as published; ours counts both operations.
TEST(Zoo, HasThePublishedAmountsOfArithmetic) {
  const auto giga = [](const char* name) { return build(name).forward_flops().value / 2e9; };
  EXPECT_NEAR(giga("resnet-50"), 4.09, 0.01);
  EXPECT_NEAR(giga("resnet-18"), 1.81, 0.01);
  EXPECT_NEAR(giga("vgg-16"), 15.47, 0.01);
  EXPECT_NEAR(giga("mobilenet-v1"), 0.569, 0.001);
  EXPECT_NEAR(giga("alexnet"), 0.714, 0.001);
}

TEST(Zoo, MapsThePublishedInputsThroughThePublishedShapes) {
  const auto shape = [](const Graph& graph, const char* layer) {
    return graph.layer(graph.find(layer).value()).out;
  };
  EXPECT_EQ(shape(build("caffenet"), "pool5"), (Shape{256, 6, 6}));
  EXPECT_EQ(shape(build("overfeat-fast"), "pool5"), (Shape{1024, 6, 6}));
  EXPECT_EQ(shape(build("alexnet"), "pool5"), (Shape{256, 6, 6}));
  EXPECT_EQ(shape(build("vgg-a"), "pool5"), (Shape{512, 7, 7}));
  EXPECT_EQ(shape(build("googlenet-bn"), "pool4"), (Shape{832, 7, 7}));
  EXPECT_EQ(shape(build("resnet-20"), "layer3.2.add"), (Shape{64, 8, 8}));
  EXPECT_EQ(shape(build("lenet"), "pool2"), (Shape{50, 4, 4}));
}

TEST(Zoo, NamesResnetLayersAsCheckpointsOfOthersDo) {
  const Graph graph = build("resnet-50");
  for (const char* name : {"conv1", "bn1", "layer1.0.conv1", "layer1.0.downsample.0",
                           "layer1.0.downsample.1", "layer4.2.bn3", "fc"}) {
    EXPECT_TRUE(graph.find(name)) << name;
  }
  EXPECT_FALSE(graph.find("layer1.1.downsample.0"));
  const Layer& norm = graph.layer(*graph.find("layer1.0.bn1"));
  EXPECT_EQ(norm.parameters.at(0).name, "layer1.0.bn1.weight");
  EXPECT_EQ(norm.parameters.at(0).role, Role::scale);
  EXPECT_EQ(norm.parameters.at(1).name, "layer1.0.bn1.bias");
  EXPECT_EQ(norm.parameters.at(1).role, Role::shift);
}

TEST(Zoo, GivesNoBiasToConvolutionsThatABatchNormFollows) {
  for (const ZooEntry& entry : zoo()) {
    const Graph graph = build(entry.name);
    for (const Layer& layer : graph.layers()) {
      if (!std::holds_alternative<BatchNorm>(layer.kind)) continue;
      const Layer& before = graph.layer(layer.inputs.front());
      ASSERT_TRUE(std::holds_alternative<Conv>(before.kind)) << layer.name;
      EXPECT_FALSE(std::get<Conv>(before.kind).bias) << before.name;
    }
  }
}

TEST(Zoo, TakesOtherInputsAndClasses) {
  for (const ZooEntry& entry : zoo()) {
    const Graph graph = build(entry.name, {.input = Shape{3, 96, 96}, .classes = 7});
    EXPECT_EQ(graph.input_shape(), (Shape{3, 96, 96})) << entry.name;
    EXPECT_EQ(graph.classes(), 7) << entry.name;
    EXPECT_EQ(graph.name(), entry.name);
  }
  EXPECT_EQ(build("resnet-50", {.input = Shape{3, 64, 64}, .classes = 10}).classes(), 10);
}

TEST(Zoo, PassesSmoothingToTheLossAndHiddenSizesToTheMlp) {
  const Graph graph = build("mlp", {.hidden = {7, 5, 3}, .smoothing = 0.1F});
  EXPECT_EQ(std::get<SoftmaxCrossEntropy>(graph.layers().back().kind).smoothing, 0.1F);
  EXPECT_EQ(graph.parameter_count(), 784 * 7 + 7 + 7 * 5 + 5 + 5 * 3 + 3 + 3 * 10 + 10);
  EXPECT_THAT([] { build("lenet", {.hidden = {7}}); },
              ThrowsMessage<InputError>(HasSubstr("mlp only")));
}

TEST(Zoo, AnswersAnUnknownNameWithTheNearest) {
  EXPECT_THAT([] { build("resnet50"); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("'resnet50'"),
                                              HasSubstr("did you mean 'resnet-50'?"),
                                              HasSubstr("mobilenet-v1"))));
}

TEST(Zoo, RefusesAnInputThatIsTooSmallNamingTheLayer) {
  EXPECT_THAT(
      [] {
        build("alexnet", {.input = Shape{3, 16, 16}});
      },
      ThrowsMessage<InputError>(AllOf(HasSubstr("'alexnet'"), HasSubstr("3×16×16"),
                                      HasSubstr("3×224×224"), HasSubstr("layer 'pool2'"))));
  EXPECT_THAT([] { build("vgg-a", {.classes = 0}); },
              ThrowsMessage<InputError>(HasSubstr("classes is 0")));
}

}  // namespace
}  // namespace convoy::model
