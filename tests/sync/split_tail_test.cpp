// A classifier split over workers computes what a lane computes by itself.

#include "convoy/sync/split_tail.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/base/memory.hpp"
#include "convoy/comm/thread_world.hpp"

#include "tests/sync/training.hpp"

namespace convoy::sync {
namespace {

constexpr int64_t kStep = 3;

/// A convolution, and three linear layers with dropout and odd sizes.
Graph with_tail(float dropout) {
  Graph g({3, 8, 8}, "with-tail");
  LayerId x = g.relu(g.conv(g.input(), model::Conv{.out = 6, .kernel = {3, 3}, .pad = {1, 1}}));
  x = g.max_pool(x, 2, 2);
  x = g.add(model::Flatten{}, {x});
  for (const int64_t outputs : {40, 27}) {
    x = g.relu(g.linear(x, outputs));
    if (dropout > 0) x = g.add(model::Dropout{.rate = dropout}, {x});
  }
  g.softmax_cross_entropy(g.linear(x, 10));
  return g;
}

struct Model {
  std::unique_ptr<engine::Program> program;
  std::unique_ptr<optim::Optimizer> optimizer = optim::make_optimizer(options_of("sgd"));
  AlignedBuffer weights, momentum, prepared;

  explicit Model(const Graph& graph)
      : program(Training::compile(graph, engine::Algorithm::direct)),
        weights(AlignedBuffer::of_floats(program->arena().size())),
        momentum(AlignedBuffer::of_floats(program->arena().size())),
        prepared(AlignedBuffer::of_floats(program->prepared_size())) {
    engine::initialise(program->arena(), 5, weights.floats());
    program->prepare(all());
  }
  engine::Weights all() { return {weights.floats().data(), prepared.floats().data()}; }
};

struct Batch {
  std::vector<float> inputs;
  std::vector<int32_t> labels;

  explicit Batch(const Graph& graph) : labels(kBatch) {
    const auto each = static_cast<size_t>(graph.input_shape().size());
    inputs.resize(each * kBatch);
    for (int64_t i = 0; i < kBatch; ++i) {
      make_sample(kStep, i, std::span(inputs).subspan(static_cast<size_t>(i) * each, each),
                  labels[static_cast<size_t>(i)]);
    }
  }

  engine::GrainRun run(const engine::Program& program, int64_t grain, float* gradient) const {
    engine::GrainRun run;
    run.input = inputs.data() + grain * kGrain * program.graph().input_shape().size();
    run.labels = labels.data() + grain * kGrain;
    run.step = kStep;
    run.first_sample = grain * kGrain;
    run.gradient_scale = 1.0F / kBatch;
    run.gradient = gradient;
    return run;
  }
};

struct Outcome {
  double loss = 0;
  int64_t correct = 0;
  std::vector<float> gradient;  ///< of what comes before the tail
  std::vector<float> weights;   ///< of the tail, after an update
};

Outcome alone(const Graph& graph, int layers = 0) {
  Model model(graph);
  const Batch batch(graph);
  const int64_t size = model.program->arena().size();
  const auto lane = model.program->make_lane(model.all());
  std::vector<float> sum(static_cast<size_t>(size));
  AlignedBuffer gradient = AlignedBuffer::of_floats(size);
  Outcome outcome;
  for (int64_t g = 0; g < kBatch / kGrain; ++g) {
    const engine::GrainResult r = lane->run(batch.run(*model.program, g, gradient.floats().data()));
    outcome.loss += r.loss;
    outcome.correct += r.correct;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient.floats()[i];
  }
  const int64_t tail = model.program->tail()->last(layers).floats;
  outcome.gradient.assign(sum.begin() + tail, sum.end());
  const UpdateOptions options{kBatch / kGrain, false, 0, false};
  ModelArrays arrays;
  arrays.weights = model.weights.floats();
  arrays.states = {model.momentum.floats()};
  Updater updater(*model.program, *model.optimizer, options, arrays);
  const optim::StepContext context = updater.context(kStep, 0.1);
  for (size_t i = 0; i < updater.chunks().size(); ++i) {
    updater.update(i, sum.data() + updater.chunks()[i].begin, context);
  }
  const auto weights = model.weights.floats().first(static_cast<size_t>(tail));
  outcome.weights.assign(weights.begin(), weights.end());
  return outcome;
}

struct Setting {
  std::vector<std::vector<GrainRange>> lanes;  ///< by worker
  int copies = 1;
  int layers = 0;  ///< of the tail; 0: all
};

/// Of all rounds of a step.
void expect_the_traffic_foreseen(const SplitTail& tail, const Setting& setting,
                                 const engine::Tail& layers, int rank) {
  const int each = static_cast<int>(setting.lanes.size()) / setting.copies;
  const int first = rank / each * each;
  comm::Traffic expected;
  for (int64_t round = 0; round < kBatch / kGrain; ++round) {
    std::vector<int64_t> rows(static_cast<size_t>(each));
    for (int m = 0; m < each; ++m) {
      for (const GrainRange& lane : setting.lanes[static_cast<size_t>(first + m)]) {
        if (round < lane.size()) rows[static_cast<size_t>(m)] += kGrain;
      }
    }
    if (std::accumulate(rows.begin(), rows.end(), int64_t{0}) == 0) break;
    expected += SplitTail::traffic(layers, rows, rank - first);
  }
  EXPECT_EQ(tail.sent().bytes.value, expected.bytes.value);
  EXPECT_EQ(tail.sent().messages, expected.messages);
}

Outcome split(const Graph& graph, const Setting& setting) {
  Outcome all;
  std::mutex mutex;
  // On hosts of their own: workers of one host would share the model.
  std::vector<std::string> hosts;
  for (size_t i = 0; i < setting.lanes.size(); ++i) hosts.push_back("host" + std::to_string(i));
  comm::run_as_threads(
      static_cast<int>(setting.lanes.size()),
      [&](comm::Communicator& world) {
        Model model(graph);
        const Batch batch(graph);
        const int64_t size = model.program->arena().size();
        SplitTailOptions options;
        options.copies = setting.copies;
        options.layers = setting.layers;
        const engine::Tail split = model.program->tail()->last(setting.layers);
        options.batch = kBatch;
        options.decay_all = false;
        SplitTail tail(world, *model.program, *model.optimizer, options, model.weights.floats(),
                       {model.momentum.floats()});
        tail.begin(kStep, 0.1, setting.lanes);
        const auto run_lane = [&](const GrainRange& range) {
          const auto lane = model.program->make_lane(model.all());
          AlignedBuffer gradient = AlignedBuffer::of_floats(size);
          for (int64_t g = range.first; g < range.last; ++g) {
            engine::GrainRun run = batch.run(*model.program, g, gradient.floats().data());
            run.tail_layers = setting.layers;
            run.handover = [&](const float* rows, engine::GrainResult& result, float* d) {
              tail.handover(rows, run.labels, g, result, d);
            };
            const engine::GrainResult r = lane->run(run);
            const std::lock_guard lock(mutex);
            all.loss += r.loss;
            all.correct += r.correct;
            const std::span<const float> body =
                gradient.floats().subspan(static_cast<size_t>(split.floats));
            all.gradient.resize(body.size());
            for (size_t i = 0; i < body.size(); ++i) all.gradient[i] += body[i];
          }
        };
        std::vector<std::thread> threads;
        for (const GrainRange& range : setting.lanes[static_cast<size_t>(world.rank())]) {
          threads.emplace_back(run_lane, range);
        }
        for (std::thread& t : threads) t.join();
        tail.finish();
        expect_the_traffic_foreseen(tail, setting, split, world.rank());
        optim::StepContext context;
        context.step = kStep;
        context.learning_rate = 0.1;
        tail.update(context);
        tail.collect(true);
        const auto weights = model.weights.floats().first(static_cast<size_t>(split.floats));
        const std::lock_guard lock(mutex);
        if (all.weights.empty()) all.weights.assign(weights.begin(), weights.end());
        EXPECT_TRUE(std::ranges::equal(all.weights, weights)) << "all collect the same";
      },
      hosts);
  return all;
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  float largest = 0;
  for (const float v : a) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5F * largest) << i;
}

TEST(SplitTail, ComputesWhatALaneComputesByItself) {
  const std::vector<Setting> settings = {
      {{{{0, 6}}}, 1},
      {{{{0, 3}}, {{3, 6}}}, 1},
      {{{{0, 4}}, {{4, 6}}}, 1},  // unequal shares
      {{{{0, 2}}, {{2, 4}}, {{4, 6}}}, 1},
      {{{{0, 2}, {2, 3}}, {{3, 5}, {5, 6}}}, 1},      // two lanes each
      {{{{0, 6}}, {{6, 6}}}, 1},                      // nothing to do for one
      {{{{0, 2}}, {{2, 3}}, {{3, 5}}, {{5, 6}}}, 2},  // hybrid
      {{{{0, 3}}, {{3, 6}}}, 2},                      // as many copies as workers
      {{{{0, 1}}, {{1, 2}}, {{2, 3}}, {{3, 4}}, {{4, 5}}, {{5, 6}}}, 1},
  };
  for (const float dropout : {0.0F, 0.4F}) {
    const Graph graph = with_tail(dropout);
    const Outcome one = alone(graph);
    for (size_t i = 0; i < settings.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "setting " << i << ", dropout " << dropout);
      const Outcome several = split(graph, settings[i]);
      EXPECT_NEAR(several.loss, one.loss, 1e-5 * one.loss);
      EXPECT_EQ(several.correct, one.correct);
      expect_close(several.gradient, one.gradient);
      expect_close(several.weights, one.weights);
    }
  }
}

TEST(SplitTail, MayBeOnlyTheLastOfTheLinearLayers) {
  for (const float dropout : {0.0F, 0.4F}) {
    const Graph graph = with_tail(dropout);
    for (const int layers : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << layers << " layers, dropout " << dropout);
      const Outcome one = alone(graph, layers);
      const Outcome several = split(graph, {{{{0, 2}}, {{2, 4}}, {{4, 6}}}, 1, layers});
      EXPECT_NEAR(several.loss, one.loss, 1e-5 * one.loss);
      expect_close(several.gradient, one.gradient);
      expect_close(several.weights, one.weights);
    }
  }
}

TEST(Tail, IsFoundWhereANetworkEndsInLinearLayers) {
  const Model model(with_tail(0.4F));
  const auto& tail = model.program->tail();
  ASSERT_TRUE(tail);
  ASSERT_EQ(tail->layers.size(), 3U);
  EXPECT_EQ(tail->layers[0].inputs, 8 * 4 * 4);
  EXPECT_EQ(tail->layers[0].outputs, 40);
  EXPECT_EQ(tail->layers[1].outputs, 32);
  EXPECT_FLOAT_EQ(tail->layers[1].dropout, 0.4F);
  EXPECT_EQ(tail->classes, 10);
  EXPECT_EQ(Model(small_resnet()).program->tail()->layers.size(), 1U);
}

}  // namespace
}  // namespace convoy::sync
