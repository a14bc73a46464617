// Training steps on several workers, here as threads: the same bits as on one, on one host and on
// several, with any shares.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/comm/thread_world.hpp"

#include "tests/sync/training.hpp"

namespace convoy::sync {
namespace {

constexpr Seconds kDeadline{60};

struct Setting {
  std::vector<std::string> hosts;  ///< one for each worker
  int lanes = 1;
  std::vector<int64_t> shares = {};
};

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<float> state;
  bool operator==(const Outcome&) const = default;
};

constexpr int kSteps = 8;

Outcome steps(Training& training) {
  Outcome outcome;
  for (int64_t step = 0; step < kSteps; ++step) {
    const StepResult result = training.step(step);
    EXPECT_TRUE(result.finite);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.gradient_norm);
  }
  outcome.state = training.state();
  return outcome;
}

Outcome alone(const Graph& graph, const std::string& optimizer, double clip) {
  Training training(graph, 1, optimizer, clip);
  return steps(training);
}

Outcome together(const Graph& graph, const Setting& setting, const std::string& optimizer,
                 double clip) {
  Outcome first;
  comm::run_as_threads(
      static_cast<int>(setting.hosts.size()),
      [&](comm::Communicator& world) {
        StepperOptions options = Training::stepper_options(setting.lanes, clip);
        options.shares = setting.shares;
        options.exchange.bucket = Bytes{16 * 1024};
        options.exchange.in_flight = Bytes{4096};
        Training training(graph, options, Team(world, kDeadline), optimizer);
        const Outcome outcome = steps(training);
        if (world.rank() == 0) first = outcome;
        EXPECT_EQ(training.source.held(), 0U);
      },
      setting.hosts);
  return first;
}

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = {
      {{"a", "a"}, 1},
      {{"a", "a", "a"}, 2},
      {{"a", "b"}, 1},
      {{"a", "b"}, 2, {5, 1}},
      {{"a", "b", "c"}, 1},
      {{"a", "b", "c", "d"}, 1, {3, 0, 2, 1}},
      {{"a", "a", "b", "b"}, 1},
      {{"a", "b", "a", "b"}, 1},
      {{"a", "a", "b"}, 2, {2, 1, 3}},
      {{"a", "b", "c", "d", "e", "f", "g"}, 1},
  };
  return all;
}

void expect_the_bits_of_one_worker(const Graph& graph, const std::string& optimizer, double clip) {
  const Outcome one = alone(graph, optimizer, clip);
  EXPECT_LT(one.losses.back(), one.losses.front()) << "it learns";
  for (const Setting& setting : settings()) {
    const Outcome several = together(graph, setting, optimizer, clip);
    EXPECT_EQ(several.losses, one.losses) << testing::PrintToString(setting.hosts);
    EXPECT_EQ(several.norms, one.norms) << testing::PrintToString(setting.hosts);
    EXPECT_TRUE(several.state == one.state)
        << testing::PrintToString(setting.hosts) << " give other weights";
  }
}

TEST(WorkersAndLanes, GiveTheSameWeightsWithSgd) {
  expect_the_bits_of_one_worker(small_resnet(), "sgd", 0);
}
TEST(WorkersAndLanes, GiveTheSameWeightsWithClippedAdam) {
  expect_the_bits_of_one_worker(small_resnet(), "adam", 1.0);
}
TEST(WorkersAndLanes, GiveTheSameWeightsWithLars) {
  expect_the_bits_of_one_worker(small_lenet(), "lars", 0);
}

}  // namespace
}  // namespace convoy::sync
