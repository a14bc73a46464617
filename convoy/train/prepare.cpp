#include <filesystem>

#include "convoy/base/error.hpp"
#include "convoy/data/loader.hpp"
#include "convoy/model/yaml.hpp"
#include "convoy/optim/schedule.hpp"
#include "convoy/plan/batch.hpp"
#include "convoy/train/trainer.hpp"

namespace convoy::train {

model::Graph build_graph(const job::Job& job, const data::Source& source) {
  model::ZooOptions defaults;
  defaults.input = source.train->shape();
  defaults.classes = source.train->classes();
  defaults.smoothing = static_cast<float>(job.train.label_smoothing);
  model::Graph graph = model::from_yaml(job.model, job.file, defaults);
  graph.check_complete();
  if (graph.input_shape() != source.train->shape()) {
    refuse("model '{}' reads {}, but the samples of {} are {}", graph.name(),
           model::to_string(graph.input_shape()), job.data.kind,
           model::to_string(source.train->shape()));
  }
  if (graph.classes() < source.train->classes()) {
    refuse("model '{}' tells {} classes apart, but {} has {}", graph.name(), graph.classes(),
           job.data.kind, source.train->classes());
  }
  return graph;
}

Prepared prepare_job(job::Job job, const plan::PlanOptions& options) {
  if (!job.data.path.empty()) {
    job.data.path = std::filesystem::absolute(job.data.path).lexically_normal().string();
  }
  data::Source source = data::open(job.data);
  model::Graph graph = build_graph(job, source);
  auto optimizer = optim::make_optimizer(job.train);
  const CoreMap cores = usable_cores();
  std::vector<std::string> batch_table;
  if (job.train.batch == 0) {
    const plan::BatchChoice choice =
        plan::choose_batch(job, graph, source, *optimizer, cores, options);
    job.train.batch = choice.batch;
    batch_table = plan::describe(choice);
  }
  optim::check(job.train.lr, optim::schedule_context(job.train, source.train->size()));
  plan::Planned planned = plan::make_plan(job, graph, *optimizer, cores, options);
  planned.plan.reasons.insert(planned.plan.reasons.begin(), batch_table.begin(), batch_table.end());
  return {std::move(job),       std::move(source),  std::move(graph),
          std::move(optimizer), std::move(planned), std::move(batch_table)};
}

void keep_plan(job::Job& job, const std::filesystem::path& plan) {
  const std::string file = plan.string();
  if (job.engine.algorithms == "auto") job.engine.algorithms = file;
  try {
    const YAML::Node saved = YAML::LoadFile(file);
    if (job.train.batch == 0) job.train.batch = saved["batch"].as<int64_t>();
    if (job.engine.threads_per_lane == 0 && saved["threads_per_lane"]) {
      job.engine.threads_per_lane = saved["threads_per_lane"].as<int64_t>();
    }
    const auto grain = saved["grain"].as<int64_t>();
    if (job.engine.grain == 0 && grain > 0 && job.train.batch % grain == 0) {
      job.engine.grain = grain;
    }
  } catch (const YAML::Exception& error) {
    if (job.engine.grain > 0 && job.train.batch > 0) return;
    refuse("{}: no plan can be read from it ({}); name the run's grain by --set engine.grain=N",
           file, error.what());
  }
}

Expected expected_tensors(const engine::Program& program, const optim::Optimizer& optimizer) {
  Expected expected;
  for (const engine::Tensor& t : program.arena().tensors()) {
    auto& list = t.kind == engine::Kind::parameter ? expected.weights : expected.buffers;
    list.push_back({t.name, t.shape});
  }
  expected.states = optimizer.state_names();
  return expected;
}

void restore_weights(const Checkpoint& checkpoint, const engine::Arena& arena,
                     std::span<float> weights) {
  size_t parameter = 0;
  size_t buffer = 0;
  for (const engine::Tensor& t : arena.tensors()) {
    const NamedTensor& from = t.kind == engine::Kind::parameter ? checkpoint.weights[parameter++]
                                                                : checkpoint.buffers[buffer++];
    engine::from_plain(t, from.values, weights);
  }
}

sync::EvalResult evaluate(sync::Stepper& stepper, const data::Source& source,
                          const data::Dataset& set, int64_t grain) {
  const int64_t grains = (set.size() + grain - 1) / grain;
  return stepper.evaluate(grains,
                          [&](int64_t index, std::span<float> inputs, std::span<int32_t> labels) {
                            return data::eval_grain(source, set, index, grain, inputs, labels);
                          });
}

}  // namespace convoy::train
