// Where linear layers should be computed, and in how many groups: where the answer is plain.

#include "convoy/plan/placement.hpp"

#include <gtest/gtest.h>

namespace convoy::plan {
namespace {

comm::LinkSpeed link(double bytes_per_second) {
  comm::LinkSpeed l;
  l.latency = {50e-6};
  l.per_byte = {1 / bytes_per_second};
  l.long_per_byte = l.per_byte;
  l.longest = {int64_t{1} << 60};
  l.per_message = {5e-6};
  l.add_per_byte = {1e-10};
  return l;
}

/// AlexNet's end, as a program would describe it.
StepFacts alexnet(int64_t batch) {
  engine::Tail tail;
  const auto add = [&](int64_t inputs, int64_t outputs) {
    engine::Tail::Linear l;
    l.inputs = inputs;
    l.outputs = outputs;
    tail.layers.push_back(l);
  };
  add(9216, 4096);
  add(4096, 4096);
  add(4096, 1000);
  int64_t end = 0;
  for (size_t i = tail.layers.size(); i-- > 0;) {
    end += tail.layers[i].inputs * tail.layers[i].outputs;
    tail.layers[i].end = end;
  }
  tail.floats = end;
  StepFacts facts;
  facts.computing = {2};
  facts.tail_part = 0.08;
  facts.weights = end + 2'300'000;
  facts.tail = tail;
  facts.batch = batch;
  facts.grain = 16;
  return facts;
}

TEST(Placement, SplitsLargeLinearLayersOnSlowLinks) {
  const auto ways = placements(alexnet(128), 4, link(12.5e6));
  EXPECT_NE(ways.front().classifier, "data");
  EXPECT_EQ(ways.front().layers, 3);
  const Placement data = place(alexnet(128), "data", 0, 1, 4, link(12.5e6));
  // 8 bytes for each weight but those of the own quarter.
  EXPECT_NEAR(static_cast<double>(data.sent.value), 8.0 * 0.75 * 60.9e6, 5e6);
  EXPECT_LT(10 * ways.front().sent.value, data.sent.value);
}

TEST(Placement, LeavesThemWhereTheyAreIfGradientsAreHidden) {
  const auto ways = placements(alexnet(128), 4, link(100e9));
  EXPECT_EQ(ways.front().classifier, "data");
}

TEST(Placement, MergingCostsWhatOneThreadTakesForAll) {
  const StepFacts facts = alexnet(128);
  const Placement merged = place(facts, "merged", 3, 1, 4, link(100e9));
  EXPECT_GT(merged.in_line.value, facts.tail_part * facts.computing.value);
  EXPECT_LT(merged.step.value, facts.computing.value);
}

TEST(Placement, WhoHasTheWeightsUpdatesThem) {
  StepFacts facts = alexnet(128);
  facts.linear.streaming = {0.1};
  const Placement merged = place(facts, "merged", 3, 1, 4, link(125e6));
  const Placement model = place(facts, "model", 3, 1, 4, link(125e6));
  const Placement hybrid = place(facts, "hybrid", 3, 2, 4, link(125e6));
  EXPECT_DOUBLE_EQ(merged.update.value, 4 * model.update.value);
  EXPECT_DOUBLE_EQ(hybrid.update.value, 2 * model.update.value);
  EXPECT_EQ(model.between.value, 0);
  // Half of the weights, in each direction.
  EXPECT_NEAR(hybrid.between.value, 4.0 * 58.6e6 / 2 / 125e6, 0.05 * hybrid.between.value);
  EXPECT_EQ(place(facts, "data", 0, 1, 4, link(125e6)).update.value, 0);
}

TEST(Placement, ProductsAreNeverFasterThanTheirArithmetic) {
  StepFacts facts = alexnet(128);
  const double rows = 128.0 / 4;  // of a worker
  const double own = facts.tail_part * facts.computing.value / 4;
  facts.linear = {{1}, {0.75 * own / rows}};  // memory that takes as long as one likes
  const Placement merged = place(facts, "merged", 3, 1, 4, link(125e6));
  // Four times its arithmetic, and what one of the four brings from memory.
  EXPECT_NEAR(merged.merged.value, (4 * 0.75 + 0.25) * own, 1e-9);
  EXPECT_NEAR(place(facts, "model", 3, 1, 4, link(125e6)).saved.value, 0.25 * 0.75 * own, 1e-9);
}

TEST(Placement, WithoutLinearLayersThereIsOneWay) {
  StepFacts facts = alexnet(128);
  facts.tail.reset();
  EXPECT_EQ(placements(facts, 8, link(1e9)).size(), 1U);
}

TEST(GroupForecast, NeedsNoGroupsWhereTheNetworkIsFast) {
  StepFacts facts = alexnet(128);
  facts.tail.reset();
  EXPECT_EQ(choose_groups(forecast_groups(facts, 8, 8, link(100e9)), 0.9), 1);
}

TEST(GroupForecast, TakesGroupsWhereSumsAreSlowButNotMoreThanTheMomentumAllows) {
  StepFacts facts = alexnet(128);
  facts.computing = {8};
  const auto slow = forecast_groups(facts, 8, 8, link(125e6));
  ASSERT_EQ(slow.size(), 4U);
  EXPECT_GT(slow[0].update.value, slow[1].update.value);
  const int free = choose_groups(slow, 0.95);
  EXPECT_GT(free, 1);
  EXPECT_LE(choose_groups(slow, 0.5), 2);
  EXPECT_EQ(choose_groups(slow, 0), 1);
}

}  // namespace
}  // namespace convoy::plan
