// The simulated step, where its length is known by hand.

#include "convoy/plan/step_model.hpp"

#include <gtest/gtest.h>

#include "convoy/model/zoo.hpp"

namespace convoy::plan {
namespace {

/// Three layers of 1, 2 and 1 ms for a sample, a third of it forward.
Workload three_layers() {
  Workload w;
  w.model = "three";
  for (const double ms : {1.0, 2.0, 1.0}) {
    LayerWork layer;
    layer.name = "layer" + std::to_string(w.layers.size());
    layer.forward = {ms * 1e-3 / 3};
    layer.backward = {ms * 2e-3 / 3};
    layer.weights = 1 << 20;
    w.layers.push_back(layer);
  }
  w.flops = {4e6};
  w.reference_gflops = 1;
  return w;
}

Cluster nodes(int count, double bandwidth, double latency = 0) {
  Cluster cluster;
  NodeType node;
  node.name = "node";
  node.count = count;
  node.link.bandwidth = bandwidth;
  node.link.latency = {latency};
  node.link.per_message = {0};
  cluster.nodes = {node};
  cluster.adding = 1e15;
  return cluster;
}

Configuration on(int workers, int64_t batch) {
  Configuration c;
  c.workers = workers;
  c.batch = batch;
  c.bucket = {4 << 20};
  return c;
}

TEST(EventModel, OneWorkerComputesAndUpdates) {
  Workload w = three_layers();
  w.update = {5e-3};
  const Cluster one = nodes(1, 1e9);
  const StepForecast f = EventModel(w, one).forecast(on(1, 32));
  EXPECT_NEAR(f.step.value, 32 * 4e-3 + 5e-3, 1e-9);
  EXPECT_EQ(f.sent.value, 0);
  EXPECT_EQ(f.bottleneck(), "computing");
}

TEST(EventModel, FastLinksHideEverythingButTheLastBucket) {
  const Workload w = three_layers();
  const Cluster four = nodes(4, 10e9);
  Configuration c = on(4, 32);
  const StepForecast f = EventModel(w, four).forecast(c);
  const double computing = 8 * 4e-3;
  EXPECT_NEAR(f.computing.value, computing, 1e-9);
  EXPECT_GT(f.step.value, computing);
  EXPECT_LT(f.step.value, 1.1 * computing);
  // Without overlap the whole exchange is added.
  c.overlap = false;
  const double exchange = 3 * 4.0 * (1 << 20) * 2 * 0.75 / 10e9;
  EXPECT_NEAR(EventModel(w, four).forecast(c).step.value, computing + exchange, 0.02 * computing);
}

TEST(EventModel, FindsTheBestSizeOfBuckets) {
  const Workload w = three_layers();
  const Cluster four = nodes(4, 1e9, 20e-6);
  Configuration c = on(4, 32);
  c.bucket = {-1};
  const double best = EventModel(w, four).forecast(c).step.value;
  for (const int64_t size : {64 << 10, 4 << 20, 64 << 20}) {
    c.bucket = {size};
    EXPECT_LE(best, EventModel(w, four).forecast(c).step.value);
  }
}

TEST(EventModel, SlowLinksAreTheStep) {
  const Workload w = three_layers();
  const Cluster four = nodes(4, 1e6);
  const StepForecast f = EventModel(w, four).forecast(on(4, 32));
  const double exchange = 3 * 4.0 * (1 << 20) * 2 * 0.75 / 1e6;
  EXPECT_GT(f.step.value, exchange);
  EXPECT_LT(f.step.value, exchange + f.computing.value);
  EXPECT_EQ(f.bottleneck(), "link");
  EXPECT_NEAR(static_cast<double>(f.sent.value), exchange * 1e6, 10);
}

TEST(EventModel, WaitsForSamplesThatTakeLongerThanTheComputing) {
  Workload w = three_layers();
  w.data = {3e-3};
  Cluster one = nodes(1, 1e9);
  one.nodes.front().cores = 2;  // one beside the lane
  EXPECT_NEAR(EventModel(w, one).forecast(on(1, 32)).step.value, 32 * 4e-3, 1e-9);
  w.data = {6e-3};
  const StepForecast slow = EventModel(w, one).forecast(on(1, 32));
  EXPECT_NEAR(slow.step.value, 32 * 6e-3, 1e-9);
  EXPECT_EQ(slow.bottleneck(), "data");
}

TEST(EventModel, LanesWithoutACoreToSparePrepareSamplesThemselves) {
  Workload w = three_layers();
  w.data = {3e-3};
  Cluster one = nodes(1, 1e9);
  one.nodes.front().cores = 1;
  EXPECT_NEAR(EventModel(w, one).forecast(on(1, 32)).step.value, 32 * (4e-3 + 3e-3), 1e-9);
}

TEST(EventModel, LanesAndLinkSlowEachOtherDownWhereLanesHaveAllCores) {
  const Workload w = three_layers();
  Cluster four = nodes(4, 1e9);
  Configuration c = on(4, 32);
  const StepForecast free = EventModel(w, four).forecast(c);
  four.nodes.front().link.lanes_left = 0.5;
  const StepForecast slowed = EventModel(w, four).forecast(c);
  // A sample's backward pass of two layers, while the last layer's bucket travels, and the first
  // layer's next forward pass, while the second's does, take twice as long.
  EXPECT_NEAR((slowed.computing - free.computing).value, (4 + 2 + 1) * 1e-3 / 3, 1e-9);
  four.nodes.front().cores = 2;
  EXPECT_DOUBLE_EQ(EventModel(w, four).forecast(c).step.value, free.step.value);
  // A link that is all there is to wait for is as fast as ever: lanes wait, and leave it the core.
  Cluster slow = nodes(4, 1e6);
  const double alone = EventModel(w, slow).forecast(c).step.value;
  slow.nodes.front().link.beside_lanes = 0.5;
  const double beside = EventModel(w, slow).forecast(c).step.value;
  EXPECT_GT(beside, alone);
  EXPECT_LT(beside, alone + 2 * free.computing.value);
}

TEST(EventModel, SplitLayersAreUpdatedByOneThread) {
  Workload w = workload_of(model::build("alexnet"));
  Cluster four = nodes(4, 1e9);
  four.nodes[0].gflops = 500;
  w.reference_gflops = 500;
  Configuration c = on(4, 128);
  c.classifier = "model";
  const double without = EventModel(w, four).forecast(c).step.value;
  // So little that it saves nothing of the products' time worth mentioning.
  w.linear.streaming = {1e-3};
  const double with = EventModel(w, four).forecast(c).step.value;
  EXPECT_NE(with, without);
  c.classifier = "hybrid";
  c.copies = 2;
  EXPECT_GT(EventModel(w, four).forecast(c).step.value, with) << "sums between copies";
}

TEST(EventModel, SharesFollowSpeeds) {
  const Workload w = three_layers();
  Cluster unequal = nodes(1, 100e9);
  unequal.nodes.push_back(unequal.nodes.front());
  unequal.nodes[1].speed = 0.5;
  Configuration c = on(2, 36);
  EXPECT_EQ(shares_of(w, c, unequal.fastest(2)), (std::vector<int64_t>{24, 12}));
  const double balanced = EventModel(w, unequal).forecast(c).step.value;
  c.balanced = false;
  const double equal = EventModel(w, unequal).forecast(c).step.value;
  EXPECT_NEAR(equal / balanced, 36.0 / 24, 0.01);
}

TEST(EventModel, GroupsUpdateInTurnUntilTheServersAreBusy) {
  const Workload w = three_layers();
  Configuration c = on(8, 32);
  c.groups = 8;
  const Cluster fast = nodes(8, 100e9);
  const StepForecast free = EventModel(w, fast).forecast(c);
  EXPECT_NEAR(free.step.value, 32 * 4e-3, 0.02 * 32 * 4e-3);
  EXPECT_NEAR(free.update.value, free.step.value / 8, 1e-12);
  // One server: eight groups' models through one link.
  c.servers = 1;
  const Cluster slow = nodes(8, 1e8);
  const StepForecast crowded = EventModel(w, slow).forecast(c);
  const double model = 3 * 4.0 * (1 << 20);
  EXPECT_NEAR(crowded.update.value, model / 1e8, 0.1 * model / 1e8);
  EXPECT_EQ(crowded.bottleneck(), "servers");
  // As many as the lemma asks for make it as fast as it can be.
  c.servers = 8;
  EXPECT_LT(EventModel(w, slow).forecast(c).update.value, 0.4 * crowded.update.value);
}

TEST(EventModel, GroupsAreAsFastAsTheirOwnNodes) {
  const Workload w = three_layers();
  Cluster unequal = nodes(2, 100e9);
  unequal.nodes.push_back(unequal.nodes.front());
  unequal.nodes[1].speed = 0.25;
  Configuration c = on(4, 32);
  c.groups = 2;
  // Two fast workers take 64 ms for a batch, two slow ones four times as long.
  const StepForecast f = EventModel(w, unequal).forecast(c);
  EXPECT_NEAR(1 / f.update.value, 1 / 0.064 + 1 / 0.256, 0.5);
}

TEST(EventModel, SlicesOfGroupsGoToTheServers) {
  const Workload w = workload_of(model::build("alexnet"));
  Cluster four = nodes(4, 125e6, 50e-6);
  four.nodes[0].gflops = 500;
  Configuration c = on(4, 128);
  c.groups = 2;
  c.classifier = "model";
  const StepForecast f = EventModel(w, four).forecast(c);
  // A quarter of nearly all weights each way on each of four servers' links, for every update.
  EXPECT_GT(f.server.value, 55e6 / 125e6);
  EXPECT_GE(f.update.value, 0.95 * f.server.value);
}

TEST(EventModel, StragglersHoldUpTheirGroupOnly) {
  const Workload w = three_layers();
  ForecastOptions options;
  options.steps = 30;
  options.stragglers.slowdown = [](int worker, int64_t) { return worker == 0 ? 3.0 : 1.0; };
  const Cluster four = nodes(4, 100e9);
  Configuration c = on(4, 32);
  const double together = EventModel(w, four, options).forecast(c).update.value;
  EXPECT_NEAR(together, 3 * 8 * 4e-3, 0.02 * together);
  c.groups = 4;
  const StepForecast apart = EventModel(w, four, options).forecast(c);
  EXPECT_NEAR(apart.step.value, (3 + 1 + 1 + 1) / 4.0 * 32 * 4e-3, 0.02 * apart.step.value);
}

TEST(EventModel, SharesFollowATraceThatCanBeForeseen) {
  const Workload w = three_layers();
  ForecastOptions options;
  options.steps = 60;
  options.stragglers = read_stragglers("constant:1,0.25", 2, 1);
  const Cluster two = nodes(2, 100e9);
  Configuration c = on(2, 40);
  const double followed = EventModel(w, two, options).forecast(c).step.value;
  EXPECT_NEAR(followed, 40 * 4e-3 / 1.25, 0.06 * followed);
  c.balanced = false;
  EXPECT_NEAR(EventModel(w, two, options).forecast(c).step.value, 4 * 20 * 4e-3, 1e-3);
}

TEST(EventModel, WorkersOfOneHostExchangeNothing) {
  Workload w = three_layers();
  w.update = {12e-3};
  Cluster one = nodes(1, 1e6);
  one.nodes[0].workers = 2;
  one.nodes[0].speed = 2;
  EXPECT_EQ(one.size(), 2);
  const StepForecast f = EventModel(w, one).forecast(on(2, 32));
  EXPECT_EQ(f.sent.value, 0);
  // Half of the update each, with one more gradient to add up.
  EXPECT_NEAR(f.step.value, 16 * 4e-3 + 12e-3 / 2 * 7 / 6, 1e-9);
}

TEST(EventModel, WorkersOfAHostShareItsLink) {
  const Workload w = three_layers();
  Cluster two = nodes(2, 1e6);
  two.nodes[0].workers = 2;
  two.nodes[0].speed = 2;
  const StepForecast f = EventModel(w, two).forecast(on(4, 32));
  const double exchange = 3 * 4.0 * (1 << 20) * 2 * 0.5 / 1e6;  // between two hosts
  EXPECT_GT(f.step.value, exchange);
  EXPECT_LT(f.step.value, exchange + f.computing.value);
  EXPECT_NEAR(static_cast<double>(f.sent.value), exchange * 1e6 / 2, 10);
}

TEST(EventModel, SumsInTheOrderOfTheTreeSendEverySubtree) {
  const Workload w = three_layers();
  const Cluster three = nodes(3, 1e6);
  Configuration c = on(3, 24);
  c.collective = "ring";
  const double ring = EventModel(w, three).forecast(c).step.value;
  c.collective = "tree";
  const StepForecast tree = EventModel(w, three).forecast(c);
  // 8 grains each: 0–7 is one subtree, 8–15 another, 16–23 one.
  EXPECT_NEAR(tree.step.value, ring, 0.02 * ring);
  c.batch = 21;  // 7 grains each, of which 7–13 are three subtrees: 7, 8–11, 12–13
  const StepForecast uneven = EventModel(w, three).forecast(c);
  EXPECT_NEAR(static_cast<double>(uneven.sent.value) / static_cast<double>(tree.sent.value),
              (3 + 1) / 2.0, 0.01);
}

TEST(EventModel, SplitLayersSendActivationsInsteadOfWeights) {
  const Workload w = workload_of(model::build("alexnet"));
  EXPECT_EQ(w.tail(), 3);
  Cluster four = nodes(4, 125e6, 50e-6);
  four.nodes[0].gflops = 500;
  Configuration c = on(4, 128);
  const StepForecast data = EventModel(w, four).forecast(c);
  c.classifier = "model";
  const StepForecast split = EventModel(w, four).forecast(c);
  EXPECT_LT(10 * split.sent.value, data.sent.value);
  EXPECT_LT(split.step.value, data.step.value);
  EXPECT_NEAR(split.computing.value, data.computing.value, 1e-6);
}

TEST(LemmaModel, LeavesOutWhatIsHidden) {
  const Workload w = three_layers();
  const Cluster four = nodes(4, 1e9);
  const Configuration c = on(4, 32);
  const StepForecast events = EventModel(w, four).forecast(c);
  const StepForecast lemma = LemmaModel(w, four).forecast(c);
  EXPECT_GT(lemma.step.value, events.step.value);
  EXPECT_NEAR(lemma.computing.value, events.computing.value, 1e-9);
}

TEST(Workload, OfArithmeticCountsAsTheGraphDoes) {
  const model::Graph graph = model::build("vgg-a");
  const Workload w = workload_of(graph);
  EXPECT_EQ(w.weights(), graph.parameter_count());
  EXPECT_NEAR(w.sample().value * 1e9, graph.training_flops().value,
              0.001 * graph.training_flops().value);
}

TEST(EventModel, IsQuickForTenThousandWorkers) {
  const Workload w = workload_of(model::build("resnet-50"));
  Cluster many = nodes(10'000, 1.25e9, 20e-6);
  many.nodes[0].gflops = 1000;
  ForecastOptions options;
  options.steps = 3;
  options.stragglers.slowdown = [](int worker, int64_t step) {
    return random_factor(0.1, 1, worker, step);
  };
  const Seconds begin = now();
  const StepForecast f = EventModel(w, many, options).forecast(on(10'000, 40'000));
  EXPECT_GT(f.step.value, 0);
  EXPECT_LT((now() - begin).value, 3);  // a second for a step, in a sanitizer's build, too
}

}  // namespace
}  // namespace convoy::plan
