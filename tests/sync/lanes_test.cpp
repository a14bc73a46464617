// Training steps on several lanes: the same bits as on one, and no harm from what goes wrong.

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sync/training.hpp"

namespace convoy::sync {
namespace {

struct Trace {
  std::vector<double> losses, accuracies, norms;
  std::vector<float> state;
  bool operator==(const Trace&) const = default;
};

Trace train(const Graph& graph, int lanes, const std::string& optimizer, double clip,
            engine::Algorithm algorithm = engine::Algorithm::direct) {
  Training training(graph, lanes, optimizer, clip, algorithm);
  Trace trace;
  for (int64_t step = 0; step < 20; ++step) {
    const StepResult result = training.step(step);
    EXPECT_TRUE(result.finite);
    trace.losses.push_back(result.loss);
    trace.accuracies.push_back(result.accuracy);
    trace.norms.push_back(result.gradient_norm);
  }
  EXPECT_EQ(training.source.held(), 0U);
  trace.state = training.state();
  return trace;
}

void expect_same_bits(const Graph& graph, const std::string& optimizer, double clip,
                      engine::Algorithm algorithm = engine::Algorithm::direct) {
  SCOPED_TRACE(engine::to_string(algorithm));
  const Trace one = train(graph, 1, optimizer, clip, algorithm);
  EXPECT_LT(one.losses.back(), one.losses.front()) << "it learns";
  for (const int lanes : {2, 3}) {
    const Trace several = train(graph, lanes, optimizer, clip, algorithm);
    EXPECT_EQ(several.losses, one.losses) << lanes << " lanes";
    EXPECT_EQ(several.norms, one.norms) << lanes << " lanes";
    EXPECT_TRUE(several == one) << lanes << " lanes give other weights";
  }
}

TEST(Lanes, GiveTheSameWeightsWithSgd) {
  expect_same_bits(small_resnet(), "sgd", 0);
}
TEST(Lanes, GiveTheSameWeightsWithClippedAdam) {
  expect_same_bits(small_resnet(), "adam", 1.0);
}
TEST(Lanes, GiveTheSameWeightsWithClippedLars) {
  expect_same_bits(small_resnet(), "lars", 1.0);
}
TEST(Lanes, GiveTheSameWeightsOnLenet) {
  expect_same_bits(small_lenet(), "sgd", 2.0);
}

TEST(Lanes, GiveTheSameWeightsByEveryAlgorithm) {
  for (const engine::Algorithm algorithm : engine::kAlgorithms) {
    expect_same_bits(small_resnet(), "sgd", 0, algorithm);
  }
}

TEST(Lanes, WithoutAGrainDoNoHarm) {
  Training six(small_resnet(), 6);
  Training eight(small_resnet(), 8);
  six.step(0);
  eight.step(0);
  EXPECT_EQ(six.state(), eight.state());
}

TEST(Lanes, ClipTheGradientToTheNormAskedFor) {
  constexpr double kNorm = 1e-3;
  Training free(small_lenet(), 2);
  Training loose(small_lenet(), 2, "sgd", 1e6);
  Training tight(small_lenet(), 2, "sgd", kNorm);
  free.step(0);
  const double norm = loose.step(0).gradient_norm;
  tight.step(0);
  ASSERT_GT(norm, kNorm);
  EXPECT_EQ(free.state(), loose.state());
  // After the first step the momentum is s·g + λ·w; only s differs, 1 here and kNorm/‖g‖ there.
  const std::span<const float> a = free.stepper.states()[0];
  const std::span<const float> b = tight.stepper.states()[0];
  double difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference += std::pow(double{a[i]} - b[i], 2);
  EXPECT_NEAR(std::sqrt(difference), norm - kNorm, 1e-5 * norm);
}

/// Every grain is grain `grain` of another source.
class OneGrain final : public GrainSource {
 public:
  OneGrain(GrainSource& from, int64_t grain) : from_(from), grain_(grain) {}
  Samples get(int64_t step, int64_t) override { return from_.get(step, grain_); }
  void release(int64_t step, int64_t) override { from_.release(step, grain_); }

 private:
  GrainSource& from_;
  int64_t grain_;
};

TEST(Lanes, MeasureTheGradientsOfTheirGrains) {
  for (const Graph& graph : {small_lenet(), small_resnet()}) {
    engine::CompileOptions compiling;
    compiling.grain = kGrain;
    const engine::Program program(graph, compiling);
    const auto optimizer = optim::make_optimizer(options_of("sgd"));
    const auto first_step = [&](int64_t batch, int lanes, GrainSource& source) {
      StepperOptions options;
      options.batch = batch;
      options.lanes = lanes;
      options.measure_noise = true;
      Stepper stepper(program, *optimizer, options);
      engine::initialise(program.arena(), 5, stepper.weights());
      stepper.weights_changed();
      return stepper.step(0, 0.05, source);
    };
    TestSource source(graph);
    const StepResult whole = first_step(kBatch, 2, source);
    EXPECT_EQ(whole.grain_norm2, first_step(kBatch, 3, source).grain_norm2);
    EXPECT_GT(whole.grain_norm2, std::pow(whole.gradient_norm, 2));
    EXPECT_GT(whole.computing.value, 0);
    // Dropout draws by the place in the batch, so only without it single grains are the same.
    if (graph.name() != "lenet") continue;
    double sum = 0;
    for (int64_t g = 0; g < kBatch / kGrain; ++g) {
      OneGrain one(source, g);
      const StepResult alone = first_step(kGrain, 1, one);
      EXPECT_NEAR(alone.grain_norm2, std::pow(alone.gradient_norm, 2), 1e-5 * alone.grain_norm2);
      sum += std::pow(alone.gradient_norm, 2);
    }
    EXPECT_NEAR(whole.grain_norm2, sum / (kBatch / kGrain), 1e-5 * whole.grain_norm2);
  }
}

/// The input reaches the loss only through this layer and a ReLU.
Graph rectified(const model::LayerKind& first) {
  Graph g({3, 8, 8});
  g.softmax_cross_entropy(g.linear(g.relu(g.add(first, {g.input()})), 10));
  return g;
}

void expect_untouched_by_nan(const Graph& graph, double clip) {
  SCOPED_TRACE(describe(graph));
  Training damaged(graph, 2, "adam", clip);
  Training sound(graph, 2, "adam", clip);
  damaged.step(0);
  sound.step(0);
  const std::vector<float> before = damaged.state();
  damaged.source.nan_at = {1, 4};
  EXPECT_FALSE(damaged.step(1).finite);
  EXPECT_EQ(damaged.state(), before);
  EXPECT_TRUE(damaged.step(2).finite);
  sound.step(2);
  EXPECT_EQ(damaged.state(), sound.state());
}

TEST(Lanes, LeaveEverythingAsItWasWhenTheLossIsNotANumber) {
  for (const Graph& graph : {small_lenet(), small_resnet(), rectified(model::Linear{.out = 20})}) {
    expect_untouched_by_nan(graph, 0);
  }
}

TEST(Lanes, LeaveEverythingAsItWasWhenTheMeasuredGradientIsNotANumber) {
  // oneDNN's fused ReLU makes 0 of what is not a number, so the loss looks sound.
  expect_untouched_by_nan(rectified(model::Conv{.out = 12, .kernel = {3, 3}}), 1.0);
}

TEST(Lanes, PassOnWhatTheSourceThrowsAndCanGoOn) {
  for (const int lanes : {1, 3}) {
    Training damaged(small_resnet(), lanes);
    Training sound(small_resnet(), lanes);
    damaged.step(0);
    sound.step(0);
    const std::vector<float> before = damaged.state();
    damaged.source.throw_at = {1, 3};
    try {
      damaged.step(1);
      FAIL() << "the error was swallowed";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "disk gone");
    }
    EXPECT_EQ(damaged.state(), before);
    EXPECT_EQ(damaged.source.held(), 0U);
    damaged.step(2);
    sound.step(2);
    EXPECT_EQ(damaged.state(), sound.state());
  }
}

// ---- Evaluation --------------------------------------------------------------------------------

struct Evaluation {
  EvalResult result;
  std::vector<int> visits;    // by sample
  std::vector<float> scores;  // by sample and class
};

/// Evaluates `samples` samples; the last grain is filled up with samples that do not count.
Evaluation evaluate(Training& training, const Graph& graph, int64_t samples) {
  const auto values = static_cast<size_t>(graph.input_shape().size());
  Evaluation e;
  e.visits.resize(static_cast<size_t>(samples));
  e.scores.resize(static_cast<size_t>(samples * 10));
  const auto fill = [&](int64_t index, std::span<float> inputs, std::span<int32_t> labels) {
    int64_t real = 0;
    for (int64_t i = 0; i < kGrain; ++i) {
      const int64_t sample = index * kGrain + i;
      auto& label = labels[static_cast<size_t>(i)];
      make_sample(-1, sample, inputs.subspan(static_cast<size_t>(i) * values, values), label);
      if (sample >= samples) {
        label = -1;
        continue;
      }
      ++e.visits[static_cast<size_t>(sample)];
      ++real;
    }
    return real;
  };
  const auto output = [&](int64_t index, std::span<const float> scores) {
    std::copy(scores.begin(), scores.end(), e.scores.begin() + index * kGrain * 10);
  };
  e.result = training.stepper.evaluate((samples + kGrain - 1) / kGrain, fill, output);
  return e;
}

TEST(Lanes, EvaluateEverySampleOnceWithTheSameBits) {
  constexpr int64_t kSamples = 30;  // seven grains and a half
  const Graph graph = small_resnet();
  Training one(graph, 1);
  Training three(graph, 3);
  for (int64_t step = 0; step < 3; ++step) {
    one.step(step);
    three.step(step);
  }
  const std::vector<float> before = one.state();
  const Evaluation a = evaluate(one, graph, kSamples);
  const Evaluation b = evaluate(three, graph, kSamples);
  EXPECT_EQ(one.state(), before);
  EXPECT_EQ(a.visits, std::vector<int>(kSamples, 1));
  EXPECT_EQ(b.visits, std::vector<int>(kSamples, 1));
  EXPECT_EQ(a.result.samples, kSamples);
  EXPECT_EQ(a.result.loss, b.result.loss);
  EXPECT_EQ(a.result.accuracy, b.result.accuracy);
  EXPECT_EQ(a.scores, b.scores);

  // The scores say the same as the totals.
  double loss = 0;
  int64_t correct = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    std::vector<float> input(static_cast<size_t>(graph.input_shape().size()));
    int32_t label = 0;
    make_sample(-1, i, input, label);
    const auto row = a.scores.begin() + i * 10;
    double sum = 0;
    for (auto it = row; it != row + 10; ++it) sum += std::exp(static_cast<double>(*it));
    loss += std::log(sum) - row[label];
    correct += std::max_element(row, row + 10) - row == label ? 1 : 0;
  }
  EXPECT_NEAR(a.result.loss, loss / kSamples, 1e-4);
  EXPECT_EQ(a.result.accuracy, static_cast<double>(correct) / kSamples);
}

TEST(Lanes, EvaluateTheSameWhateverStandsInTheGrain) {
  // Evaluation uses the running statistics: a sample's scores do not depend on its neighbours.
  const Graph graph = small_resnet();
  Training training(graph, 2);
  for (int64_t step = 0; step < 3; ++step) training.step(step);
  const Evaluation all = evaluate(training, graph, 8);
  const Evaluation some = evaluate(training, graph, 6);
  EXPECT_TRUE(std::equal(some.scores.begin(), some.scores.end(), all.scores.begin()));
}

}  // namespace
}  // namespace convoy::sync
