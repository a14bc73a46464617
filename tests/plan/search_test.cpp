// The search for a plan, where the best is plain.

#include "convoy/plan/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/model/zoo.hpp"

namespace convoy::plan {
namespace {

Cluster of(int count, double gflops, const std::string& bandwidth) {
  return parse_cluster("nodes: [{count: " + std::to_string(count) +
                           ", gflops: " + std::to_string(gflops) +
                           ", link: {bandwidth: " + bandwidth + ", latency: 20us}}]\n",
                       "test");
}

SearchOptions options_for(int64_t batch) {
  SearchOptions options;
  options.statistics.batch = batch;
  return options;
}

TEST(Search, TakesAllWorkersWhereLinksAreFast) {
  const Workload w = workload_of(model::build("resnet-50"));
  const SearchResult found = search(w, of(8, 500, "100Gbit/s"), options_for(256));
  EXPECT_EQ(found.best().configuration.workers, 8);
  EXPECT_EQ(found.best().configuration.groups, 1);
  EXPECT_EQ(found.by_workers.size(), 8U);
  for (size_t i = 1; i < found.by_workers.size(); ++i) {
    EXPECT_LT(found.by_workers[i].time, found.by_workers[i - 1].time);
  }
}

TEST(Search, TakesFewerWhereTheyWouldOnlyWait) {
  const Workload w = workload_of(model::build("mlp"));
  SearchOptions options = options_for(32);
  options.pins.groups = 1;
  const SearchResult found = search(w, of(8, 500, "10Mbit/s"), options);
  EXPECT_EQ(found.best().configuration.workers, 1);
}

TEST(Search, SplitsTheClassifierOfVgg) {
  const Workload w = workload_of(model::build("vgg-a"));
  SearchOptions options = options_for(256);
  options.pins.workers = 8;
  options.pins.groups = 1;
  const SearchResult found = search(w, of(8, 2000, "10Gbit/s"), options);
  EXPECT_NE(found.best().configuration.classifier, "data");
  options.pins.reproducible = true;
  EXPECT_EQ(search(w, of(8, 2000, "10Gbit/s"), options).best().configuration.classifier, "data");
}

TEST(Search, KeepsThePins) {
  const Workload w = workload_of(model::build("alexnet"));
  SearchOptions options = options_for(128);
  options.pins.workers = 6;
  options.pins.groups = 3;
  options.pins.classifier = "merged";
  const SearchResult found = search(w, of(8, 500, "1Gbit/s"), options);
  for (const Candidate& c : found.ranked) {
    EXPECT_EQ(c.configuration.workers, 6);
    EXPECT_EQ(c.configuration.groups, 3);
    EXPECT_EQ(c.configuration.classifier, "merged");
  }
  options.pins.workers = 9;
  EXPECT_THROW(search(w, of(8, 500, "1Gbit/s"), options), InputError);
}

TEST(Search, RefusesWhatFitsNowhere) {
  const Workload w = workload_of(model::build("vgg-a"));
  Cluster small = of(4, 500, "1Gbit/s");
  small.nodes[0].memory = parse_bytes("100MiB");
  try {
    search(w, small, options_for(32));
    FAIL() << "it took 100 MiB for enough";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("1.48 GiB at least"));
  }
}

TEST(Search, SaysWhatWouldHelp) {
  const Workload w = workload_of(model::build("vgg-a"));
  SearchOptions options = options_for(64);
  options.pins.workers = 8;
  options.pins.classifier = "data";
  options.pins.groups = 1;
  const Cluster slow = of(8, 2000, "1Gbit/s");
  const SearchResult found = search(w, slow, options);
  const std::vector<Advice> advice = advise(w, slow, options, found);
  EXPECT_EQ(advice.front().what, "links of twice the bandwidth");
  EXPECT_GT(advice.front().gain, 1.5);
}

TEST(Search, GivesGroupsServersOfTheirOwnWhereThatIsFaster) {
  const Workload w = workload_of(model::build("alexnet"));
  SearchOptions options = options_for(64);
  options.pins.workers = 4;
  options.pins.groups = 4;
  options.pins.classifier = "data";
  const SearchResult found = search(w, of(8, 500, "10Gbit/s"), options);
  std::vector<std::pair<int, bool>> tried;
  for (const Candidate& c : found.ranked) {
    tried.emplace_back(c.configuration.servers, c.configuration.own_servers);
    EXPECT_LE(c.configuration.processes(), 8);
  }
  using testing::Pair;
  EXPECT_THAT(tried, testing::UnorderedElementsAre(Pair(0, false), Pair(1, true), Pair(2, true),
                                                   Pair(4, true)));
  options.start.own_servers = true;
  options.pins.servers = 2;
  EXPECT_EQ(search(w, of(8, 500, "10Gbit/s"), options).ranked.size(), 1U);
}

TEST(Fit, GivesEveryLaneAGrain) {
  const Workload w = workload_of(model::build("resnet-50"));
  Configuration c;
  c.workers = 4;
  c.batch = 96;
  c.grain = 32;
  c.lanes = 8;
  EXPECT_TRUE(fit(w, {}, {}, c));
  EXPECT_EQ(c.lanes, 8);
  EXPECT_EQ(c.grain, 3);
  // A lane without a sample is none.
  c.batch = 16;
  EXPECT_TRUE(fit(w, {}, {}, c));
  EXPECT_EQ(c.lanes, 4);
  EXPECT_EQ(c.grain, 1);
}

TEST(Fit, TakesSmallerGrainsThenFewerLanesWhereMemoryIsShort) {
  Workload w = workload_of(model::build("resnet-50"));
  w.grain = 16;
  w.grain_memory = {int64_t{1} << 30};
  Configuration c;
  c.batch = 64;
  c.grain = 16;
  c.lanes = 4;
  Configuration smaller = c;
  EXPECT_TRUE(fit(w, {}, w.model_memory + Bytes{int64_t{2} << 30}, smaller));
  EXPECT_EQ(smaller.grain, 8);
  EXPECT_EQ(smaller.lanes, 4);
  Configuration wider = c;
  Pins pins;
  pins.grain = 16;
  EXPECT_TRUE(fit(w, pins, w.model_memory + Bytes{int64_t{2} << 30}, wider));
  EXPECT_EQ(wider.grain, 16);
  EXPECT_EQ(wider.lanes, 2);
  pins.lanes = 4;
  EXPECT_FALSE(fit(w, pins, w.model_memory + Bytes{int64_t{2} << 30}, c));
}

TEST(Statistics, WeighBatchesByTheNoiseScale) {
  const Statistics unknown{.batch = 64};
  EXPECT_DOUBLE_EQ(unknown.updates(128, 1), 0.5);
  const Statistics noisy{.batch = 64, .noise_scale = 1e9};
  EXPECT_NEAR(noisy.updates(128, 1), 0.5, 1e-6);
  const Statistics quiet{.batch = 64, .noise_scale = 1};
  EXPECT_NEAR(quiet.updates(128, 1), 1, 0.01);
}

TEST(Statistics, GroupsCostNothingUntilTheyBringMoreMomentumThanIsBest) {
  EXPECT_DOUBLE_EQ(group_penalty(1, 0.9), 1);
  EXPECT_NEAR(group_penalty(2, 0.9), 1.05, 1e-9);
  EXPECT_NEAR(group_penalty(8, 0.9), 1.15, 1e-9);
  EXPECT_NEAR(group_penalty(32, 0.9), 3.2 * 1.25, 1e-9);
  EXPECT_NEAR(group_penalty(4, 0.5), 2 * 1.1, 1e-9);
}

TEST(WorkerCounts, CoverALargeClusterThinly) {
  EXPECT_EQ(worker_counts(3), (std::vector<int>{1, 2, 3}));
  const std::vector<int> many = worker_counts(1000);
  EXPECT_EQ(many.back(), 1000);
  EXPECT_LT(many.size(), 60U);
  EXPECT_TRUE(std::ranges::count(many, 512) == 1);
}

}  // namespace
}  // namespace convoy::plan
