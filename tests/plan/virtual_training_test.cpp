// Training in virtual time: the bits of a plain training with one group, staleness as the turns
// are.

#include "convoy/plan/virtual_training.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "convoy/data/dataset.hpp"
#include "convoy/data/loader.hpp"
#include "convoy/model/zoo.hpp"
#include "convoy/plan/loader_source.hpp"
#include "convoy/plan/virtual_target.hpp"

namespace convoy::plan {
namespace {

class VirtualTrainingTest : public testing::Test {
 protected:
  VirtualTrainingTest() {
    job::Data data;
    data.kind = "synthetic";
    data.shape = {3, 8, 8};
    data.classes = 4;
    data.size = 256;
    source_ = data::open(data);
    model::Graph graph({3, 8, 8}, "tiny");
    auto at = graph.conv(graph.input(), {.out = 8, .kernel = {3, 3}, .pad = {1, 1}, .bias = true});
    at = graph.relu(at);
    at = graph.linear(graph.add(model::Flatten{}, {at}), 4);
    graph.softmax_cross_entropy(at);
    engine::CompileOptions options;
    options.grain = 8;
    program_ = std::make_unique<engine::Program>(graph, options);
    train_.momentum = 0.9;
    optimizer_ = optim::make_optimizer(train_);
  }

  VirtualTraining training() const {
    VirtualOptions options;
    options.batch = 16;
    sync::StepperOptions stepping;
    stepping.lanes = 2;
    return VirtualTraining(*program_, *optimizer_, source_, options, stepping);
  }

  static VirtualTraining::Stop after(size_t updates) {
    return [updates](const VirtualRun& run) { return run.points.size() >= updates; };
  }

  job::Train train_;
  data::Source source_;
  std::unique_ptr<engine::Program> program_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

TEST_F(VirtualTrainingTest, WithOneGroupGivesTheBitsOfAPlainTraining) {
  VirtualTraining one = training();
  VirtualSetting setting;
  setting.turns = Turns::steady;
  const VirtualRun run = one.run(setting, after(20));
  ASSERT_EQ(run.points.size(), 20U);
  EXPECT_EQ(run.staleness.most(), 0);
  EXPECT_DOUBLE_EQ(one.time().value, 20);

  sync::StepperOptions stepping;
  stepping.lanes = 2;
  stepping.batch = 16;
  sync::Stepper stepper(*program_, *optimizer_, stepping);
  engine::initialise(program_->arena(), 1, stepper.weights());
  stepper.weights_changed();
  data::LoaderOptions loading;
  loading.batch = 16;
  loading.grain = 8;
  data::TrainLoader loader(source_, loading);
  LoaderSource samples(&loader);
  for (int64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(stepper.step(step, 0.01, samples).loss, run.points[static_cast<size_t>(step)].loss);
  }
  const VirtualTraining::State state = one.keep();
  EXPECT_TRUE(std::ranges::equal(state.weights, stepper.weights()));
}

TEST_F(VirtualTrainingTest, IsTheSameForTheSameSeed) {
  VirtualSetting setting;
  setting.groups = 5;
  setting.turns = Turns::memoryless;
  setting.momentum = 0.1;
  VirtualTraining a = training();
  VirtualTraining b = training();
  a.run(setting, after(50));
  b.run(setting, after(50));
  EXPECT_EQ(a.keep().weights, b.keep().weights);
  EXPECT_EQ(a.time().value, b.time().value);
}

TEST_F(VirtualTrainingTest, StalenessIsAsTheTurnsAre) {
  VirtualSetting setting;
  setting.groups = 4;
  setting.momentum = 0;
  setting.learning_rate = 1e-3;
  setting.turns = Turns::steady;
  const VirtualRun steady = training().run(setting, after(100));
  EXPECT_NEAR(steady.staleness.mean(), 3, 0.1);
  EXPECT_LE(steady.staleness.most(), 3);
  setting.turns = Turns::memoryless;
  const VirtualRun geometric = training().run(setting, after(400));
  EXPECT_NEAR(geometric.staleness.mean(), 3, 0.4);
  EXPECT_GT(geometric.staleness.most(), 8);
  // Four groups make four updates in a turn.
  EXPECT_NEAR(geometric.points.back().time.value, 100, 20);
}

TEST_F(VirtualTrainingTest, GoesBackToWhatWasKept) {
  VirtualTraining t = training();
  VirtualSetting setting;
  setting.turns = Turns::steady;
  t.run(setting, after(5));
  const VirtualTraining::State kept = t.keep();
  const VirtualRun first = t.run(setting, after(7));
  t.restore(kept);
  const VirtualRun again = t.run(setting, after(7));
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(first.points[i].loss, again.points[i].loss);
}

TEST_F(VirtualTrainingTest, SaysThatItDiverged) {
  VirtualSetting setting;
  setting.groups = 8;
  setting.learning_rate = 1e6;
  VirtualTraining t = training();
  EXPECT_TRUE(t.run(setting, after(500)).diverged);
}

TEST_F(VirtualTrainingTest, MeasuresWhatIsAppliedWhereNothingIsStale) {
  VirtualSetting setting;
  setting.measured = true;
  EXPECT_NEAR(training().run(setting, after(100)).applied, 0.9, 1e-3);
}

TEST_F(VirtualTrainingTest, TheLoopBeginsWithWhatTheoryAppliesAndCorrectsIt) {
  VirtualSetting setting;
  setting.measured = true;
  setting.groups = 4;
  setting.turns = Turns::memoryless;
  EXPECT_DOUBLE_EQ(training().run(setting, after(10)).applied, 0.9 - 0.75);
  const double later = training().run(setting, after(200)).applied;
  EXPECT_NE(later, 0.9 - 0.75);
  EXPECT_EQ(training().run(setting, after(200)).applied, later);
}

TEST_F(VirtualTrainingTest, MergedLayersAreAsInAPlainTrainingWithOneGroupOnly) {
  VirtualSetting setting;
  setting.turns = Turns::steady;
  const auto weights = [&](int groups, bool merged) {
    setting.groups = groups;
    setting.merged = merged;
    VirtualTraining t = training();
    t.run(setting, after(20));
    return t.keep().weights;
  };
  // A group's next gradient is under way when it stops, whose merged layers are updated already.
  const size_t tail = static_cast<size_t>(program_->tail()->floats);
  const auto rest = [&](const std::vector<float>& all) {
    return std::vector(all.begin() + static_cast<std::ptrdiff_t>(tail), all.end());
  };
  EXPECT_EQ(rest(weights(1, true)), rest(weights(1, false)));
  EXPECT_NE(rest(weights(4, true)), rest(weights(4, false)));
}

TEST_F(VirtualTrainingTest, LossesAreMeansOfAWindowUpToATime) {
  VirtualRun run;
  for (int i = 1; i <= 4; ++i) run.points.push_back({i, Seconds{1.0 * i}, 10.0 * i});
  EXPECT_DOUBLE_EQ(recent_loss(run, 2), 35);
  EXPECT_DOUBLE_EQ(recent_loss(run, 2, Seconds{2}), 15);
  EXPECT_TRUE(std::isinf(recent_loss(run, 2, Seconds{1})));
}

TEST_F(VirtualTrainingTest, CanBeTuned) {
  VirtualTraining t = training();
  VirtualTarget target(
      t, {1, 2, 4}, [](int groups) { return Seconds{groups == 1 ? 1.0 : 1.5}; }, {}, 1e-3);
  TuneOptions options;
  options.trial = {20};
  options.most = {1500};
  const Tuned tuned = tune(target, options);
  EXPECT_FALSE(tuned.trials.empty());
  EXPECT_GT(t.updates(), 0);
}

}  // namespace
}  // namespace convoy::plan
