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

/// All grains of a batch on one lane, summed in the order of the tree.
class BatchGradient {
 public:
  explicit BatchGradient(const engine::Program& program)
      : program_(program),
        weights_(AlignedBuffer::of_floats(program.arena().size())),
        prepared_(AlignedBuffer::of_floats(program.prepared_size())),
        slots_(AlignedBuffer::of_floats(RangeSum::slots(kAll) * program.arena().size())),
        lane_(program.make_lane(shared())),
        sum_(kAll, program.arena().size(), program.largest_layer(), slots_.floats()) {}

  std::span<float> weights() { return weights_.floats(); }

  /// Returns the mean loss.
  double compute(int64_t step, GrainSource& source, std::span<float> gradient) {
    program_.prepare(shared());
    sum_.restart();
    double loss = 0;
    for (int64_t g = 0; g < kAll.last; ++g) loss += run(step, g, source);
    std::vector<HeldSum> held;
    for (const RangeSum::Kept& kept : RangeSum::kept(kAll)) {
      held.push_back({kept.node, slots_.floats().data() +
                                     static_cast<int64_t>(kept.slot) * program_.arena().size()});
    }
    const TreeTotal total(held, kAll.size());
    std::vector<float> workspace(
        static_cast<size_t>(TreeTotal::workspace_size(kAll.size(), kChunk)));
    for (const Chunk& chunk : cut_into_chunks(program_.arena())) {
      std::copy_n(total.sum(chunk.begin, chunk.end, workspace), chunk.end - chunk.begin,
                  gradient.begin() + chunk.begin);
    }
    return loss / static_cast<double>(kBatch);
  }

 private:
  static constexpr GrainRange kAll{0, kBatch / kGrain};

  engine::Weights shared() { return {weights_.floats().data(), prepared_.floats().data()}; }
  double run(int64_t step, int64_t grain, GrainSource& source) {
    const GrainSource::Samples samples = source.get(step, grain);
    const RangeSum::Target target = sum_.next();
    engine::GrainRun run;
    run.input = samples.inputs;
    run.labels = samples.labels;
    run.step = step;
    run.first_sample = grain * kGrain;
    run.gradient_scale = 1.0F / static_cast<float>(kBatch);
    run.gradient = target.gradient;
    run.layer_by_layer = target.layer_by_layer;
    run.on_layer = [&](int64_t begin, int64_t end) { sum_.layer_complete(begin, end); };
    const engine::GrainResult result = lane_->run(run);
    sum_.grain_complete();
    source.release(step, grain);
    return result.loss;
  }

  const engine::Program& program_;
  AlignedBuffer weights_, prepared_, slots_;
  std::unique_ptr<engine::Lane> lane_;
  RangeSum sum_;
};

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
  BatchGradient batch(program);
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
    const double loss = batch.compute(*ticket, source, gradient);
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
