// Every kind of layer and every fusion, against finite differences in double precision.
//
// One table of networks (gradient_cases.hpp) drives all of it. Most start with a learned layer
// ("stem") and end with one, so that the gradient a layer hands to its input shows up in the stem's
// weights. For each parameter tensor w and a random direction d the slope (L(w + εd) − L(w − εd)) /
// 2ε of a plain double-precision network must equal the engine's gradient times d. In double
// precision ε can be so small (1e-7) that no ReLU changes sides.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "convoy/base/memory.hpp"
#include "convoy/base/random.hpp"
#include "convoy/engine/program.hpp"

#include "tests/engine/gradient_cases.hpp"
#include "tests/engine/reference_net.hpp"

namespace convoy::engine {
namespace {

using gradient_cases::Case;
using model::Graph;

constexpr int64_t kGrain = 4;
constexpr int64_t kFirstSample = 8;
constexpr int64_t kStep = 3;
constexpr uint64_t kSampleSeed = 13;

// ---- The two networks --------------------------------------------------------------------------

/// Values that leave no gradient zero by accident: initialise() leaves biases at 0.
NamedValues random_values(const Graph& graph) {
  NamedValues values;
  Stream random(11, Purpose::test);
  for (const model::Layer& layer : graph.layers()) {
    for (const model::Parameter& p : layer.parameters) {
      Doubles& v = values[p.name];
      v.resize(static_cast<size_t>(p.size()));
      const bool weight = p.role == model::Role::weight;
      const double scale = weight ? std::sqrt(2.0 / static_cast<double>(p.fan_in)) : 0.3;
      const double mean = p.role == model::Role::scale ? 1 : 0;
      for (double& x : v) x = static_cast<float>(mean + scale * random.normal());
    }
    if (!std::holds_alternative<model::BatchNorm>(layer.kind)) continue;
    const auto channels = static_cast<size_t>(layer.out.channels);
    for (size_t i = 0; i < channels; ++i) {
      values[layer.name + ".running_mean"].push_back(0.2F * random.normal());
      values[layer.name + ".running_var"].push_back(0.5F + random.uniform());
    }
  }
  return values;
}

struct Samples {
  std::vector<float> input;
  std::vector<int32_t> labels;
};

Samples random_samples(const Graph& graph, uint64_t seed, float scale = 1) {
  Samples samples;
  Stream random(seed, Purpose::test);
  samples.input.resize(static_cast<size_t>(kGrain * graph.input_shape().size()));
  for (float& v : samples.input) v = scale * random.normal();
  for (int32_t i = 0; i < kGrain; ++i) {
    samples.labels.push_back(static_cast<int32_t>(3 * i % graph.classes()));
  }
  return samples;
}

/// A compiled program with its arenas and one lane.
class EngineNet {
 public:
  EngineNet(const Graph& graph, const CompileOptions& options, const NamedValues& values)
      : program(graph, options),
        weights_(AlignedBuffer::of_floats(program.arena().size())),
        prepared_(AlignedBuffer::of_floats(program.prepared_size())),
        gradient_(AlignedBuffer::of_floats(program.arena().size())) {
    for (const Tensor& t : program.arena().tensors()) {
      const Doubles& v = values.at(t.name);
      from_plain(t, std::vector<float>(v.begin(), v.end()), weights_.floats());
    }
    const Weights shared{weights_.floats().data(), prepared_.floats().data()};
    program.prepare(shared);
    lane = program.make_lane(shared);
  }

  GrainRun run_of(const Samples& samples) {
    GrainRun run;
    run.input = samples.input.data();
    run.labels = samples.labels.data();
    run.step = kStep;
    run.first_sample = kFirstSample;
    run.gradient_scale = 1.0F / kGrain;
    run.gradient = gradient_.floats().data();
    return run;
  }

  std::vector<float> plain_gradient(const Tensor& t) const {
    std::vector<float> plain(static_cast<size_t>(t.plain_size()));
    to_plain(t, gradient_.floats(), plain);
    return plain;
  }

  std::span<float> gradient() { return gradient_.floats(); }

  Program program;
  std::unique_ptr<Lane> lane;

 private:
  AlignedBuffer weights_;
  AlignedBuffer prepared_;
  AlignedBuffer gradient_;
};

/// What the double-precision network says about a case, computed once for all engines.
struct Truth {
  struct Slope {
    Doubles direction;
    double value = 0;
  };
  double loss = 0;
  std::map<std::string, Slope> slopes;
  NamedValues statistics;  ///< what the running ones take in
};

Truth find_truth(const Graph& graph, const NamedValues& values, const Samples& samples) {
  constexpr double kEpsilon = 1e-7;
  ReferenceNet net(graph, kGrain);
  net.step = kStep;
  net.first_sample = kFirstSample;
  const Doubles input(samples.input.begin(), samples.input.end());
  Truth truth;
  truth.loss = net.loss(values, input, samples.labels);
  for (const model::Layer& layer : graph.layers()) {
    if (!std::holds_alternative<model::BatchNorm>(layer.kind)) continue;
    truth.statistics[layer.name + ".running_mean"] = net.means(layer.name);
    truth.statistics[layer.name + ".running_var"] = net.unbiased_variances(layer.name);
  }
  Stream random(12, Purpose::test);
  for (const auto& [name, value] : values) {
    if (truth.statistics.contains(name)) continue;
    Truth::Slope& slope = truth.slopes[name];
    NamedValues up = values;
    NamedValues down = values;
    for (size_t i = 0; i < value.size(); ++i) {
      slope.direction.push_back(random.normal());
      up[name][i] += kEpsilon * slope.direction[i];
      down[name][i] -= kEpsilon * slope.direction[i];
    }
    slope.value = (net.loss(up, input, samples.labels) - net.loss(down, input, samples.labels)) /
                  (2 * kEpsilon);
  }
  return truth;
}

double norm(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

void expect_gradients(const EngineNet& net, const Truth& truth) {
  double largest = 0;
  for (const Tensor& t : net.program.arena().tensors()) {
    if (t.kind == Kind::parameter) largest = std::max(largest, norm(net.plain_gradient(t)));
  }
  EXPECT_GT(largest, 1e-3) << "the case says nothing";
  for (const Tensor& t : net.program.arena().tensors()) {
    const std::vector<float> ours = net.plain_gradient(t);
    if (t.kind != Kind::parameter) {
      const Doubles& expected = truth.statistics.at(t.name);
      for (size_t i = 0; i < ours.size(); ++i) {
        ASSERT_NEAR(ours[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << t.name;
      }
      continue;
    }
    const Truth::Slope& slope = truth.slopes.at(t.name);
    double along = 0;
    for (size_t i = 0; i < ours.size(); ++i) along += ours[i] * slope.direction[i];
    // A gradient that is zero in exact arithmetic (a bias before batch norm) is rounding noise.
    EXPECT_NEAR(along, slope.value, 2e-4 * norm(ours) + 2e-6 * largest) << t.name;
  }
}

/// Tensors are padded with zeros; a gradient there would move the weights off zero.
void expect_zero_padding(EngineNet& net) {
  for (const Tensor& t : net.program.arena().tensors()) {
    std::vector<float> again(net.gradient().begin(), net.gradient().end());
    from_plain(t, net.plain_gradient(t), again);
    ASSERT_TRUE(std::equal(again.begin(), again.end(), net.gradient().begin())) << t.name;
  }
}

/// The same grain once more, each layer's gradients taken away as soon as they are complete.
void expect_layer_by_layer(EngineNet& net, const Samples& samples) {
  std::vector<float> collected(net.gradient().size(), 0.0F);
  AlignedBuffer scratch = AlignedBuffer::of_floats(net.program.largest_layer());
  std::fill(scratch.floats().begin(), scratch.floats().end(), -7.0F);
  GrainRun run = net.run_of(samples);
  run.gradient = scratch.floats().data();
  run.layer_by_layer = true;
  run.on_layer = [&](int64_t begin, int64_t end) {
    std::copy_n(scratch.floats().data(), end - begin, collected.data() + begin);
  };
  net.lane->run(run);
  for (const Tensor& t : net.program.arena().tensors()) {
    const auto offset = t.offset;
    ASSERT_TRUE(std::equal(collected.begin() + offset, collected.begin() + offset + t.stored,
                           net.gradient().begin() + offset))
        << t.name;
  }
}

void expect_engine_agrees(const Case& c, const Graph& graph, const Truth& truth,
                          const Kernels& kernels, int threads,
                          Algorithm algorithm = Algorithm::direct) {
  SCOPED_TRACE(fmt::format("{} kernels {}, {} thread(s) per lane", to_string(algorithm),
                           kernels.isa, threads));
  CompileOptions options;
  options.grain = kGrain;
  options.threads_per_lane = threads;
  options.recompute_norm = c.recompute_norm;
  options.kernels = &kernels;
  options.algorithms = wherever_possible(graph, kGrain, kernels, algorithm);
  EngineNet net(graph, options, random_values(graph));
  const Samples samples = random_samples(graph, kSampleSeed);
  // What an earlier grain has left in memory must not show.
  net.lane->run(net.run_of(random_samples(graph, kSampleSeed + 1, 3)));
  const GrainResult result = net.lane->run(net.run_of(samples));
  EXPECT_NEAR(result.loss / kGrain, truth.loss, 1e-5 * (1 + truth.loss));
  expect_gradients(net, truth);
  expect_zero_padding(net);
  expect_layer_by_layer(net, samples);
}

class Gradients : public testing::TestWithParam<Case> {};

TEST_P(Gradients, AreThoseOfFiniteDifferences) {
  const Graph graph = gradient_cases::build(GetParam());
  const Truth truth = find_truth(graph, random_values(graph), random_samples(graph, kSampleSeed));
  expect_engine_agrees(GetParam(), graph, truth, select_kernels("generic"), 1);
  for (const int threads : {1, 2}) {
    for (const Algorithm algorithm : kAlgorithms) {
      if (algorithm != Algorithm::direct &&
          wherever_possible(graph, kGrain, select_kernels(), algorithm).empty()) {
        continue;
      }
      expect_engine_agrees(GetParam(), graph, truth, select_kernels(), threads, algorithm);
    }
  }
}

void expect_evaluation(const Case& c) {
  const Graph graph = gradient_cases::build(c);
  const NamedValues values = random_values(graph);
  const Samples samples = random_samples(graph, kSampleSeed);
  const Doubles input(samples.input.begin(), samples.input.end());
  ReferenceNet reference(graph, kGrain);
  const double expected = reference.loss(values, input, samples.labels, false);
  CompileOptions options;
  options.grain = kGrain;
  EngineNet net(graph, options, values);
  GrainRun run = net.run_of(samples);
  run.training = false;
  run.gradient = nullptr;
  const GrainResult result = net.lane->run(run);
  EXPECT_NEAR(result.loss / kGrain, expected, 1e-5 * (1 + expected));
  std::vector<float> output(static_cast<size_t>(kGrain * graph.classes()));
  net.lane->output(output);
  const Doubles& scores = reference.map(graph.output());
  for (size_t i = 0; i < output.size(); ++i) {
    ASSERT_NEAR(output[i], scores[i], 1e-4 * (1 + std::abs(scores[i])));
  }
}

TEST(Evaluation, UsesTheRunningStatisticsAndNeedsNoGradients) {
  for (const Case& c : gradient_cases::all_cases()) {
    SCOPED_TRACE(c.name);
    expect_evaluation(c);
  }
}

INSTANTIATE_TEST_SUITE_P(, Gradients, testing::ValuesIn(gradient_cases::all_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace convoy::engine
