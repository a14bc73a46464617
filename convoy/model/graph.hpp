#pragma once
// A neural network as a directed acyclic graph of layers with inferred shapes. It holds no numbers:
// weights live in the engine's arenas; here are only their names, shapes and roles.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy::model {

/// Extent of one sample. A feature vector of n values is {n, 1, 1}.
struct Shape {
  int64_t channels = 1;
  int64_t height = 1;
  int64_t width = 1;
  bool operator==(const Shape&) const = default;
  int64_t size() const { return channels * height * width; }
};
std::string to_string(const Shape& shape);  ///< "64×56×56", or "1000" for a vector

using Pair = std::array<int64_t, 2>;  ///< {vertical, horizontal}

// ---- The layers -------------------------------------------------------------------------------

struct Input {
  bool operator==(const Input&) const = default;
};

/// 2-D convolution. `groups` = input channels makes it depthwise.
struct Conv {
  int64_t out = 0;
  Pair kernel{1, 1};
  Pair stride{1, 1};
  Pair pad{0, 0};
  Pair dilation{1, 1};
  int64_t groups = 1;
  bool bias = true;
  bool operator==(const Conv&) const = default;
};

/// y = W·flatten(x) + b. The flattening is channel-major, as in the literature.
struct Linear {
  int64_t out = 0;
  bool bias = true;
  bool operator==(const Linear&) const = default;
};

/// Normalises each channel over the samples of one grain; running statistics for evaluation.
struct BatchNorm {
  float epsilon = 1e-5F;
  float momentum = 0.1F;  ///< weight of the newest statistics in the running ones
  bool operator==(const BatchNorm&) const = default;
};

enum class ActivationKind { relu, leaky_relu, relu6, elu, sigmoid, tanh, gelu };
struct Activation {
  ActivationKind kind = ActivationKind::relu;
  float alpha = 0.01F;  ///< slope of leaky_relu, scale of elu (usually 1); else unused
  bool operator==(const Activation&) const = default;
};

enum class PoolKind { max, average };
struct Pool {
  PoolKind kind = PoolKind::max;
  Pair kernel{2, 2};
  Pair stride{2, 2};
  Pair pad{0, 0};
  bool ceil = false;          ///< round the output extent up; the last window starts on the input
  bool count_padding = true;  ///< average: divide by the whole window, padding included
  bool operator==(const Pool&) const = default;
};

/// Mean over height and width of each channel.
struct GlobalAveragePool {
  bool operator==(const GlobalAveragePool&) const = default;
};

/// Across channels: y = x / (k + alpha/size · Σ x²)^beta over `size` neighbouring channels.
struct Lrn {
  int64_t size = 5;
  float alpha = 1e-4F;
  float beta = 0.75F;
  float k = 1.0F;
  bool operator==(const Lrn&) const = default;
};

/// Zeroes values with probability `rate` in training and scales the rest by 1/(1−rate).
struct Dropout {
  float rate = 0.5F;
  bool operator==(const Dropout&) const = default;
};

/// Element-wise sum of two or more different inputs of the same shape.
struct Add {
  bool operator==(const Add&) const = default;
};

/// Two or more different inputs side by side, along channels.
struct Concat {
  bool operator==(const Concat&) const = default;
};

/// {c, h, w} → {c·h·w}
struct Flatten {
  bool operator==(const Flatten&) const = default;
};

/// Softmax followed by cross-entropy with an integer label; the mean over the batch is the loss.
struct SoftmaxCrossEntropy {
  float smoothing = 0;  ///< label smoothing ε: the target is (1−ε)·one-hot + ε/classes
  bool operator==(const SoftmaxCrossEntropy&) const = default;
};

/// Mean over the batch of Σ (x − target)² / size. With integer labels the target is one-hot.
struct MeanSquaredError {
  bool operator==(const MeanSquaredError&) const = default;
};

using LayerKind =
    std::variant<Input, Conv, Linear, BatchNorm, Activation, Pool, GlobalAveragePool, Lrn, Dropout,
                 Add, Concat, Flatten, SoftmaxCrossEntropy, MeanSquaredError>;

/// "conv", "linear", "batch-norm", … as written in a job file.
std::string_view kind_name(const LayerKind& kind);
std::string_view kind_name(ActivationKind kind);

/// True for the layers that end a network: softmax-cross-entropy and mean-squared-error.
bool is_loss(const LayerKind& kind);

// ---- Parameters ---------------------------------------------------------------------------------

enum class Role { weight, bias, scale, shift };  ///< scale and shift are batch norm's γ and β

/// One learned tensor, in the plain layout that checkpoints use:
/// convolution {out, in/groups, kh, kw}, linear {out, in}, the others {channels}.
struct Parameter {
  std::string name;  ///< "layer1.0.conv1.weight"
  std::vector<int64_t> shape;
  Role role = Role::weight;
  int64_t fan_in = 1;  ///< for initialisation
  int64_t size() const;
};

/// Index of a layer in its graph; inputs always have smaller ids than their users.
using LayerId = int;

struct Layer {
  std::string name;
  LayerKind kind;
  std::vector<LayerId> inputs;
  Shape out;
  std::vector<Parameter> parameters;
};

/// A network under construction or complete. Each adding function infers the output shape and
/// throws InputError naming the layer and the shapes that do not fit; the graph is then unchanged.
/// Names are unique and made of letters, digits, '.', '_', '-' and '/'; "start" and "previous" mean
/// something else in YAML and are refused. An empty name is replaced by kind and number ("conv3").
class Graph {
 public:
  explicit Graph(Shape input, std::string name = "custom");

  LayerId add(LayerKind kind, std::vector<LayerId> inputs, std::string name = "");

  // Shorthands for the layers that zoo and examples use most.
  LayerId input() const { return 0; }
  LayerId conv(LayerId from, Conv conv, std::string name = "");
  LayerId linear(LayerId from, int64_t out, std::string name = "");
  LayerId batch_norm(LayerId from, std::string name = "");
  LayerId relu(LayerId from, std::string name = "");
  LayerId max_pool(LayerId from, int64_t kernel, int64_t stride, int64_t pad = 0,
                   std::string name = "");
  LayerId softmax_cross_entropy(LayerId from, float smoothing = 0, std::string name = "loss");

  /// Throws InputError unless there is exactly one loss, it is the last layer, and every other
  /// layer is used.
  void check_complete() const;

  const std::string& name() const { return name_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const Layer& layer(LayerId id) const { return layers_.at(static_cast<size_t>(id)); }
  Shape input_shape() const { return layers_.front().out; }
  /// The layer of that name, if there is one.
  std::optional<LayerId> find(std::string_view layer_name) const;
  /// The layer that feeds the loss: the network's prediction. Throws InputError if there is no
  /// loss.
  LayerId output() const;
  /// Number of classes (or of regressed values).
  int64_t classes() const { return layer(output()).out.size(); }
  /// How many layers read each layer's output.
  std::vector<int> users() const;
  /// Total of learned values.
  int64_t parameter_count() const;
  /// Multiplications and additions of convolutions and linear layers for one sample, forward.
  Flops forward_flops() const;
  /// Forward and backward of one sample: three times the forward pass, less the gradients of the
  /// network's input, which nobody computes.
  Flops training_flops() const;
  /// Those of one layer.
  Flops forward_flops(LayerId id) const;

 private:
  std::string unused_name(const LayerKind& kind) const;
  void check_name(const std::string& name) const;

  std::string name_;
  std::vector<Layer> layers_;
  std::map<std::string, LayerId, std::less<>> ids_;
  std::map<std::string, int, std::less<>> numbers_;  ///< layers of each kind so far
};

/// A table for people: layer, kind, output shape, parameters, MFLOP (forward, one sample); totals.
std::string describe(const Graph& graph);

}  // namespace convoy::model
