#pragma once
// Between a training's arrays, in the engine's layouts, and what a checkpoint holds of them.

#include <filesystem>
#include <span>
#include <vector>

#include "convoy/engine/program.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/train/checkpoint.hpp"

namespace convoy::train {

/// What checkpoints of this program hold.
Expected expected_tensors(const engine::Program& program, const optim::Optimizer& optimizer);

/// Weights, running statistics and the optimizer's state, to be saved; they refer to the arrays.
CheckpointTensors tensors_of(const engine::Arena& arena, const optim::Optimizer& optimizer,
                             std::span<const float> weights,
                             const std::vector<std::span<float>>& states);

/// Copies weights and running statistics of a checkpoint into an arena.
void restore_weights(const Checkpoint& checkpoint, const engine::Arena& arena,
                     std::span<float> weights);
/// The optimizer's state, likewise.
void restore_states(const Checkpoint& checkpoint, const engine::Arena& arena,
                    const optim::Optimizer& optimizer, const std::vector<std::span<float>>& states);

/// Going on with another stream, model or grain would not be the same training: refuses with what
/// differs.
void refuse_other(const Progression& saved, const Progression& now,
                  const std::filesystem::path& checkpoint);

}  // namespace convoy::train
