#include "convoy/train/model_state.hpp"

#include <string>

#include <fmt/format.h>

#include "convoy/base/error.hpp"

namespace convoy::train {
namespace {

/// The parameters in `values` or, without `parameters`, the running statistics.
std::vector<Tensor> plain_tensors(const engine::Arena& arena, std::span<const float> values,
                                  bool parameters) {
  std::vector<Tensor> tensors;
  for (const engine::Tensor& t : arena.tensors()) {
    if ((t.kind == engine::Kind::parameter) != parameters) continue;
    tensors.push_back({t.name, t.shape, [&t, values](const TakeValues& take) {
                         engine::to_plain(t, values, take);
                       }});
  }
  return tensors;
}

}  // namespace

Expected expected_tensors(const engine::Program& program, const optim::Optimizer& optimizer) {
  Expected expected;
  for (const engine::Tensor& t : program.arena().tensors()) {
    auto& list = t.kind == engine::Kind::parameter ? expected.weights : expected.buffers;
    list.push_back({t.name, t.shape});
  }
  expected.states = optimizer.state_names();
  return expected;
}

CheckpointTensors tensors_of(const engine::Arena& arena, const optim::Optimizer& optimizer,
                             std::span<const float> weights,
                             const std::vector<std::span<float>>& states) {
  CheckpointTensors tensors;
  tensors.weights = plain_tensors(arena, weights, true);
  tensors.buffers = plain_tensors(arena, weights, false);
  const std::vector<std::string> names = optimizer.state_names();
  for (size_t i = 0; i < names.size(); ++i) {
    tensors.states[names[i]] = plain_tensors(arena, states[i], true);
  }
  return tensors;
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

void restore_states(const Checkpoint& checkpoint, const engine::Arena& arena,
                    const optim::Optimizer& optimizer,
                    const std::vector<std::span<float>>& states) {
  const std::vector<std::string> names = optimizer.state_names();
  for (size_t i = 0; i < names.size(); ++i) {
    size_t parameter = 0;
    for (const engine::Tensor& t : arena.tensors()) {
      if (t.kind != engine::Kind::parameter) continue;
      engine::from_plain(t, checkpoint.states.at(names[i])[parameter++].values, states[i]);
    }
  }
}

void refuse_other(const Progression& saved, const Progression& now,
                  const std::filesystem::path& checkpoint) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* what, const auto& then, const auto& now_is) {
    if (then != now_is) {
      differences.push_back(fmt::format("{}: {} in the checkpoint, {} now", what, then, now_is));
    }
  };
  compare("train.seed", saved.seed, now.seed);
  compare("train.batch", saved.batch, now.batch);
  compare("grain", saved.grain, now.grain);
  compare("model", saved.model, now.model);
  compare("hash of the model", saved.model_hash, now.model_hash);
  compare("fingerprint of the data", saved.data_fingerprint, now.data_fingerprint);
  if (differences.empty()) return;
  std::string list;
  for (const std::string& d : differences) list += "\n  " + d;
  refuse("{} cannot be continued by this job:{}", checkpoint.string(), list);
}

}  // namespace convoy::train
