#include "convoy/plan/step_time.hpp"

#include <algorithm>
#include <numeric>

#include "convoy/base/random.hpp"
#include "convoy/engine/peak.hpp"
#include "convoy/plan/measurements.hpp"

namespace convoy::plan {

RandomBatch::RandomBatch(const model::Graph& graph, int64_t batch, int64_t grain)
    : grain_(grain),
      size_(graph.input_shape().size()),
      inputs_(AlignedBuffer::of_floats(batch * size_)),
      labels_(static_cast<size_t>(batch)) {
  Stream random(1, Purpose::synthetic);
  for (float& value : inputs_.floats()) value = 2 * random.uniform() - 1;
  for (int32_t& label : labels_) {
    label = static_cast<int32_t>(random.below(static_cast<uint32_t>(graph.classes())));
  }
}

sync::GrainSource::Samples RandomBatch::get(int64_t, int64_t grain) {
  return {inputs_.floats().data() + grain * grain_ * size_, labels_.data() + grain * grain_};
}

Seconds StepTime::of(int64_t batch, int64_t grain, int lanes) const {
  const int64_t grains = batch / grain;
  const int64_t rounds = (grains + lanes - 1) / lanes;
  return {static_cast<double>(rounds) * round.value + update.value};
}

int64_t measured_rounds(int64_t batch, int64_t grain, int lanes) {
  return std::clamp<int64_t>(batch / grain / lanes, 1, 2);
}

StepTime measure_step(const engine::Program& program, const optim::Optimizer& optimizer,
                      sync::StepperOptions options, bool instructions) {
  // What predictions go by is measured longer than what is only compared.
  const size_t least_steps = instructions ? 5 : 2;
  const Seconds long_enough{instructions ? 1.5 : 0.4};
  // Small enough to leave random data a finite loss, whatever the optimizer.
  constexpr double kRate = 1e-6;
  const int64_t rounds = measured_rounds(options.batch, program.grain(), options.lanes);
  options.batch = rounds * options.lanes * program.grain();
  sync::Stepper stepper(program, optimizer, options);
  engine::initialise(program.arena(), options.seed, stepper.weights());
  stepper.weights_changed();
  RandomBatch batch(program.graph(), options.batch, program.grain());
  stepper.step(0, kRate, batch);
  if (instructions) stepper.take_profile();
  std::vector<double> computing;
  std::vector<double> updating;
  const Seconds begin = now();
  while (computing.size() < least_steps || now() - begin < long_enough) {
    const Seconds before = now();
    const auto step = static_cast<int64_t>(computing.size()) + 1;
    const sync::StepResult result = stepper.step(step, kRate, batch);
    updating.push_back((now() - before - result.computing).value);
    computing.push_back(result.computing.value / static_cast<double>(rounds));
  }
  // Under a quota of a core, steps are short or long by chance, and a training has their mean.
  const auto typical = [&](std::vector<double>& seconds) {
    if (!instructions) return median(std::move(seconds));
    return std::accumulate(seconds.begin(), seconds.end(), 0.0) /
           static_cast<double>(seconds.size());
  };
  StepTime time{{typical(computing)}, {typical(updating)}};
  if (instructions) time.instructions = stepper.take_profile();
  return time;
}

LinearTime measure_linear(int64_t floats) {
  constexpr double kOfPeak = 0.9;  // what products of many rows come to
  constexpr double kFlops = 6;     // a sample's, of a weight: forward, and both gradients
  const engine::ThreadSpeed thread = engine::measure_thread();
  const auto weights = static_cast<double>(floats);
  return {{2 * sizeof(float) * weights / thread.bytes_per_second},
          {kFlops * weights / (kOfPeak * thread.flops)}};
}

}  // namespace convoy::plan
