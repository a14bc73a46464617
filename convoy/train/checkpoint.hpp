#pragma once
// Checkpoints: everything a training needs to go on bitwise as if it had never stopped, in one
// safetensors file. Weights and buffers stand under their own names, so that other tools can read
// them; optimizer state as "optimizer.<state>.<parameter>"; the rest in the metadata ("convoy.*").

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/train/safetensors.hpp"

namespace convoy::train {

/// Where a training stands; stored as metadata.
struct Progression {
  int64_t step = 0;      ///< updates done
  int64_t position = 0;  ///< samples of the training stream consumed
  uint64_t seed = 0;
  int64_t batch = 0;
  int64_t grain = 0;
  std::string model;              ///< its name
  uint64_t model_hash = 0;        ///< of its graph
  uint64_t data_fingerprint = 0;  ///< of the data set
  /// Early stopping: the best metric (higher is better), its step, and evaluations since then.
  double best_metric = -std::numeric_limits<double>::infinity();
  int64_t best_step = -1;
  int64_t evals_since_best = 0;
  Seconds elapsed;  ///< time spent training, over all sittings
  bool operator==(const Progression&) const = default;
};

struct Checkpoint {
  Progression at;
  std::vector<NamedTensor> weights;
  std::vector<NamedTensor> buffers;  ///< running statistics of batch norm
  /// Optimizer state by its name ("momentum"); as many tensors as weights, under their names.
  std::map<std::string, std::vector<NamedTensor>> states;
};

/// What a model expects to find.
struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
};
struct Expected {
  std::vector<ExpectedTensor> weights;
  std::vector<ExpectedTensor> buffers;
  std::vector<std::string> states;  ///< names of the optimizer's state arrays
};

/// The tensors of a checkpoint to be written; see Checkpoint.
struct CheckpointTensors {
  std::vector<Tensor> weights;
  std::vector<Tensor> buffers;
  std::map<std::string, std::vector<Tensor>> states;
};

/// Writes a checkpoint to `path`, atomically.
void save_checkpoint(const std::filesystem::path& path, const Progression& at,
                     const CheckpointTensors& tensors);

/// The best metric that the checkpoint at `path` was saved with.
double saved_metric(const std::filesystem::path& path);

/// Reads a checkpoint to go on training from. Throws InputError listing what is missing, what is
/// unexpected and whose shape differs (at most ten of them), or if the file holds weights only.
/// Tensors come in the order of `expected`.
Checkpoint load_checkpoint(const std::filesystem::path& path, const Expected& expected);

/// Reads only weights and buffers, for evaluation; the file may come from elsewhere. `expected`'s
/// states are not looked at, and `at` has only what the file tells.
Checkpoint load_weights(const std::filesystem::path& path, const Expected& expected);

}  // namespace convoy::train
