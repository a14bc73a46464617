// A small residual network of your own, built and trained in C++.
//
// Run:     build/release/example_custom_model
// Expect:  a table of its layers, ending in 46,970 parameters and 23.7 MFLOP per image; the same
//          network as YAML, ready for the `model:` part of a job; then thirty steps on random
//          images of ten classes, in which the loss falls from about 3.5 to below 0.5.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "convoy/base/random.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/model/graph.hpp"
#include "convoy/model/yaml.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/stepper.hpp"

namespace {

using convoy::model::Conv;
using convoy::model::Graph;
using convoy::model::LayerId;

/// 3×3 convolution and batch norm; the norm's shift makes a bias superfluous.
LayerId conv_norm(Graph& graph, LayerId from, int64_t out, int64_t stride) {
  const Conv conv{
      .out = out, .kernel = {3, 3}, .stride = {stride, stride}, .pad = {1, 1}, .bias = false};
  return graph.batch_norm(graph.conv(from, conv));
}

/// Two convolutions whose result is added to what they read.
LayerId residual(Graph& graph, LayerId from, const std::string& name) {
  const int64_t channels = graph.layer(from).out.channels;
  LayerId x = graph.relu(conv_norm(graph, from, channels, 1));
  x = conv_norm(graph, x, channels, 1);
  return graph.relu(graph.add(convoy::model::Add{}, {x, from}, name));
}

Graph small_residual_net() {
  Graph graph({1, 28, 28}, "small-residual-net");
  LayerId x = graph.relu(conv_norm(graph, graph.input(), 16, 1));
  x = residual(graph, x, "first");
  x = graph.relu(conv_norm(graph, x, 32, 2));
  x = residual(graph, x, "second");
  x = residual(graph, x, "third");
  x = graph.add(convoy::model::GlobalAveragePool{}, {x});
  graph.softmax_cross_entropy(graph.linear(x, 10, "classes"));
  graph.check_complete();
  return graph;
}

constexpr int64_t kBatch = 32;
constexpr int64_t kGrain = 8;  // samples a lane runs at a time

/// The same batch in every step: noise, with a bright row where the label says.
class OneBatch final : public convoy::sync::GrainSource {
 public:
  explicit OneBatch(convoy::model::Shape shape)
      : pixels_(shape.size()), inputs_(kBatch * shape.size()), labels_(kBatch) {
    convoy::Stream random(1, convoy::Purpose::synthetic);
    for (float& value : inputs_) value = 2 * random.uniform() - 1;
    for (int64_t i = 0; i < kBatch; ++i) {
      labels_[i] = static_cast<int32_t>(i % 10);
      float* row = &inputs_[i * pixels_ + 2 * labels_[i] * shape.width];
      for (int64_t x = 0; x < shape.width; ++x) row[x] += 2;
    }
  }
  Samples get(int64_t /*step*/, int64_t grain) override {
    return {&inputs_[grain * kGrain * pixels_], &labels_[grain * kGrain]};
  }
  void release(int64_t /*step*/, int64_t /*grain*/) override {}

 private:
  int64_t pixels_;
  std::vector<float> inputs_;
  std::vector<int32_t> labels_;
};

void train(const Graph& graph) {
  const convoy::engine::Program program(graph, {.grain = kGrain});
  const auto optimizer = convoy::optim::make_optimizer({});  // SGD with momentum 0.9
  convoy::sync::StepperOptions options;
  options.batch = kBatch;
  options.lanes = 2;
  convoy::sync::Stepper stepper(program, *optimizer, options);
  convoy::engine::initialise(program.arena(), 1, stepper.weights());
  stepper.weights_changed();
  OneBatch source(graph.input_shape());
  constexpr double kLearningRate = 0.05;
  for (int64_t step = 0; step < 30; ++step) {
    const convoy::sync::StepResult result = stepper.step(step, kLearningRate, source);
    if (step % 5 == 0 || step == 29) {
      std::printf("step %2d  loss %.3f  accuracy %3.0f %%\n", static_cast<int>(step), result.loss,
                  100 * result.accuracy);
    }
  }
}

}  // namespace

int main() {
  const Graph graph = small_residual_net();
  std::printf("%s\n%s\n", convoy::model::describe(graph).c_str(), to_yaml(graph).c_str());
  train(graph);
}
