// Convoy prints what a training will take before it starts; this is what it then takes.
// The sanitizers keep memory of their own, so there the question makes no sense.

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include "convoy/base/memory.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/engine/program.hpp"
#include "convoy/job/job.hpp"
#include "convoy/model/zoo.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/stepper.hpp"

namespace convoy::sync {
namespace {

class SameSamples : public GrainSource {
 public:
  explicit SameSamples(int64_t values)
      : inputs_(static_cast<size_t>(values), 0.1F), labels_(static_cast<size_t>(values), 1) {}
  Samples get(int64_t /*step*/, int64_t /*grain*/) override {
    return {inputs_.data(), labels_.data()};
  }
  void release(int64_t /*step*/, int64_t /*grain*/) override {}

 private:
  std::vector<float> inputs_;
  std::vector<int32_t> labels_;
};

TEST(Memory, OfATrainingIsWhatWasPredicted) {
  model::ZooOptions options;
  options.input = model::Shape{3, 64, 64};
  const model::Graph graph = model::build("vgg-a", options);
  const auto optimizer = optim::make_optimizer(job::Train{});
  SameSamples source(4 * graph.input_shape().size());
  StepperOptions step_options;
  step_options.batch = 8;

  const Bytes before = resident_memory();
  engine::CompileOptions compile;
  compile.grain = 4;
  const engine::Program program(graph, compile);
  Stepper stepper(program, *optimizer, step_options);
  engine::initialise(program.arena(), 1, stepper.weights());
  stepper.weights_changed();
  stepper.step(0, 0.1, source);

  const auto taken = static_cast<double>((resident_memory() - before).value);
  const Bytes predicted = Stepper::memory(program, *optimizer, step_options).total();
  EXPECT_NEAR(taken, static_cast<double>(predicted.value),
              0.05 * static_cast<double>(predicted.value));
}

}  // namespace
}  // namespace convoy::sync

#endif
