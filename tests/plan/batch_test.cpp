#include "convoy/plan/batch.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"

namespace convoy::plan {
namespace {

using testing::Contains;
using testing::HasSubstr;

/// Steps of 10 ms plus 1 ms per sample.
std::vector<BatchCandidate> candidates() {
  std::vector<BatchCandidate> all;
  for (const int64_t batch : {16, 32, 64, 128, 256}) {
    BatchCandidate c;
    c.batch = batch;
    c.grain = 16;
    c.lanes = 2;
    c.step = {0.010 + 0.001 * static_cast<double>(batch)};
    all.push_back(c);
  }
  return all;
}

TEST(BatchChoice, GrowsWithTheNoise) {
  // (10 + X)·(1 + B/X) is least at X = √(10·B).
  EXPECT_EQ(choose(candidates(), 100).batch, 32);
  EXPECT_EQ(choose(candidates(), 410).batch, 64);
  EXPECT_EQ(choose(candidates(), 0).batch, 16);
  EXPECT_EQ(choose(candidates(), std::numeric_limits<double>::infinity()).batch, 256);
  const BatchChoice choice = choose(candidates(), 100);
  EXPECT_DOUBLE_EQ(choice.candidates[1].updates, 1 + 100.0 / 32);
  EXPECT_DOUBLE_EQ(choice.candidates[1].time_to_target, 0.042 * (1 + 100.0 / 32));
}

TEST(BatchChoice, LeavesOutWhatCannotBe) {
  std::vector<BatchCandidate> some = candidates();
  some[1].obstacle = "not enough memory";
  const BatchChoice choice = choose(some, 80);
  EXPECT_EQ(choice.batch, 16);
  EXPECT_THAT(describe(choice), Contains(HasSubstr("batch    32: not possible: not enough")));
  for (BatchCandidate& c : some) c.obstacle = "no room";
  EXPECT_THAT([&] { choose(some, 100); }, testing::ThrowsMessage<InputError>(HasSubstr("no room")));
}

TEST(BatchChoice, TakesTheLargestOfThoseThatAreAsGood) {
  std::vector<BatchCandidate> some = candidates();
  some[1].obstacle = "not enough memory";
  // 16 takes 188.5, 64 takes 189.6.
  EXPECT_EQ(choose(some, 100).batch, 64);
}

TEST(BatchChoice, ALargerBatchIsNotPredictedToBeSlower) {
  std::vector<BatchCandidate> some = candidates();
  some[2].step = {1};
  some[4].grain = 32;
  some[4].step = {2};
  never_slower_in_a_larger_batch(some);
  EXPECT_DOUBLE_EQ(some[1].step.value, 0.042);
  EXPECT_DOUBLE_EQ(some[2].step.value, 0.084) << "twice the step of half the batch";
  EXPECT_DOUBLE_EQ(some[3].step.value, 0.138);
  EXPECT_DOUBLE_EQ(some[4].step.value, 2) << "another grain is another thing";
}

TEST(BatchChoice, IsMadeForAJob) {
  job::Job job;
  job.data.kind = "synthetic";
  job.data.shape = {3, 8, 8};
  job.data.classes = 4;
  job.data.size = 700;
  job.train.batch = 0;
  job.train.epochs = 1;
  job.train.lr.peak = 0.05;
  job.train.lr.base_batch = 64;
  job.engine.algorithms = "direct";
  model::Graph graph({3, 8, 8}, "small");
  const model::LayerId x = graph.relu(
      graph.conv(graph.input(), {.out = 8, .kernel = {3, 3}, .pad = {1, 1}, .bias = true}));
  graph.softmax_cross_entropy(
      graph.linear(graph.add(model::GlobalAveragePool{}, {x}), 4, "classes"));
  const data::Source source = data::open(job.data);
  const auto optimizer = optim::make_optimizer(job.train);
  PlanOptions options;
  options.profile_cache.clear();
  options.measure = true;
  const CoreMap cores = usable_cores();
  const BatchChoice choice = choose_batch(job, graph, source, *optimizer, cores, options);
  ASSERT_EQ(choice.candidates.size(), 3U) << "16, 32 and 64: 10 updates in an epoch at least";
  EXPECT_GT(choice.steps, 7);
  EXPECT_GT(choice.noise, 0);
  EXPECT_THAT(std::vector<int64_t>({16, 32, 64}), Contains(choice.batch));
  for (const BatchCandidate& c : choice.candidates) {
    EXPECT_GT(c.step.value, 0);
    EXPECT_EQ(c.batch % c.grain, 0);
  }
  job.engine.grain = 32;
  EXPECT_EQ(choose_batch(job, graph, source, *optimizer, cores, options).candidates.size(), 2U)
      << "a pinned grain leaves out batches that it does not divide";
}

}  // namespace
}  // namespace convoy::plan
