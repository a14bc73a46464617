#include "convoy/plan/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/model/zoo.hpp"

namespace convoy::plan {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

/// About 128 KiB of activations for each sample of a grain.
model::Graph wide_net() {
  model::Graph graph({3, 8, 8}, "wide");
  model::LayerId x = graph.conv(
      graph.input(), {.out = 512, .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .bias = true});
  x = graph.add(model::GlobalAveragePool{}, {graph.relu(x)});
  graph.softmax_cross_entropy(graph.linear(x, 4, "classes"));
  return graph;
}

CoreMap machine(int cores) {
  CoreMap map;
  for (int i = 0; i < cores; ++i) map.cores.push_back(i);
  map.physical = cores;
  return map;
}

job::Job job_of(int64_t batch, int64_t grain = 0, int64_t lanes = 0) {
  job::Job job;
  job.train.batch = batch;
  job.engine.grain = grain;
  job.engine.lanes = lanes;
  job.engine.algorithms = "direct";
  return job;
}

Plan plan_of(const job::Job& job, int cores = 4) {
  const auto optimizer = optim::make_optimizer(job.train);
  return make_plan(job, wide_net(), *optimizer, machine(cores)).plan;
}

/// The same with so much memory allowed on top of what this process takes already.
Plan plan_within(job::Job job, int64_t mib, int cores = 4) {
  job.engine.memory = resident_memory() + Bytes{mib * kMiB};
  return plan_of(job, cores);
}

std::string refusal_within(const job::Job& job, int64_t mib) {
  try {
    plan_within(job, mib);
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Divisors, AreAllLargestFirst) {
  EXPECT_THAT(divisors(12), ElementsAre(12, 6, 4, 3, 2, 1));
  EXPECT_THAT(divisors(7), ElementsAre(7, 1));
  EXPECT_THAT(divisors(1), ElementsAre(1));
}

TEST(Plan, GivesEveryCoreALaneAndAGrainThatDividesTheBatch) {
  for (const int64_t batch : {1, 2, 7, 12, 60, 64, 256}) {
    for (const int cores : {1, 2, 3, 4}) {
      const Plan plan = plan_of(job_of(batch), cores);
      EXPECT_EQ(plan.batch, batch);
      EXPECT_EQ(plan.batch % plan.grain, 0);
      EXPECT_LE(plan.grain, 32);
      EXPECT_EQ(plan.lanes, std::min<int64_t>(cores, batch));
      EXPECT_EQ(plan.cores.size(), static_cast<size_t>(plan.lanes));
      EXPECT_GE(plan.reasons.size(), 2U);
    }
  }
}

TEST(Plan, TakesASmallerGrainWhereActivationsOutweighTheWeights) {
  const auto plan_for = [](const std::string& net) {
    const job::Job job = job_of(32);
    const auto optimizer = optim::make_optimizer(job.train);
    return make_plan(job, model::build(net), *optimizer, machine(2)).plan;
  };
  const Plan resnet = plan_for("resnet-50");
  EXPECT_EQ(resnet.grain, 8);
  EXPECT_EQ(resnet.lanes, 2);
  EXPECT_THAT(resnet.reasons, Contains("grain 8: a larger one takes more memory and is no faster"));
  EXPECT_EQ(plan_for("vgg-a").grain, 16) << "its weights outweigh its activations";
}

TEST(Plan, KeepsWhatIsPinned) {
  const Plan plan = plan_of(job_of(64, 2, 3));
  EXPECT_EQ(plan.grain, 2);
  EXPECT_EQ(plan.lanes, 3);
  EXPECT_THAT(plan.reasons, Contains("grain 2: pinned by the job"));
  EXPECT_THAT(plan.reasons, Contains("3 lanes: 3 pinned by the job"));
}

TEST(Plan, SaysWhyItRunsFewerLanesThanPinned) {
  const Plan plan = plan_of(job_of(64, 32, 4));
  EXPECT_EQ(plan.lanes, 2);
  EXPECT_THAT(plan.reasons,
              Contains("2 lanes: 4 pinned by the job, but a batch has only 2 grains"));
}

TEST(Plan, RefusesAGrainThatDoesNotDivideTheBatch) {
  EXPECT_THAT([] { plan_of(job_of(12, 5)); },
              testing::ThrowsMessage<InputError>(
                  AllOf(HasSubstr("engine.grain: 5"), HasSubstr("12, 6, 4, 3, 2, 1"))));
}

TEST(Plan, TakesSmallerGrainsWhenMemoryIsShortAndSaysSo) {
  const Plan wanted = plan_of(job_of(128));
  const int64_t mib = wanted.allocated().value / kMiB * 2 / 3;
  const Plan plan = plan_within(job_of(128), mib);
  EXPECT_LT(plan.grain, wanted.grain);
  EXPECT_EQ(plan.lanes, wanted.lanes);
  EXPECT_LE(plan.allocated().value, mib * kMiB);
  EXPECT_THAT(plan.reasons, Contains(HasSubstr("would take " + to_string(wanted.allocated()))));
  EXPECT_THAT(plan.reasons, Contains(HasSubstr("that fits into memory")));
}

TEST(Plan, TakesFewerLanesWhenTheGrainIsPinnedAndMemoryIsShort) {
  const Plan wanted = plan_of(job_of(128, 32));
  const Plan plan = plan_within(job_of(128, 32), wanted.allocated().value / kMiB * 2 / 3);
  EXPECT_EQ(plan.grain, 32);
  EXPECT_LT(plan.lanes, wanted.lanes);
  EXPECT_THAT(plan.reasons, Contains(HasSubstr("not enough memory")));
}

TEST(Plan, RefusesWithAdviceThatFits) {
  const job::Job job = job_of(128, 128, 1);
  const int64_t needed = plan_of(job).allocated().value / kMiB;
  EXPECT_THAT(refusal_within(job, needed / 2),
              AllOf(HasSubstr("batch 128, grain 128 on 1 lane"), HasSubstr("activations"),
                    HasSubstr("engine.grain: 32 with engine.lanes: 1 would fit"),
                    HasSubstr("engine.memory: ")));
  EXPECT_NO_THROW(plan_within(job_of(128, 32, 1), needed / 2));
}

TEST(Plan, SaysWhenNothingFits) {
  job::Job job = job_of(8);
  job.engine.memory = Bytes{kMiB};
  EXPECT_THAT([&] { plan_of(job); },
              testing::ThrowsMessage<InputError>(
                  AllOf(HasSubstr("not even one sample"), HasSubstr("engine.memory is 1.00 MiB"),
                        HasSubstr("is the least (grain 1 on 1 lane)"))));
}

TEST(Plan, MeasuresStepsAndWhatElseMightBeFaster) {
  const job::Job job = job_of(64);
  const auto optimizer = optim::make_optimizer(job.train);
  PlanOptions options;
  options.profile_cache.clear();
  options.measure = true;
  int measured = 0;
  options.progress = [&](int done, int all, const std::string&) { measured += done < all ? 1 : 0; };
  options.known = std::make_shared<Measurements>();
  const Plan plan = make_plan(job, wide_net(), *optimizer, machine(2), options).plan;
  EXPECT_EQ(measured, 3) << "grain 32 and 16 on 2 lanes, and one lane of two threads";
  EXPECT_GT(plan.step.value, 0);
  EXPECT_THAT(plan.reasons, Contains(AllOf(HasSubstr("step: "), HasSubstr("grain 32 on 2 lanes"),
                                           HasSubstr("grain 16 on 2 lanes"),
                                           HasSubstr("grain 32 on 1 lane of 2 threads"))));
  EXPECT_THAT(describe(plan), HasSubstr("images/s"));
  const Plan again = make_plan(job, wide_net(), *optimizer, machine(2), options).plan;
  EXPECT_EQ(measured, 3) << "what is known is not measured again";
  EXPECT_EQ(again.grain, plan.grain);
}

TEST(Plan, MeasuresNothingWhereAllIsPinned) {
  job::Job job = job_of(64, 16, 2);
  const auto optimizer = optim::make_optimizer(job.train);
  PlanOptions options;
  options.profile_cache.clear();
  options.measure = true;
  options.progress = [&](int, int, const std::string& what) { ADD_FAILURE() << what; };
  EXPECT_EQ(make_plan(job, wide_net(), *optimizer, machine(2), options).plan.step.value, 0);
}

TEST(Plan, IsWrittenAsYaml) {
  const Plan plan = plan_of(job_of(64));
  const YAML::Node yaml = YAML::Load(to_yaml(plan));
  EXPECT_EQ(yaml["model"].as<std::string>(), "wide");
  EXPECT_EQ(yaml["batch"].as<int64_t>(), 64);
  EXPECT_EQ(yaml["grain"].as<int64_t>(), plan.grain);
  EXPECT_EQ(yaml["lanes"].as<int>(), 4);
  EXPECT_EQ(yaml["cores"].size(), 4U);
  EXPECT_EQ(yaml["memory_bytes"]["peak"].as<int64_t>(), plan.peak().value);
  EXPECT_EQ(yaml["reasons"].as<std::vector<std::string>>(), plan.reasons);
}

TEST(Plan, IsDescribedInWords) {
  EXPECT_THAT(describe(plan_of(job_of(32, 32, 1))),
              AllOf(HasSubstr("batch 32 in 1 grain of 32 on 1 lane\n"), HasSubstr("activations")));
  EXPECT_THAT(describe(plan_of(job_of(64, 16, 2))), HasSubstr("4 grains of 16 on 2 lanes\n"));
}

}  // namespace
}  // namespace convoy::plan
