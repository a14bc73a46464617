// Training steps on several workers, here as threads: the same bits as on one, on one host and on
// several, with any shares.

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/comm/thread_world.hpp"
#include "convoy/sync/merged_tail.hpp"
#include "convoy/sync/split_tail.hpp"

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

Outcome steps(Training& training, int64_t count) {
  Outcome outcome;
  for (int64_t step = 0; step < count; ++step) {
    const StepResult result = training.step(step);
    EXPECT_TRUE(result.finite);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.gradient_norm);
  }
  outcome.state = training.state();
  return outcome;
}

constexpr int64_t kSteps = 8;

Outcome alone(const Graph& graph, const std::string& optimizer, double clip,
              int64_t count = kSteps) {
  Training training(graph, 1, optimizer, clip);
  return steps(training, count);
}

StepperOptions options_of(const Setting& setting, double clip) {
  StepperOptions options = Training::stepper_options(setting.lanes, clip);
  options.shares = setting.shares;
  options.exchange.buckets = {Bytes{16 * 1024}};
  options.exchange.in_flight = Bytes{16 * 1024};
  return options;
}

/// Workers on these hosts do `work`, each with its training of the small resnet.
void run(const Setting& setting, double clip,
         const std::function<void(comm::Communicator&, Training&)>& work) {
  comm::run_as_threads(
      static_cast<int>(setting.hosts.size()),
      [&](comm::Communicator& world) {
        Training training(small_resnet(), options_of(setting, clip), Team(world, kDeadline));
        work(world, training);
      },
      setting.hosts);
}

Outcome together(const Graph& graph, const Setting& setting, const std::string& optimizer,
                 double clip, std::optional<comm::Algorithm> algorithm = std::nullopt,
                 int64_t count = kSteps) {
  Outcome first;
  comm::run_as_threads(
      static_cast<int>(setting.hosts.size()),
      [&](comm::Communicator& world) {
        StepperOptions options = options_of(setting, clip);
        if (algorithm) {
          options.exchange.order = ExchangeOptions::Order::given;
          options.exchange.way = *algorithm;
        }
        Training training(graph, options, Team(world, kDeadline), optimizer);
        const Outcome outcome = steps(training, count);
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

/// Largest difference relative to the largest value.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  double scale = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(double{a[i]} - double{b[i]}));
    scale = std::max(scale, std::abs(double{a[i]}));
  }
  return most / scale;
}

TEST(WorkersAndLanes, ComeCloseByEveryOtherWayToSum) {
  // Rounding differences grow from step to step.
  constexpr int64_t kFew = 2;
  const Outcome one = alone(small_resnet(), "sgd", 1.0, kFew);
  for (const auto algorithm : {comm::Algorithm::direct, comm::Algorithm::ring,
                               comm::Algorithm::halving, comm::Algorithm::colors}) {
    for (const Setting& setting : settings()) {
      const Outcome several = together(small_resnet(), setting, "sgd", 1.0, algorithm, kFew);
      EXPECT_LT(difference(one.state, several.state), 1e-4)
          << comm::to_string(algorithm) << testing::PrintToString(setting.hosts);
    }
  }
}

/// Convolutions and two linear layers: what is split, and what is not.
Graph with_classifier() {
  Graph g({3, 8, 8}, "with-classifier");
  LayerId x = g.relu(g.batch_norm(
      g.conv(g.input(), model::Conv{.out = 8, .kernel = {3, 3}, .pad = {1, 1}, .bias = false})));
  x = g.max_pool(x, 2, 2);
  x = g.add(model::Flatten{}, {x});
  x = g.add(model::Dropout{.rate = 0.3F}, {g.relu(g.linear(x, 40))});
  g.softmax_cross_entropy(g.linear(x, 10));
  return g;
}

/// Worker 0 has collected the whole state.
void expect_close(const Outcome& one, const Outcome& outcome, int rank) {
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], one.losses[i], 1e-4 * one.losses[i]);
  }
  if (rank == 0) {
    EXPECT_LT(difference(one.state, outcome.state), 1e-4);
  }
}

TEST(WorkersAndLanes, ComeCloseWithASplitClassifier) {
  constexpr int64_t kFew = 4;
  for (const std::string optimizer : {"sgd", "adam"}) {
    const Outcome one = alone(with_classifier(), optimizer, 0, kFew);
    for (const Setting& setting : settings()) {
      const auto workers = static_cast<int>(setting.hosts.size());
      for (int copies = 1; copies <= workers; ++copies) {
        if (workers % copies != 0) continue;
        SCOPED_TRACE(testing::Message()
                     << testing::PrintToString(setting.hosts) << " in " << copies);
        comm::run_as_threads(
            workers,
            [&](comm::Communicator& world) {
              StepperOptions options = options_of(setting, 0);
              const SplitTailOptions tail{copies, kBatch, options.seed, options.decay_all,
                                          kDeadline};
              const auto rule = optim::make_optimizer(sync::options_of(optimizer));
              const auto program = Training::compile(with_classifier(), engine::Algorithm::direct);
              options.make_tail = [&](const ModelArrays& arrays) {
                return std::make_unique<SplitTail>(world, *program, *rule, tail, arrays.weights,
                                                   arrays.states);
              };
              Training training(with_classifier(), options, Team(world, kDeadline), optimizer);
              const Outcome outcome = steps(training, kFew);
              expect_close(one, outcome, world.rank());
            },
            setting.hosts);
      }
    }
  }
}

TEST(WorkersAndLanes, ComeCloseWithAMergedClassifier) {
  constexpr int64_t kFew = 4;
  for (const std::string optimizer : {"sgd", "adam"}) {
    const Outcome one = alone(with_classifier(), optimizer, 0, kFew);
    for (const Setting& setting : settings()) {
      const auto workers = static_cast<int>(setting.hosts.size());
      comm::run_as_threads(
          workers,
          [&](comm::Communicator& world) {
            StepperOptions options = options_of(setting, 0);
            const Team team(world, kDeadline);
            MergedTailOptions tail;
            tail.rank = workers - 1;
            tail.groups.resize(1);
            for (int r = 0; r < workers; ++r) tail.groups[0].push_back(r);
            tail.tail = {1, kBatch, options.seed, options.decay_all, kDeadline};
            const auto rule = optim::make_optimizer(sync::options_of(optimizer));
            const auto program = Training::compile(with_classifier(), engine::Algorithm::direct);
            MergedTail* merged = nullptr;
            options.make_tail = [&](const ModelArrays& arrays) {
              auto made = std::make_unique<MergedTail>(
                  team, 0, *program, *rule, tail, arrays.weights, arrays.states, team.local() == 0);
              merged = made.get();
              return made;
            };
            Training training(with_classifier(), options, Team(world, kDeadline), optimizer);
            merged->load();
            const Outcome outcome = steps(training, kFew);
            expect_close(one, outcome, world.rank());
          },
          setting.hosts);
    }
  }
}

/// Six grains, dealt out anew for each step; now and then a worker gets none.
std::vector<int64_t> shares_of_step(int64_t step, int workers) {
  std::vector<int64_t> shares(static_cast<size_t>(workers), 0);
  Stream random(7, Purpose::test, static_cast<uint64_t>(step));
  for (int64_t g = 0; g < kBatch / kGrain; ++g) {
    ++shares[random.below(static_cast<uint32_t>(workers))];
  }
  return shares;
}

void expect_the_bits_of_one_worker_with_moving_shares(const std::string& optimizer, double clip) {
  // Buckets of several sizes are tried meanwhile.
  constexpr int64_t kMany = 30;
  const Outcome one = alone(small_resnet(), optimizer, clip, kMany);
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(testing::PrintToString(setting.hosts));
    comm::run_as_threads(
        static_cast<int>(setting.hosts.size()),
        [&](comm::Communicator& world) {
          StepperOptions options = options_of(setting, clip);
          options.exchange.buckets = {{8 << 10}, {24 << 10}};
          options.most_shares.assign(setting.hosts.size(), kBatch / kGrain);
          Training training(small_resnet(), options, Team(world, kDeadline), optimizer);
          Outcome outcome;
          for (int64_t step = 0; step < kMany; ++step) {
            const StepResult result = training.step(step);
            outcome.losses.push_back(result.loss);
            outcome.norms.push_back(result.gradient_norm);
            ASSERT_EQ(result.reports.size(), setting.hosts.size());
            for (int r = 0; r < world.size(); ++r) {
              const auto rank = static_cast<size_t>(r);
              EXPECT_EQ(result.reports[rank].grains, training.stepper.ranges()[rank].size());
              EXPECT_EQ(result.reports[rank].compute.value > 0, result.reports[rank].grains > 0);
            }
            training.stepper.set_shares(shares_of_step(step, world.size()));
          }
          outcome.state = training.state();
          if (world.rank() == 0) {
            EXPECT_TRUE(outcome == one) << "other bits";
          }
          EXPECT_EQ(training.source.held(), 0U);
        },
        setting.hosts);
  }
}

TEST(WorkersAndLanes, GiveTheSameWeightsWhileSharesMove) {
  expect_the_bits_of_one_worker_with_moving_shares("sgd", 0);
}
TEST(WorkersAndLanes, GiveTheSameWeightsWhileSharesMoveAndGradientsAreClipped) {
  expect_the_bits_of_one_worker_with_moving_shares("adam", 1.0);
}

TEST(WorkersAndLanes, GiveTheSameWeightsWhileTheSizeOfBucketsIsFound) {
  // All sizes may be tried, and some steps follow.
  constexpr auto kMany =
      static_cast<int64_t>(4 * (BucketTuner::kSettling + BucketTuner::kCounting) + 4);
  for (const double clip : {0.0, 1.0}) {
    const Outcome one = alone(small_resnet(), "adam", clip, kMany);
    for (const Setting& setting : settings()) {
      SCOPED_TRACE(testing::PrintToString(setting.hosts));
      comm::run_as_threads(
          static_cast<int>(setting.hosts.size()),
          [&](comm::Communicator& world) {
            StepperOptions options = options_of(setting, clip);
            options.exchange.buckets = {{8 << 10}, {12 << 10}, {24 << 10}};
            Training training(small_resnet(), options, Team(world, kDeadline), "adam");
            const Outcome outcome = steps(training, kMany);
            if (world.rank() == 0) {
              EXPECT_TRUE(outcome == one) << "other bits";
            }
            const bool one_host = std::ranges::count(setting.hosts, "a") == world.size();
            if (one_host) {
              EXPECT_EQ(training.stepper.tuner(), nullptr);
            } else {
              ASSERT_NE(training.stepper.tuner(), nullptr);
              EXPECT_TRUE(training.stepper.tuner()->done());
              EXPECT_GE(training.stepper.tuner()->tried().size(), 2U);
            }
          },
          setting.hosts);
    }
  }
}

void expect_untouched_by_nan(const Setting& setting, double clip) {
  SCOPED_TRACE(testing::PrintToString(setting.hosts));
  Training sound(small_resnet(), 1, "sgd", clip);
  sound.step(0);
  sound.step(2);
  const std::vector<float> expected = sound.state();
  run(setting, clip, [&](comm::Communicator& world, Training& training) {
    training.step(0);
    training.source.nan_at = {1, 4};
    EXPECT_FALSE(training.step(1).finite);
    EXPECT_TRUE(training.step(2).finite);
    const std::vector<float> state = training.state();
    if (world.rank() == 0) {
      EXPECT_EQ(state, expected);
    }
  });
}

TEST(WorkersAndLanes, LeaveEverythingAsItWasWhenTheLossIsNotANumber) {
  for (const double clip : {0.0, 1.0}) {
    for (const Setting& setting : settings()) expect_untouched_by_nan(setting, clip);
  }
}

TEST(WorkersAndLanes, AllHearTheLargestVote) {
  for (const Setting& setting : settings()) {
    run(setting, 0, [&](comm::Communicator& world, Training& training) {
      for (int64_t step = 0; step < 3; ++step) {
        const int64_t vote = world.rank() == 1 && step == 1 ? 7 : 0;
        EXPECT_EQ(training.stepper.step(step, 0.05, training.source, vote).vote, step == 1 ? 7 : 0);
      }
    });
  }
}

TEST(WorkersAndLanes, EndWithTheNameOfTheOneThatIsMissing) {
  for (const std::vector<std::string>& hosts :
       {std::vector<std::string>{"a", "a"}, std::vector<std::string>{"a", "b"}}) {
    comm::run_as_threads(
        2,
        [&](comm::Communicator& world) {
          Training training(small_lenet(), Training::stepper_options(1, 0), Team(world, Seconds{6}),
                            "sgd");
          training.step(0);
          training.state();
          if (world.rank() == 1) return;  // and the other goes on
          try {
            training.step(1);
            training.step(2);
            FAIL() << "nobody was missed";
          } catch (const comm::TimeoutError& error) {
            const std::string what = error.what();
            EXPECT_TRUE(what.find("worker 1") != std::string::npos ||
                        what.find("rank 1") != std::string::npos)
                << what;
          }
        },
        hosts);
  }
}

}  // namespace
}  // namespace convoy::sync
