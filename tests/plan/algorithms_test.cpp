#include "convoy/plan/algorithms.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/plan/plan.hpp"

namespace convoy::plan {
namespace {

using engine::Algorithm;
using engine::Direction;
using testing::Contains;
using testing::HasSubstr;

/// A strided layer and one that Winograd can do.
model::Graph small_net() {
  model::Graph g({8, 12, 12}, "small");
  const model::Conv first{.out = 16, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}};
  const model::Conv second{.out = 16, .kernel = {3, 3}, .pad = {1, 1}};
  const model::LayerId a = g.relu(g.conv(g.input(), first, "first"));
  const model::LayerId b = g.relu(g.conv(a, second, "second"));
  g.softmax_cross_entropy(g.linear(g.add(model::GlobalAveragePool{}, {b}), 10));
  return g;
}

class AlgorithmsTest : public testing::Test {
 protected:
  AlgorithmsTest() { std::filesystem::create_directories(folder_); }
  ~AlgorithmsTest() override { std::filesystem::remove_all(folder_); }

  Planned planned(const std::string& algorithms, Bytes memory = {0}) {
    job::Job job;
    job.train.batch = 16;
    job.engine.grain = 4;
    job.engine.lanes = 2;
    job.engine.algorithms = algorithms;
    job.engine.memory = memory;
    PlanOptions options;
    options.profile_cache = folder_ / "profile.json";
    options.progress = [&](int, int, const std::string&) { ++measured_; };
    options.note = [&](const std::string& line) { notes_.push_back(line); };
    CoreMap cores;
    cores.cores = {0, 1};
    cores.physical = 2;
    cores.may_pin = false;
    const auto optimizer = optim::make_optimizer(job.train);
    return make_plan(job, small_net(), *optimizer, cores, options);
  }
  std::string refusal(const std::string& algorithms) {
    try {
      planned(algorithms);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing was refused";
  }
  std::string file(const std::string& text) {
    const auto path = folder_ / "plan.yaml";
    std::ofstream(path) << text;
    return path.string();
  }

  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("algorithms-" + std::to_string(::getpid()));
  int measured_ = 0;
  std::vector<std::string> notes_;
};

TEST_F(AlgorithmsTest, AreTakenByNameWhereverTheyArePossible) {
  const Plan plan = planned("winograd-2x2").plan;
  ASSERT_EQ(plan.algorithms.size(), 1U);
  EXPECT_EQ(plan.algorithms.begin()->second.of(Direction::backward_data), Algorithm::winograd2);
  EXPECT_EQ(measured_, 0);
}

TEST_F(AlgorithmsTest, OfAPlanAreTakenAsTheyAre) {
  const Plan plan =
      planned(file("algorithms: {second: {forward: winograd-4x4}, first: lowering}")).plan;
  const model::Graph graph = small_net();
  const YAML::Node names = to_yaml(plan.algorithms, graph);
  EXPECT_EQ(names["second"]["forward"].Scalar(), "winograd-4x4");
  EXPECT_FALSE(names["second"]["backward-data"]);
  EXPECT_EQ(names["first"]["backward-weights"].Scalar(), "lowering");
}

TEST_F(AlgorithmsTest, ThatCannotBeAreRefusedWithLayerAndReason) {
  EXPECT_THAT(refusal(file("algorithms: {first: {forward: winograd-4x4}}")),
              testing::AllOf(HasSubstr("'first'"), HasSubstr("its stride is not 1")));
  EXPECT_THAT(refusal(file("algorithms: {secnd: direct}")), HasSubstr("did you mean 'second'?"));
  EXPECT_THAT(refusal(file("algorithms: {second: magic}")), HasSubstr("there are direct"));
  EXPECT_THAT(refusal(file("algorithms: {second: {sideways: direct}}")), HasSubstr("no direction"));
  EXPECT_THAT(refusal(file("grain: 4")), HasSubstr("expected algorithms"));
  EXPECT_THAT(refusal("nosuchfile"), HasSubstr("nor a plan file"));
}

TEST_F(AlgorithmsTest, AreMeasuredOnceAndThenRemembered) {
  const Plan first = planned("auto").plan;
  // How many depends on what can still win, but both layers are measured directly, and the end is
  // told.
  EXPECT_GE(measured_, 3);
  EXPECT_FALSE(first.profile.empty());
  EXPECT_THAT(first.reasons, Contains(HasSubstr("algorithms: convolutions take")));
  measured_ = 0;
  const Plan second = planned("auto").plan;
  EXPECT_EQ(measured_, 0);
  EXPECT_EQ(second.algorithms, first.algorithms);
  EXPECT_TRUE(notes_.empty());
}

TEST_F(AlgorithmsTest, OfAnotherMachineAreMeasuredAgainWithALine) {
  std::ofstream(folder_ / "profile.json") << R"({"head": {"cpu": "abacus"}, "entries": {}})";
  planned("auto");
  EXPECT_GT(measured_, 0);
  EXPECT_THAT(notes_, testing::ElementsAre(HasSubstr("another CPU or version")));
  std::ofstream(folder_ / "profile.json") << "not JSON";
  notes_.clear();
  planned("auto");
  EXPECT_THAT(notes_, testing::ElementsAre(HasSubstr("cannot be read")));
}

}  // namespace
}  // namespace convoy::plan
