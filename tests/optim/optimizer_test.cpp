#include "convoy/optim/optimizer.hpp"

#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/base/random.hpp"
#include "convoy/optim/update.hpp"

namespace convoy::optim {
namespace {

using testing::HasSubstr;

constexpr int64_t kSize = 103;  // not a multiple of any vector's width
constexpr int kSteps = 7;

std::vector<float> normals(uint64_t seed, int64_t count = kSize) {
  Stream stream(seed, Purpose::test);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = stream.normal();
  return values;
}

/// An arena of one segment and its optimizer state.
struct Arena {
  std::vector<float> weights = normals(1);
  std::array<std::vector<float>, 2> state = {std::vector<float>(kSize), std::vector<float>(kSize)};
  Segment segment{0, kSize};

  void step(const Optimizer& optimizer, const StepContext& context,
            const std::vector<int64_t>& cuts) {
    const std::vector<float> gradient = normals(100 + static_cast<uint64_t>(context.step));
    const std::array<float*, 2> states = {state[0].data(), state[1].data()};
    const std::span<float* const> used(states.data(),
                                       static_cast<size_t>(optimizer.state_arrays()));
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      optimizer.update(context, segment, 0, cuts[i], cuts[i + 1], weights.data(),
                       gradient.data() + cuts[i], used);
    }
  }
};

StepContext context_of(int64_t step) {
  StepContext context;
  context.step = step;
  context.learning_rate = 0.1 / static_cast<double>(step + 1);
  context.gradient_scale = 0.5;
  return context;
}

job::Train options_of(const char* optimizer) {
  job::Train options;
  options.optimizer = optimizer;
  options.weight_decay = 0.01;
  return options;
}

/// One weight of a reference in double precision: takes (context, gradient, w, s0, s1).
using Reference = std::function<void(const StepContext&, double, double&, double&, double&)>;

void expect_agreement(
    const job::Train& options, const Reference& reference, bool decay = true,
    const std::function<void(StepContext&)>& adjust = [](StepContext&) {}) {
  const auto optimizer = make_optimizer(options);
  Arena arena;
  arena.segment.decay = decay;
  const std::vector<float> start = arena.weights;
  std::vector<double> w(start.begin(), start.end());
  std::vector<double> s0(kSize);
  std::vector<double> s1(kSize);
  for (int step = 0; step < kSteps; ++step) {
    StepContext context = context_of(step);
    adjust(context);
    arena.step(*optimizer, context, {0, kSize});
    const std::vector<float> gradient = normals(100 + static_cast<uint64_t>(step));
    for (size_t i = 0; i < kSize; ++i) reference(context, gradient[i], w[i], s0[i], s1[i]);
  }
  for (size_t i = 0; i < kSize; ++i) {
    ASSERT_NEAR(arena.weights[i], w[i], 2e-6 * (1 + std::abs(w[i]))) << "weight " << i;
    ASSERT_GT(std::abs(w[i] - static_cast<double>(start[i])), 1e-6);
  }
}

TEST(Sgd, WithoutMomentumFollowsItsFormulaAndKeepsNoState) {
  job::Train options = options_of("sgd");
  options.momentum = 0;
  EXPECT_EQ(make_optimizer(options)->state_arrays(), 0);
  EXPECT_TRUE(make_optimizer(options)->state_names().empty());
  expect_agreement(options, [](const StepContext& c, double g, double& w, double&, double&) {
    w -= c.learning_rate * (c.gradient_scale * g + 0.01 * w);
  });
}

TEST(Sgd, WithMomentumFollowsItsFormula) {
  EXPECT_EQ(make_optimizer(options_of("sgd"))->state_names(), std::vector<std::string>{"momentum"});
  expect_agreement(options_of("sgd"),
                   [](const StepContext& c, double g, double& w, double& v, double&) {
                     v = 0.9 * v + c.gradient_scale * g + 0.01 * w;
                     w -= c.learning_rate * v;
                   });
}

TEST(Sgd, NesterovLooksAhead) {
  job::Train options = options_of("sgd");
  options.nesterov = true;
  expect_agreement(options, [](const StepContext& c, double g, double& w, double& v, double&) {
    g = c.gradient_scale * g + 0.01 * w;
    v = 0.9 * v + g;
    w -= c.learning_rate * (g + 0.9 * v);
  });
}

TEST(Sgd, DoesNotDecayExemptSegments) {
  expect_agreement(
      options_of("sgd"),
      [](const StepContext& c, double g, double& w, double& v, double&) {
        v = 0.9 * v + c.gradient_scale * g;
        w -= c.learning_rate * v;
      },
      /*decay=*/false);
}

TEST(Adam, FollowsItsFormulaWithBiasCorrection) {
  const auto optimizer = make_optimizer(options_of("adam"));
  EXPECT_EQ(optimizer->state_arrays(), 2);
  EXPECT_EQ(optimizer->state_names(), (std::vector<std::string>{"m", "v"}));
  for (const bool decay : {true, false}) {
    expect_agreement(
        options_of("adam"),
        [&](const StepContext& c, double g, double& w, double& m, double& v) {
          g = c.gradient_scale * g + (decay ? 0.01 * w : 0);
          m = 0.9 * m + 0.1 * g;
          v = 0.999 * v + 0.001 * g * g;
          const auto t = static_cast<double>(c.step + 1);
          const double mean = m / (1 - std::pow(0.9, t));
          const double variance = v / (1 - std::pow(0.999, t));
          w -= c.learning_rate * mean / (std::sqrt(variance) + 1e-8);
        },
        decay);
  }
}

TEST(Adam, FirstStepMovesEveryWeightByTheLearningRate) {
  job::Train options = options_of("adam");
  options.weight_decay = 0;
  Arena arena;
  const std::vector<float> before = arena.weights;
  arena.step(*make_optimizer(options), context_of(0), {0, kSize});
  for (size_t i = 0; i < kSize; ++i) {
    EXPECT_NEAR(std::abs(arena.weights[i] - before[i]), 0.1, 1e-5);
  }
}

TEST(Lars, ScalesTheStepOfALayerByTheRatioOfItsNorms) {
  const double weight_norm2 = 9;
  const double gradient_norm2 = 16;
  EXPECT_TRUE(make_optimizer(options_of("lars"))->needs_norms());
  const double ratio = 0.001 * 3 / (0.5 * 4 + 0.01 * 3);
  expect_agreement(
      options_of("lars"),
      [&](const StepContext& c, double g, double& w, double& v, double&) {
        v = 0.9 * v + ratio * (c.gradient_scale * g + 0.01 * w);
        w -= c.learning_rate * v;
      },
      /*decay=*/true,
      [&](StepContext& context) {
        context.learning_rate *= 1000;
        context.weight_norm2 = {&weight_norm2, 1};
        context.gradient_norm2 = {&gradient_norm2, 1};
      });
}

TEST(Lars, IsPlainSgdForZeroNormsAndSegmentsThatAreNotAdapted) {
  struct Case {
    double weight_norm2;
    double gradient_norm2;
    bool adapt;
  };
  Arena plain;
  plain.step(*make_optimizer(options_of("sgd")), context_of(0), {0, kSize});
  for (const Case& c : {Case{0, 4, true}, Case{4, 0, true}, Case{4, 4, false}}) {
    Arena arena;
    arena.segment.adapt = c.adapt;
    StepContext context = context_of(0);
    context.weight_norm2 = {&c.weight_norm2, 1};
    context.gradient_norm2 = {&c.gradient_norm2, 1};
    arena.step(*make_optimizer(options_of("lars")), context, {0, kSize});
    EXPECT_EQ(arena.weights, plain.weights);
  }
}

TEST(Optimizer, UpdatesInStripsToTheSameBitsAsAtOnce) {
  const double norm2 = 2;
  for (const char* name : {"sgd", "nesterov", "plain", "adam", "lars"}) {
    const bool variant = name == std::string("nesterov") || name == std::string("plain");
    job::Train options = options_of(variant ? "sgd" : name);
    options.nesterov = name == std::string("nesterov");
    if (name == std::string("plain")) options.momentum = 0;
    const auto optimizer = make_optimizer(options);
    Arena whole;
    Arena strips;
    for (int step = 0; step < kSteps; ++step) {
      StepContext context = context_of(step);
      context.weight_norm2 = {&norm2, 1};
      context.gradient_norm2 = {&norm2, 1};
      whole.step(*optimizer, context, {0, kSize});
      strips.step(*optimizer, context, {0, 1, 17, 17, 50, 90, kSize});
    }
    EXPECT_EQ(whole.weights, strips.weights) << name;
    EXPECT_EQ(whole.state, strips.state) << name;
  }
}

TEST(UpdateLoops, OfEveryInstructionSetGiveTheSameBits) {
  const UpdateLoops narrow = baseline_loops();
  const UpdateLoops wide = best_loops();
  const SgdRates sgd{0.1F, 0.7F, 0.01F, 0.9F};
  const AdamRates adam{0.1F, 0.7F, 0.01F, 0.9F, 0.1F, 0.999F, 0.001F, 3.0F, 1e-8F};
  const std::vector<float> gradient = normals(2);
  const auto run = [&](const UpdateLoops& loops) {
    std::vector<std::vector<float>> arrays = {normals(1), normals(3),
                                              std::vector<float>(kSize, 0.3F)};
    auto [w, m, v] = std::array{arrays[0].data(), arrays[1].data(), arrays[2].data()};
    loops.plain(sgd, kSize, w, gradient.data());
    loops.momentum(sgd, kSize, w, gradient.data(), m);
    loops.nesterov(sgd, kSize, w, gradient.data(), m);
    loops.adam(adam, kSize, w, gradient.data(), m, v);
    return arrays;
  };
  EXPECT_EQ(run(narrow), run(wide));
  EXPECT_EQ(narrow.squared_norm(gradient.data(), kSize), wide.squared_norm(gradient.data(), kSize));
}

TEST(SquaredNorm, IsDoublePreciseAndIndependentOfAlignment) {
  for (const int64_t count : {0, 1, 15, 16, 17, 1000}) {
    const std::vector<float> values = normals(5, count);
    long double exact = 0;
    for (const float x : values) exact += static_cast<long double>(x) * x;
    const double norm2 = squared_norm(values);
    EXPECT_NEAR(norm2, static_cast<double>(exact), 1e-13 * static_cast<double>(exact));
    for (size_t shift = 1; shift < 8; ++shift) {
      std::vector<float> shifted(shift);
      shifted.insert(shifted.end(), values.begin(), values.end());
      EXPECT_EQ(squared_norm(std::span(shifted).subspan(shift)), norm2);
    }
  }
}

TEST(SquaredNorm, KeepsSmallValuesBesideLargeOnes) {
  std::vector<float> values(4096, 1.0F);
  values[0] = 1e5F;
  EXPECT_EQ(squared_norm(values), 1e10 + 4095);
}

std::string refusal(const std::function<void(job::Train&)>& change) {
  job::Train options = options_of("sgd");
  change(options);
  try {
    make_optimizer(options);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Optimizer, RefusesOptionsThatCannotWork) {
  EXPECT_THAT(refusal([](auto& o) { o.optimizer = "adma"; }), HasSubstr("did you mean 'adam'"));
  EXPECT_THAT(refusal([](auto& o) { o.momentum = 1; }), HasSubstr("train.momentum is 1"));
  EXPECT_THAT(refusal([](auto& o) { o.weight_decay = -1; }), HasSubstr("train.weight_decay"));
  EXPECT_THAT(refusal([](auto& o) { o.clip_norm = -1; }), HasSubstr("train.clip_norm"));
  EXPECT_THAT(refusal([](auto& o) { o.optimizer = "adam", o.beta2 = 1; }),
              HasSubstr("train.beta2"));
  EXPECT_THAT(refusal([](auto& o) { o.optimizer = "adam", o.epsilon = 0; }),
              HasSubstr("train.epsilon"));
  EXPECT_THAT(refusal([](auto& o) { o.optimizer = "lars", o.trust = 0; }),
              HasSubstr("train.trust"));
  EXPECT_THAT(refusal([](auto& o) { o.optimizer = "lars", o.nesterov = true; }),
              HasSubstr("variant of sgd"));
  EXPECT_THAT(refusal([](auto& o) { o.momentum = 0, o.nesterov = true; }),
              HasSubstr("greater than 0 for train.nesterov"));
  EXPECT_EQ(refusal([](auto&) {}), "accepted");
}

}  // namespace
}  // namespace convoy::optim
