#include "convoy/sync/updater.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace convoy::sync {

Updater::Updater(const engine::Program& program, const optim::Optimizer& optimizer,
                 const UpdateOptions& options, const ModelArrays& arrays)
    : program_(program),
      optimizer_(optimizer),
      options_(options),
      arrays_(arrays),
      measures_(optimizer.needs_norms() || options.clip_norm > 0 || options.measure),
      chunks_(cut_into_chunks(program.arena())) {
  std::erase_if(chunks_, [&](const Chunk& chunk) { return chunk.begin < options.first; });
  for (const std::span<float> state : arrays.states) states_.push_back(state.data());
  for (const engine::Tensor& tensor : program.arena().tensors()) {
    const bool weight = tensor.role == model::Role::weight;
    segments_.push_back({tensor.offset, tensor.stored, options.decay_all || weight, weight});
    const auto* norm = std::get_if<model::BatchNorm>(&program.graph().layer(tensor.layer).kind);
    statistic_momentum_.push_back(norm != nullptr ? norm->momentum : 0);
  }
  gradient_norm2_.resize(segments_.size());
  weight_norm2_.resize(segments_.size());
}

void Updater::measure(size_t index, const float* sum) {
  const Chunk& chunk = chunks_[index];
  const auto length = static_cast<size_t>(chunk.end - chunk.begin);
  const bool parameter = program_.arena().tensors()[chunk.tensor].kind == engine::Kind::parameter;
  arrays_.gradient_norm2[index] = parameter ? optim::squared_norm({sum, length}) : 0;
  arrays_.weight_norm2[index] = optim::squared_norm({arrays_.weights.data() + chunk.begin, length});
}

optim::StepContext Updater::context(int64_t step, double learning_rate) {
  optim::StepContext c;
  c.step = step;
  c.learning_rate = learning_rate;
  if (!measures_) return c;
  std::fill(gradient_norm2_.begin(), gradient_norm2_.end(), 0);
  std::fill(weight_norm2_.begin(), weight_norm2_.end(), 0);
  for (size_t i = 0; i < chunks_.size(); ++i) {
    gradient_norm2_[chunks_[i].tensor] += arrays_.gradient_norm2[i];
    weight_norm2_[chunks_[i].tensor] += arrays_.weight_norm2[i];
  }
  c.gradient_norm2 = gradient_norm2_;
  c.weight_norm2 = weight_norm2_;
  if (options_.clip_norm > 0 && gradient_norm() > options_.clip_norm) {
    c.gradient_scale = options_.clip_norm / gradient_norm();
  }
  return c;
}

double Updater::gradient_norm() const {
  return std::sqrt(std::accumulate(gradient_norm2_.begin(), gradient_norm2_.end(), 0.0));
}

void Updater::update_statistics(size_t tensor, int64_t begin, int64_t end, const float* sum) {
  const float momentum = statistic_momentum_[tensor];
  const float each = momentum / static_cast<float>(options_.grains);
  float* running = arrays_.weights.data();
  for (int64_t i = begin; i < end; ++i) {
    running[i] = (1 - momentum) * running[i] + each * sum[i - begin];
  }
}

void Updater::update(size_t index, const float* sum, const optim::StepContext& context) {
  update(index, chunks_[index].begin, chunks_[index].end, sum, context);
}

void Updater::update(size_t index, int64_t begin, int64_t end, const float* sum,
                     const optim::StepContext& context) {
  const size_t tensor = chunks_[index].tensor;
  if (program_.arena().tensors()[tensor].kind != engine::Kind::parameter) {
    update_statistics(tensor, begin, end, sum);
    return;
  }
  optimizer_.update(context, segments_[tensor], static_cast<int64_t>(tensor), begin, end,
                    arrays_.weights.data(), sum, states_);
}

}  // namespace convoy::sync
