#pragma once
// A small training that steps as it is told, for tests of lanes and of workers.

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "convoy/base/error.hpp"
#include "convoy/base/random.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/job/job.hpp"
#include "convoy/model/zoo.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/stepper.hpp"

namespace convoy::sync {

using model::Graph;
using model::LayerId;

inline constexpr int64_t kBatch = 24;
inline constexpr int64_t kGrain = 4;

/// Batch norm, shortcuts with and without projection, dropout: all that could tell lanes apart.
inline Graph small_resnet() {
  Graph g({3, 8, 8}, "small-resnet");
  const auto conv = [](int64_t out, int64_t kernel, int64_t stride) {
    const int64_t pad = kernel / 2;
    return model::Conv{.out = out,
                       .kernel = {kernel, kernel},
                       .stride = {stride, stride},
                       .pad = {pad, pad},
                       .bias = false};
  };
  LayerId x = g.relu(g.batch_norm(g.conv(g.input(), conv(8, 3, 1))));
  for (const int64_t stride : {1, 2}) {
    const int64_t width = 8 * stride;
    LayerId y = g.relu(g.batch_norm(g.conv(x, conv(width, 3, stride))));
    y = g.batch_norm(g.conv(y, conv(width, 3, 1)));
    if (stride != 1) x = g.batch_norm(g.conv(x, conv(width, 1, stride)));
    x = g.relu(g.add(model::Add{}, {y, x}));
  }
  x = g.add(model::Dropout{.rate = 0.3F}, {g.add(model::GlobalAveragePool{}, {x})});
  g.softmax_cross_entropy(g.linear(x, 10));
  return g;
}

inline Graph small_lenet() {
  model::ZooOptions options;
  options.input = model::Shape{1, 16, 16};
  return model::build("lenet", options);
}

inline void make_sample(int64_t step, int64_t sample, std::span<float> input, int32_t& label) {
  Stream random(9, Purpose::test, static_cast<uint64_t>(step), static_cast<uint64_t>(sample));
  label = static_cast<int32_t>(random.below(10));
  for (float& v : input) v = random.normal() + 0.2F * static_cast<float>(label);
}

/// Samples that depend on their numbers only; what goes wrong can be asked for.
class TestSource : public GrainSource {
 public:
  explicit TestSource(const Graph& graph) : values_(graph.input_shape().size()) {}

  std::pair<int64_t, int64_t> throw_at{-1, -1};  ///< step, grain
  std::pair<int64_t, int64_t> nan_at{-1, -1};

  Samples get(int64_t step, int64_t grain) override {
    if (std::pair(step, grain) == throw_at) fail("disk gone");
    auto& [inputs, labels] = make(step, grain);
    for (int64_t i = 0; i < kGrain; ++i) {
      const auto at = static_cast<size_t>(i * values_);
      make_sample(step, grain * kGrain + i, std::span(inputs).subspan(at, values()),
                  labels[static_cast<size_t>(i)]);
    }
    if (std::pair(step, grain) == nan_at) {
      std::fill(inputs.begin(), inputs.end(), std::numeric_limits<float>::quiet_NaN());
    }
    return {inputs.data(), labels.data()};
  }

  void release(int64_t step, int64_t grain) override {
    const std::lock_guard lock(mutex_);
    held_.erase({step, grain});
  }

  size_t held() const { return held_.size(); }

 private:
  using Held = std::pair<std::vector<float>, std::vector<int32_t>>;

  size_t values() const { return static_cast<size_t>(values_); }
  Held& make(int64_t step, int64_t grain) {
    const std::lock_guard lock(mutex_);
    return held_
        .try_emplace({step, grain}, std::vector<float>(values() * kGrain),
                     std::vector<int32_t>(kGrain))
        .first->second;
  }

  int64_t values_;
  std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, Held> held_;
};

inline job::Train options_of(const std::string& optimizer) {
  job::Train train;
  train.optimizer = optimizer;
  train.weight_decay = 1e-3;
  train.trust = 0.02;
  return train;
}

/// A program, an optimizer and a stepper that starts from the same weights every time.
class Training {
 public:
  Training(const Graph& graph, int lanes, const std::string& optimizer = "sgd", double clip = 0,
           engine::Algorithm algorithm = engine::Algorithm::direct)
      : Training(graph, stepper_options(lanes, clip), Team(), optimizer, algorithm) {}

  /// As one worker of a team.
  Training(const Graph& graph, const StepperOptions& options, Team team,
           const std::string& optimizer = "sgd",
           engine::Algorithm algorithm = engine::Algorithm::direct)
      : optimizer_(optim::make_optimizer(options_of(optimizer))),
        program_(compile(graph, algorithm)),
        team_(std::move(team)),
        stepper(*program_, *optimizer_, options, team_),
        source(graph) {
    stepper.load([&] { engine::initialise(program_->arena(), 5, stepper.weights()); });
  }

  StepResult step(int64_t number) { return stepper.step(number, 0.05, source); }

  /// Weights and the optimizer's state, one after the other; worker 0 sees those of all.
  std::vector<float> state() {
    stepper.collect();
    std::vector<float> all(stepper.weights().begin(), stepper.weights().end());
    for (const std::span<float> s : stepper.states()) all.insert(all.end(), s.begin(), s.end());
    return all;
  }

  /// Workers as threads take turns: oneDNN sets itself up at its first use, by whomever.
  static std::unique_ptr<engine::Program> compile(const Graph& graph, engine::Algorithm algorithm) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    return std::make_unique<engine::Program>(graph, compile_options(graph, algorithm));
  }
  static engine::CompileOptions compile_options(const Graph& graph, engine::Algorithm algorithm) {
    engine::CompileOptions options;
    options.grain = kGrain;
    options.algorithms =
        engine::wherever_possible(graph, kGrain, engine::select_kernels(), algorithm);
    return options;
  }

  static StepperOptions stepper_options(int lanes, double clip) {
    StepperOptions options;
    options.batch = kBatch;
    options.lanes = lanes;
    options.clip_norm = clip;
    options.decay_all = false;
    return options;
  }

 private:
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<engine::Program> program_;
  Team team_;

 public:
  Stepper stepper;
  TestSource source;
};

}  // namespace convoy::sync
