// Predictors learn what there is to learn, are not worse than the last value where there is
// nothing, and never say anything absurd.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/base/random.hpp"
#include "convoy/sync/predict/arima.hpp"
#include "convoy/sync/predict/automatic.hpp"
#include "convoy/sync/predict/last_value.hpp"
#include "convoy/sync/predict/moving_average.hpp"
#include "convoy/sync/predict/narx.hpp"
#include "convoy/sync/predict/score.hpp"

namespace convoy::sync {
namespace {

using testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double error_of(const Trace& trace, const std::string& predictor) {
  const std::vector<std::string> names{predictor};
  return score(trace, names, {}).predictors.at(0).to_last;
}

/// Each speed is the last one and noise; loads mean nothing.
Trace random_walk(int workers, int steps) {
  Trace trace = noise_trace(workers, steps, 7);
  Stream random(7, Purpose::test);
  for (WorkerTrace& worker : trace.workers) {
    double speed = 1;
    for (Observation& step : worker.steps) step.speed = speed *= std::exp(0.03 * random.normal());
  }
  return trace;
}

TEST(Predictors, SayNothingBeforeAndTheSpeedAfterTheFirstStep) {
  for (const std::string& name : predictor_names()) {
    const auto predictor = make_predictor(name);
    EXPECT_EQ(predictor->name(), name);
    EXPECT_EQ(predictor->predict({}), 0) << name;
    predictor->observe({7, {}});
    EXPECT_DOUBLE_EQ(predictor->predict({}), 7) << name;
  }
}

TEST(Predictors, AreRightAboutWhatDoesNotChange) {
  for (const std::string& name : predictor_names()) {
    const auto predictor = make_predictor(name);
    for (int step = 0; step < 500; ++step) predictor->observe({1e-3, {0.5, 0.5}});
    EXPECT_NEAR(predictor->predict({0.5, 0.5}), 1e-3, 1e-9) << name;
  }
}

TEST(Predictors, LearnNothingFromNonsense) {
  for (const std::string& name : predictor_names()) {
    const auto clean = make_predictor(name);
    const auto spoilt = make_predictor(name);
    const Trace trace = load_ahead_trace(1, 200, 3);
    for (const Observation& step : trace.workers[0].steps) {
      clean->observe(step);
      spoilt->observe(step);
      for (const double speed : {0.0, -1.0, kNaN, std::numeric_limits<double>::infinity()}) {
        spoilt->observe({speed, {kNaN, -3}});
      }
      ASSERT_EQ(clean->predict(step.load), spoilt->predict(step.load)) << name;
    }
    const double told = clean->predict({kNaN, std::numeric_limits<double>::infinity()});
    EXPECT_TRUE(std::isfinite(told) && told > 0) << name;
  }
}

TEST(Predictors, StayNearWhatWasSeenWhateverComes) {
  for (const std::string& name : predictor_names()) {
    const auto predictor = make_predictor(name);
    double least = 1e300;
    double most = 0;
    for (int step = 0; step < 3000; ++step) {
      // From 1 to a million and back, at odd times, with loads to match and not to match.
      const double speed = step % 7 == 0 || step % 31 < 5 ? 1e6 : 1 + step % 3;
      predictor->observe({speed, {step % 2 * 1.0, step % 5 / 4.0}});
      least = std::min(least, speed);
      most = std::max(most, speed);
      const double told = predictor->predict({step % 3 / 2.0, 0.5});
      ASSERT_TRUE(told >= 0.9 * least && told <= 1.1 * most) << name << " says " << told;
    }
  }
}

TEST(Predictors, SayTheSameBitsWhenToldTheSame) {
  const Trace trace = load_ahead_trace(1, 300, 4);
  for (const std::string& name : predictor_names()) {
    const auto one = make_predictor(name);
    const auto other = make_predictor(name);
    for (const Observation& step : trace.workers[0].steps) {
      ASSERT_EQ(one->predict(step.load), other->predict(step.load)) << name;
      one->observe(step);
      other->observe(step);
    }
    const auto copy = one->clone();
    EXPECT_EQ(copy->predict({0.3, 0.4}), one->predict({0.3, 0.4})) << name;
  }
}

TEST(Predictors, OfAnUnknownNameAreRefusedWithTheNearest) {
  try {
    make_predictor("narks");
    FAIL() << "there is none";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'narx'?"));
    EXPECT_THAT(error.what(), HasSubstr("average"));
  }
}

TEST(MovingAverage, WeighsTheNewestStep) {
  MovingAverage average(0.5);
  for (const double speed : {4.0, 8.0, 2.0}) average.observe({speed, {}});
  EXPECT_DOUBLE_EQ(average.predict({}), 4) << "((4 + 8) / 2 + 2) / 2";
}

TEST(Arima, LearnsASwing) {
  // Changes that are always reversed are an AR(1) of changes with weight −1.
  Arima arima;
  for (int step = 0; step < 200; ++step) arima.observe({step % 2 == 0 ? 1.0 : 2.0, {}});
  EXPECT_NEAR(arima.predict({}), 1, 0.05);
  arima.observe({1, {}});
  EXPECT_NEAR(arima.predict({}), 2, 0.05);
}

TEST(Arima, FindsTheBestAverageForNoise) {
  EXPECT_LT(error_of(noise_trace(4, 2000, 5), "arima"), 0.78) << "the mean has 1/√2";
}

TEST(Narx, KnowsThatAVisibleLoadWillSlow) {
  const Trace trace = load_ahead_trace(8, 1000, 5);
  const double narx = error_of(trace, "narx");
  EXPECT_LT(narx, 0.75);
  for (const char* simple : {"last", "average", "arima"}) {
    EXPECT_LT(narx, 0.8 * error_of(trace, simple)) << simple;
  }
}

TEST(Narx, IsNoWorseThanSimpleOnesWhereThereIsNothingToLearn) {
  const Trace noise = noise_trace(8, 1000, 6);
  EXPECT_LT(error_of(noise, "narx"), 0.74) << "the mean has 1/√2";
  const Trace walk = random_walk(4, 1000);
  EXPECT_LT(error_of(walk, "narx"), 1.02) << "the last value is the best there is";
}

TEST(Narx, FollowsItsNetworkOnlyWhereThatHelps) {
  Narx seeing;
  Narx blind;
  const Trace ahead = load_ahead_trace(1, 1000, 8);
  const Trace walk = random_walk(1, 1000);
  for (const Observation& step : ahead.workers[0].steps) seeing.observe(step);
  for (const Observation& step : walk.workers[0].steps) blind.observe(step);
  EXPECT_GT(seeing.trust(), 0.6);
  EXPECT_LT(blind.trust(), 0.3);
}

TEST(Narx, StartsWarmForAnotherWorkerOfAnotherSpeed) {
  Trace trace = load_ahead_trace(9, 120, 9);
  const Trace lesson = load_ahead_trace(1, 2000, 10);
  trace.workers[0] = lesson.workers[0];
  for (size_t w = 1; w < trace.workers.size(); ++w) {
    for (Observation& step : trace.workers[w].steps) step.speed *= 1000;
  }
  const std::vector<std::string> names{"narx"};
  const double warm =
      score(trace, names, {.group = 4, .grains = 64, .warm = true}).predictors.at(0).to_last;
  trace.workers.erase(trace.workers.begin());
  const double cold = error_of(trace, "narx");
  EXPECT_LT(warm, 0.75 * cold) << "cold " << cold;
}

TEST(Automatic, AsksWhoWasBestLately) {
  Automatic automatic;
  Stream random(11, Purpose::test);
  for (int step = 0; step < 300; ++step) automatic.observe({1 + 0.05 * random.normal(), {}});
  EXPECT_NE(automatic.chosen().name(), "last");
  double walk = 1;
  for (int step = 0; step < 300; ++step) automatic.observe({walk *= 1.01, {}});
  EXPECT_NE(automatic.chosen().name(), "average") << "which is always behind";
}

TEST(Automatic, IsNearlyAsGoodAsTheBestOnEachTrace) {
  for (const Trace& trace : {load_ahead_trace(4, 800, 12), noise_trace(4, 800, 12)}) {
    double best = 1e300;
    for (const std::string& name : predictor_names()) {
      if (name != "auto") best = std::min(best, error_of(trace, name));
    }
    EXPECT_LT(error_of(trace, "auto"), 1.1 * best) << trace.name;
  }
}

TEST(Score, OfPerfectForesightIsNoLossAndEqualSharesAreWorse) {
  Trace trace;
  trace.name = "constant";
  for (const double speed : {1.0, 2.0, 4.0}) {
    trace.workers.push_back({"worker", std::vector<Observation>(50, {speed, {}})});
  }
  const TraceScore scored =
      score(trace, predictor_names(), {.group = 3, .grains = 70, .warm = false});
  EXPECT_EQ(scored.steps, 150);
  EXPECT_NEAR(scored.equal_loss, 24.0 / 10 - 1, 1e-9);
  for (const PredictorScore& p : scored.predictors) {
    EXPECT_NEAR(p.step_loss, 0, 1e-9) << p.predictor;
    EXPECT_NEAR(p.steady_loss, 0, 1e-9) << p.predictor;
    EXPECT_EQ(p.to_last, 1);
  }
}

TEST(Score, BetterPredictionsMakeShorterSteps) {
  const Trace trace = load_ahead_trace(8, 1000, 13);
  const TraceScore scored = score(trace, predictor_names(), {});
  const auto loss = [&](const std::string& name) {
    for (const PredictorScore& p : scored.predictors) {
      if (p.predictor == name) return p.step_loss;
    }
    return 1e300;
  };
  EXPECT_LT(loss("narx"), loss("last"));
  EXPECT_LT(loss("narx"), loss("average"));
  EXPECT_LT(loss("last"), scored.equal_loss);
}

}  // namespace
}  // namespace convoy::sync
