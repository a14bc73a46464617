#include "convoy/optim/schedule.hpp"

#include <cmath>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"

namespace convoy::optim {
namespace {

using testing::HasSubstr;

// 100 steps in 10 epochs.
const ScheduleContext kContext{.steps_per_epoch = 10, .total_steps = 100, .batch = 256};

job::LearningRate options_of(const char* schedule) {
  job::LearningRate options;
  options.peak = 0.4;
  options.schedule = schedule;
  return options;
}

double at(const job::LearningRate& options, int64_t step) {
  return learning_rate(options, kContext, step);
}

TEST(Schedule, ConstantStaysAtThePeak) {
  EXPECT_DOUBLE_EQ(at(options_of("constant"), 0), 0.4);
  EXPECT_DOUBLE_EQ(at(options_of("constant"), 99), 0.4);
}

TEST(Schedule, WarmUpRisesLinearlyToThePeakAtItsLastStep) {
  for (const char* schedule : {"constant", "step", "polynomial", "cosine"}) {
    job::LearningRate options = options_of(schedule);
    options.warmup_epochs = 2;
    EXPECT_DOUBLE_EQ(at(options, 0), 0.4 / 20) << schedule;
    EXPECT_DOUBLE_EQ(at(options, 9), 0.2) << schedule;
    EXPECT_DOUBLE_EQ(at(options, 19), 0.4) << schedule;
    EXPECT_DOUBLE_EQ(at(options, 20), 0.4) << schedule;
  }
}

TEST(Schedule, WarmUpShorterThanAStepDoesNotOvershoot) {
  job::LearningRate options = options_of("constant");
  options.warmup_epochs = 0.05;
  EXPECT_DOUBLE_EQ(at(options, 0), 0.4);
}

TEST(Schedule, StepFallsAtTheFirstStepOfItsEpoch) {
  job::LearningRate options = options_of("step");
  options.step_epochs = 3;
  EXPECT_DOUBLE_EQ(at(options, 29), 0.4);
  EXPECT_DOUBLE_EQ(at(options, 30), 0.04);
  EXPECT_NEAR(at(options, 99), 0.0004, 1e-15);
}

TEST(Schedule, StepFallsOnTimeWhenEpochsAreNotWholeSteps) {
  job::LearningRate options = options_of("step");
  options.step_epochs = 1;
  const ScheduleContext context{.steps_per_epoch = 7.0 / 3.0, .total_steps = 100, .batch = 1};
  for (int64_t epochs = 3; epochs < 40; epochs += 3) {
    const int64_t step = epochs / 3 * 7;
    EXPECT_DOUBLE_EQ(learning_rate(options, context, step),
                     0.4 * std::pow(0.1, static_cast<double>(epochs)));
  }
}

TEST(Schedule, MultiStepFallsAtEachMilestone) {
  job::LearningRate options = options_of("multi-step");
  options.milestones = {5, 7.5};
  options.gamma = 0.5;
  EXPECT_DOUBLE_EQ(at(options, 49), 0.4);
  EXPECT_DOUBLE_EQ(at(options, 50), 0.2);
  EXPECT_DOUBLE_EQ(at(options, 74), 0.2);
  EXPECT_DOUBLE_EQ(at(options, 75), 0.1);
  EXPECT_DOUBLE_EQ(at(options, 99), 0.1);
}

TEST(Schedule, PolynomialFallsFromTheEndOfTheWarmUpToFinal) {
  job::LearningRate options = options_of("polynomial");
  options.power = 2;
  options.final = 0.1;
  options.warmup_epochs = 2;
  EXPECT_DOUBLE_EQ(at(options, 60), 0.1 + 0.3 * 0.25);
  EXPECT_DOUBLE_EQ(at(options, 99), 0.1 + 0.3 / (80.0 * 80.0));
  EXPECT_DOUBLE_EQ(at(options, 100), 0.1);
  EXPECT_DOUBLE_EQ(at(options, 1000), 0.1);
}

TEST(Schedule, CosineIsHalfWayInTheMiddleAndEndsAtFinal) {
  job::LearningRate options = options_of("cosine");
  options.final = 0.02;
  EXPECT_DOUBLE_EQ(at(options, 0), 0.4);
  EXPECT_DOUBLE_EQ(at(options, 50), 0.21);
  EXPECT_GT(at(options, 99), 0.02);
  EXPECT_LT(at(options, 99), 0.0202);
  EXPECT_DOUBLE_EQ(at(options, 100), 0.02);
}

TEST(Schedule, OneCyclePeaksAfterThirtyPercentUnlessToldOtherwise) {
  job::LearningRate options = options_of("one-cycle");
  EXPECT_DOUBLE_EQ(at(options, 0), 0.4 / 25);
  EXPECT_LT(at(options, 29), 0.4);
  EXPECT_DOUBLE_EQ(at(options, 30), 0.4);
  EXPECT_LT(at(options, 31), 0.4);
  EXPECT_NEAR(at(options, 65), 0.2, 1e-12);
  EXPECT_NEAR(at(options, 100), 0, 1e-12);
  options.warmup_epochs = 5;
  EXPECT_DOUBLE_EQ(at(options, 25), (0.4 / 25 + 0.4) / 2);
  EXPECT_DOUBLE_EQ(at(options, 50), 0.4);
}

TEST(Schedule, LinearScalingMultipliesPeakAndFinal) {
  job::LearningRate options = options_of("cosine");
  options.final = 0.02;
  options.base_batch = 128;
  EXPECT_DOUBLE_EQ(at(options, 0), 0.8);
  EXPECT_DOUBLE_EQ(at(options, 100), 0.04);
}

std::string refusal(const char* schedule, const std::function<void(job::LearningRate&)>& change) {
  job::LearningRate options = options_of(schedule);
  change(options);
  try {
    check(options, kContext);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Schedule, RefusesWhatCannotWork) {
  const auto none = [](auto&) {};
  EXPECT_THAT(refusal("cosin", none), HasSubstr("did you mean 'cosine'"));
  EXPECT_THROW(at(options_of("cosin"), 0), InputError);
  EXPECT_THAT(refusal("constant", [](auto& o) { o.peak = -1; }), HasSubstr("train.lr.peak is -1"));
  EXPECT_THAT(refusal("constant", [](auto& o) { o.peak = NAN; }), HasSubstr("train.lr.peak"));
  EXPECT_THAT(refusal("cosine", [](auto& o) { o.warmup_epochs = 11; }),
              HasSubstr("longer than the whole training of 10 epochs"));
  EXPECT_THAT(refusal("cosine", [](auto& o) { o.final = 1; }), HasSubstr("must not exceed"));
  EXPECT_THAT(refusal("step", [](auto& o) { o.step_epochs = 0; }), HasSubstr("step_epochs"));
  EXPECT_THAT(refusal("step", [](auto& o) { o.gamma = 0; }), HasSubstr("gamma"));
  EXPECT_THAT(refusal("polynomial", [](auto& o) { o.power = 0; }), HasSubstr("power"));
  EXPECT_THAT(refusal("multi-step", none), HasSubstr("milestones is empty"));
  EXPECT_THAT(refusal("multi-step",
                      [](auto& o) {
                        o.milestones = {5, 3};
                      }),
              HasSubstr("rising order"));
  EXPECT_THAT(refusal("constant", [](auto& o) { o.base_batch = -1; }), HasSubstr("base_batch"));
  for (const char* schedule : {"constant", "step", "polynomial", "cosine", "one-cycle"}) {
    EXPECT_EQ(refusal(schedule, none), "accepted");
  }
}

}  // namespace
}  // namespace convoy::optim
