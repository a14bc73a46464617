// Workers that take turns in training against model servers get the bits of the ordinary stepper.

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/comm/thread_world.hpp"
#include "convoy/sync/model_servers.hpp"

#include "tests/sync/server_exercise.hpp"
#include "tests/sync/training.hpp"

namespace convoy::sync {
namespace {

std::unique_ptr<engine::Program> compile(const Graph& graph) {
  engine::CompileOptions options;
  options.grain = kGrain;
  options.algorithms =
      engine::wherever_possible(graph, kGrain, engine::select_kernels(), engine::Algorithm::direct);
  return std::make_unique<engine::Program>(graph, options);
}

struct Trained {
  std::vector<double> losses;  // of this worker's batches
  std::vector<float> state;    // weights and the optimizer's, as Training::state() has them
  Staleness staleness;
};

/// Trains `segments` of four batches, one worker at a time: `turn` goes round.
Trained train_in_turn(const Team& team, const engine::Program& program, const Graph& graph,
                      const std::string& optimizer_name, const ServerOptions& options,
                      int64_t segments, std::atomic<int64_t>& turn) {
  const auto optimizer = optim::make_optimizer(options_of(optimizer_name));
  ModelServers servers(team, program, *optimizer, options);
  Stepper batch(program, *optimizer, Training::stepper_options(1, 0));
  TestSource source(graph);
  const auto size = static_cast<size_t>(program.arena().size());
  std::vector<float> gradient(size);
  std::vector<std::vector<float>> states(static_cast<size_t>(optimizer->state_arrays()),
                                         std::vector<float>(size));
  const ModelServers::States spans(states.begin(), states.end());
  if (team.rank() == 0) engine::initialise(program.arena(), 5, batch.weights());
  servers.load(batch.weights(), spans);

  Trained trained;
  const auto one = [&] {
    const std::optional<int64_t> ticket = servers.ticket();
    if (!ticket) return false;
    servers.pull(batch.weights());
    batch.weights_changed();
    const double loss = batch.gradient(*ticket, source, gradient).loss;
    EXPECT_EQ(servers.push({*ticket, 0.05, loss}, gradient), Fate::applied);
    trained.losses.push_back(loss);
    return true;
  };
  for (int64_t segment = 0; segment < segments; ++segment) {
    servers.begin_segment(4 * segment, 4 * segment + 4);
    for (bool more = true; more;) {
      int64_t now = turn.load();
      while (now % team.size() != team.rank()) {
        turn.wait(now);
        now = turn.load();
      }
      more = one();
      ++turn;
      turn.notify_all();
    }
    trained.staleness += servers.end_segment(batch.weights(), spans).staleness;
    if (team.rank() == 0) turn = 0;
    team.meet("beginning with worker 0 again");
  }
  trained.state.assign(batch.weights().begin(), batch.weights().begin() + program.arena().size());
  for (const auto& state : states) {
    trained.state.insert(trained.state.end(), state.begin(), state.end());
  }
  return trained;
}

void expect_the_bits_of_the_stepper(const Graph& graph, const std::string& optimizer, double clip,
                                    int workers, ServerOptions options) {
  SCOPED_TRACE(fmt::format("{} workers, {}", workers, optimizer));
  constexpr int64_t kSegments = 2;
  Training reference(graph, 1, optimizer, clip);
  double last_loss = 0;
  for (int64_t step = 0; step < 4 * kSegments; ++step) last_loss = reference.step(step).loss;
  const std::vector<float> expected = reference.state();

  options.update.grains = kBatch / kGrain;
  options.update.decay_all = false;
  options.update.clip_norm = clip;
  const auto program = compile(graph);
  std::atomic<int64_t> turn = 0;
  comm::run_as_threads(workers, [&](comm::Communicator& world) {
    const Team team(world, options.deadline);
    const Trained trained =
        train_in_turn(team, *program, graph, optimizer, options, kSegments, turn);
    EXPECT_TRUE(trained.state == expected) << "other weights";
    if (workers == 1) {
      EXPECT_EQ(trained.losses.back(), last_loss);
    }
    EXPECT_EQ(trained.staleness.total(), 4 * kSegments * workers);
    EXPECT_EQ(trained.staleness.most(), 0) << "everybody saw all updates";
  });
}

TEST(ModelServersAndLanes, GiveTheBitsOfTheStepperToOneWorker) {
  for (const Scheme scheme : {Scheme::stale, Scheme::asynchronous, Scheme::backup}) {
    expect_the_bits_of_the_stepper(small_resnet(), "sgd", 0, 1, server_options(scheme));
  }
}

TEST(ModelServersAndLanes, GiveTheBitsOfTheStepperToWorkersThatTakeTurns) {
  expect_the_bits_of_the_stepper(small_resnet(), "sgd", 0, 3, server_options(Scheme::asynchronous));
  expect_the_bits_of_the_stepper(small_resnet(), "adam", 1.0, 2,
                                 server_options(Scheme::asynchronous));
  expect_the_bits_of_the_stepper(small_lenet(), "lars", 1.0, 4, server_options(Scheme::stale, 4));
}

}  // namespace
}  // namespace convoy::sync
