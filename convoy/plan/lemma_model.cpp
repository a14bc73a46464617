#include "convoy/plan/lemmas.hpp"
#include "convoy/plan/step_model.hpp"
#include "convoy/plan/step_setting.hpp"

namespace convoy::plan {
namespace {

constexpr double kFloat = 4;  // bytes

}  // namespace

StepForecast LemmaModel::forecast(const Configuration& given) const {
  Configuration c = given;
  c.bucket = {0};
  const StepSetting s(workload_, cluster_, c, c.groups - 1);  // the slowest
  StepForecast f;
  const double computing = static_cast<double>(s.rounds) * s.round(workload_.sample()).value;
  f.computing = {computing};
  double bytes = 0;
  for (size_t i = 0; i < workload_.layers.size(); ++i) {
    const LayerWork& layer = workload_.layers[i];
    if (!s.elsewhere[i]) {
      bytes += s.together() > 1 ? 2 * kFloat * static_cast<double>(layer.weights) : 0;
      continue;
    }
    const LayerSize size{.inputs = layer.inputs, .outputs = layer.outputs};
    bytes += c.classifier == "merged" ? 2 * kFloat * static_cast<double>(layer.inputs * c.batch)
                                      : hybrid_bytes(size, c.batch, s.together(), c.copies, 0);
  }
  f.sent = {static_cast<int64_t>(bytes)};
  f.link = s.link.transfer(bytes, bytes);
  if (!s.served()) {
    f.step = f.computing + f.link + (s.together() == 1 ? s.update : Seconds{0});
    f.update = f.step;
  } else {
    const double model = kFloat * static_cast<double>(workload_.weights());
    GroupTimes times;
    times.computing = {computing * s.together()};
    times.network = s.link.transfer(model / s.servers(), model);
    times.classifier = s.placement.merged;
    f.update = update_time(times, c.workers, c.groups);
    f.step = {f.update.value * c.groups};
  }
  f.waiting = f.step - f.computing;
  f.memory = worker_memory(workload_, c);
  return f;
}

}  // namespace convoy::plan
