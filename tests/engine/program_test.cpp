// What a compiled program promises besides its numbers: no conversions, the order of its
// instructions, what it takes of memory, and how its arena lies.

#include "convoy/engine/program.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/base/memory.hpp"
#include "convoy/base/random.hpp"
#include "convoy/engine/memory_plan.hpp"

#include "tests/engine/small_zoo.hpp"

namespace convoy::engine {
namespace {

using model::Graph;
using model::LayerId;

CompileOptions grain_of(int64_t grain) {
  CompileOptions options;
  options.grain = grain;
  return options;
}

class ZooProgram : public testing::TestWithParam<std::string> {
 protected:
  const Graph graph_ = small_net(GetParam());
  const Program program_{graph_, grain_of(4)};

  template <typename T>
  bool is(LayerId id) const {
    return std::holds_alternative<T>(graph_.layer(id).kind);
  }
};

TEST_P(ZooProgram, ConvertsNoLayouts) {
  for (const InstructionInfo& i : program_.instructions()) {
    EXPECT_NE(i.phase, Phase::reorder) << graph_.layer(i.layer).name << ": " << i.kernel;
  }
  EXPECT_EQ(program_.reorder_count(), 0);
}

TEST_P(ZooProgram, UsesNoReferenceKernels) {
  for (const InstructionInfo& i : program_.instructions()) {
    EXPECT_EQ(i.kernel.find("oneDNN ref"), std::string::npos)
        << graph_.layer(i.layer).name << ": " << i.kernel;
  }
}

TEST_P(ZooProgram, ComputesNoGradientOfItsInput) {
  for (const InstructionInfo& i : program_.instructions()) {
    if (!is<model::Conv>(i.layer) && !is<model::Linear>(i.layer)) continue;
    if (graph_.layer(i.layer).inputs[0] != graph_.input()) continue;
    EXPECT_NE(i.phase, Phase::backward_data) << graph_.layer(i.layer).name;
  }
}

TEST_P(ZooProgram, CompletesALayersGradientsBeforeItsInputsGradient) {
  std::map<LayerId, int> weights;
  std::map<LayerId, int> data;
  int number = 0;
  for (const InstructionInfo& i : program_.instructions()) {
    if (i.phase == Phase::backward_weights) weights[i.layer] = number;
    if (i.phase == Phase::backward_data) data[i.layer] = number;
    ++number;
  }
  for (LayerId id = 0; id < static_cast<LayerId>(graph_.layers().size()); ++id) {
    if (!is<model::Conv>(id) && !is<model::Linear>(id)) continue;
    ASSERT_TRUE(weights.contains(id)) << graph_.layer(id).name;
    if (data.contains(id)) {
      EXPECT_LT(weights[id], data[id]) << graph_.layer(id).name;
    }
  }
}

TEST_P(ZooProgram, CompletesTheArenaFrontToBackLastLayerFirst) {
  AlignedBuffer weights = AlignedBuffer::of_floats(program_.arena().size());
  AlignedBuffer prepared = AlignedBuffer::of_floats(program_.prepared_size());
  AlignedBuffer gradient = AlignedBuffer::of_floats(program_.arena().size());
  const AlignedBuffer input = AlignedBuffer::of_floats(4 * graph_.input_shape().size());
  const std::vector<int32_t> labels(4, 0);
  const Weights shared{weights.floats().data(), prepared.floats().data()};
  std::vector<std::pair<int64_t, int64_t>> spans;
  GrainRun run;
  run.input = input.floats().data();
  run.labels = labels.data();
  run.gradient = gradient.floats().data();
  run.on_layer = [&](int64_t begin, int64_t end) { spans.emplace_back(begin, end); };
  program_.make_lane(shared)->run(run);

  // Each tensor begins on a cache line, so between two spans less than one may be left out.
  constexpr int64_t kFloatsPerLine = 16;
  int64_t end_before = 0;
  for (const auto& [begin, end] : spans) {
    EXPECT_GE(begin, end_before);
    EXPECT_LT(begin - end_before, kFloatsPerLine);
    EXPECT_LE(end - begin, program_.largest_layer());
    end_before = end;
  }
  EXPECT_LT(program_.arena().size() - end_before, kFloatsPerLine);
}

TEST_P(ZooProgram, IsWithinTenPercentOfTheLeastMemory) {
  const Bytes total = program_.lane_memory();
  const Bytes least = program_.least_lane_memory();
  EXPECT_GE(total, least);
  EXPECT_LE(static_cast<double>(total.value), 1.1 * static_cast<double>(least.value));
}

std::vector<std::string> zoo_names() {
  std::vector<std::string> names;
  for (const model::ZooEntry& entry : model::zoo()) names.push_back(entry.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(, ZooProgram, testing::ValuesIn(zoo_names()), [](const auto& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(ProgramMemory, IsSavedByRecomputingBatchNorm) {
  const Graph graph = small_net("resnet-50");
  CompileOptions options = grain_of(4);
  const Bytes recomputed = Program(graph, options).lane_memory();
  options.recompute_norm = false;
  const Bytes kept = Program(graph, options).lane_memory();
  EXPECT_LT(static_cast<double>(recomputed.value), 0.86 * static_cast<double>(kept.value));
}

// ---- The memory plan ---------------------------------------------------------------------------

std::vector<Lifetime> random_lifetimes(uint64_t seed) {
  Stream random(seed, Purpose::test);
  std::vector<Lifetime> buffers(1 + random.below(60));
  for (Lifetime& b : buffers) {
    b.size = Bytes{1 + random.below(5000)};
    b.first = static_cast<int>(random.below(40));
    b.last = b.first + static_cast<int>(random.below(12));
  }
  return buffers;
}

TEST(MemoryPlan, GivesBuffersThatLiveTogetherDifferentBytes) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<Lifetime> buffers = random_lifetimes(seed);
    const MemoryPlan plan = plan_memory(buffers);
    ASSERT_EQ(plan.offsets.size(), buffers.size());
    for (size_t i = 0; i < buffers.size(); ++i) {
      ASSERT_GE(plan.offsets[i], 0);
      ASSERT_EQ(plan.offsets[i] % 64, 0);
      ASSERT_LE(plan.offsets[i] + buffers[i].size.value, plan.total.value);
      for (size_t j = 0; j < i; ++j) {
        const bool together =
            buffers[i].first <= buffers[j].last && buffers[j].first <= buffers[i].last;
        const bool apart = plan.offsets[i] + buffers[i].size.value <= plan.offsets[j] ||
                           plan.offsets[j] + buffers[j].size.value <= plan.offsets[i];
        ASSERT_TRUE(!together || apart) << "buffers " << j << " and " << i << ", seed " << seed;
      }
    }
    ASSERT_GE(plan.total, lower_bound(buffers));
  }
}

TEST(MemoryPlan, OfBuffersThatFollowEachOtherIsAsLargeAsTheLargest) {
  const std::vector<Lifetime> buffers{{{640}, 0, 1}, {{1280}, 2, 3}, {{64}, 4, 4}};
  EXPECT_EQ(plan_memory(buffers).total, Bytes{1280});
  EXPECT_EQ(lower_bound(buffers), Bytes{1280});
}

// ---- The arena ---------------------------------------------------------------------------------

Tensor tensor_of(Layout layout, std::vector<int64_t> shape, int64_t groups = 1) {
  Tensor t;
  t.name = "tested";
  t.layout = layout;
  t.shape = std::move(shape);
  t.groups = groups;
  return t;
}

std::vector<Tensor> one_of_each_layout() {
  std::vector<Tensor> tensors{tensor_of(Layout::channels, {13}),
                              tensor_of(Layout::conv, {13, 11, 3, 2}),
                              tensor_of(Layout::conv, {32, 8, 3, 3}, 2),
                              tensor_of(Layout::conv_input, {13, 3, 5, 5}),
                              tensor_of(Layout::depthwise, {13, 1, 3, 3}, 13),
                              tensor_of(Layout::conv_plain, {8, 3, 3, 3}, 4),
                              tensor_of(Layout::linear, {13, 5 * 3 * 2}),
                              tensor_of(Layout::linear, {13, 30})};
  tensors[6].source = {5, 3, 2};
  tensors[7].source = {30, 1, 1};
  tensors[7].source_blocked = false;
  return tensors;
}

TEST(Arena, KeepsEveryLayoutsValuesAndZerosInThePadding) {
  Arena arena;
  for (const Tensor& t : one_of_each_layout()) arena.add(t);
  EXPECT_EQ(arena.size() % 16, 0);
  for (const Tensor& t : arena.tensors()) {
    SCOPED_TRACE(static_cast<int>(t.layout));
    std::vector<float> stored(static_cast<size_t>(arena.size()), -1.0F);
    std::vector<float> plain(static_cast<size_t>(t.plain_size()));
    for (size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<float>(i + 1);
    from_plain(t, plain, stored);
    std::vector<float> back(plain.size());
    to_plain(t, stored, back);
    EXPECT_EQ(back, plain);

    // Inside the tensor each value once, and zeros; outside nothing was touched.
    std::vector<float> inside(stored.begin() + t.offset, stored.begin() + t.offset + t.stored);
    std::sort(inside.begin(), inside.end());
    const auto padding = static_cast<size_t>(t.stored - t.plain_size());
    EXPECT_TRUE(std::all_of(inside.begin(), inside.begin() + static_cast<int64_t>(padding),
                            [](float v) { return v == 0; }));
    EXPECT_TRUE(
        std::equal(plain.begin(), plain.end(), inside.begin() + static_cast<int64_t>(padding)));
    EXPECT_EQ(std::count(stored.begin(), stored.end(), -1.0F), arena.size() - t.stored);
  }
}

TEST(Arena, LaysConvolutionWeightsOutInBlocksOfEightByEight) {
  Arena arena;
  arena.add(tensor_of(Layout::conv, {16, 16, 1, 1}));
  std::vector<float> plain(256, 0.0F);
  plain[16 * 9 + 3] = 1;  // output 9, input 3: block (1, 0), row 3, column 1
  std::vector<float> stored(256);
  from_plain(arena.tensors()[0], plain, stored);
  EXPECT_EQ(stored[2 * 64 + 3 * 8 + 1], 1);
}

std::map<std::string, std::vector<float>> initial_values(const Graph& graph, uint64_t seed) {
  const Program program(graph, grain_of(2));
  std::vector<float> values(static_cast<size_t>(program.arena().size()));
  initialise(program.arena(), seed, values);
  std::map<std::string, std::vector<float>> plain;
  for (const Tensor& t : program.arena().tensors()) {
    plain[t.name].resize(static_cast<size_t>(t.plain_size()));
    to_plain(t, values, plain[t.name]);
  }
  return plain;
}

TEST(InitialValues, DependOnTheSeedAndTheNamesOnly) {
  Graph small({3, 8, 8});
  small.linear(small.conv(small.input(), {.out = 12, .kernel = {3, 3}}, "a"), 10, "last");
  small.softmax_cross_entropy(2);
  // The same "a", now behind another layer and in another layout, and with a sibling.
  Graph large({8, 8, 8});
  LayerId x = large.conv(large.input(), {.out = 3}, "before");
  x = large.conv(x, {.out = 12, .kernel = {3, 3}}, "a");
  x = large.batch_norm(large.conv(x, {.out = 12, .kernel = {3, 3}}, "b"), "norm");
  large.softmax_cross_entropy(large.linear(x, 10, "last"));

  const auto one = initial_values(small, 7);
  const auto other = initial_values(large, 7);
  EXPECT_EQ(one.at("a.weight"), other.at("a.weight"));
  EXPECT_NE(other.at("a.weight"), other.at("b.weight"));
  EXPECT_NE(one.at("a.weight"), initial_values(small, 8).at("a.weight"));
  EXPECT_EQ(one, initial_values(small, 7));
  EXPECT_EQ(other.at("norm.weight"), std::vector<float>(12, 1.0F));
  EXPECT_EQ(other.at("norm.bias"), std::vector<float>(12, 0.0F));
  EXPECT_EQ(other.at("norm.running_mean"), std::vector<float>(12, 0.0F));
  EXPECT_EQ(other.at("norm.running_var"), std::vector<float>(12, 1.0F));
}

TEST(InitialValues, HaveTheVarianceThatKeepsActivationsAlive) {
  Graph graph({64, 8, 8});
  graph.softmax_cross_entropy(
      graph.linear(graph.conv(graph.input(), {.out = 64, .kernel = {3, 3}}, "a"), 10));
  const auto values = initial_values(graph, 7).at("a.weight");
  double square = 0;
  for (const float v : values) square += static_cast<double>(v) * v;
  const double expected = 2.0 / (64 * 9);
  EXPECT_NEAR(square / static_cast<double>(values.size()), expected, 0.02 * expected);
}

}  // namespace
}  // namespace convoy::engine
