#pragma once
// The flat arena of a model: every learned tensor and every running statistic, in the engine's own
// layouts, ordered so that the backward pass completes it front to back (last layer first).
// Weights, gradients and optimizer state are arrays of this shape.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "convoy/model/graph.hpp"

namespace convoy::engine {

/// How a tensor's values are stored. Padding is zero, always.
enum class Layout {
  channels,    ///< {c}: padded to a multiple of 8
  conv,        ///< {o, i, kh, kw} as [g][o/8][i/8][kh][kw][8i][8o] (g = 1 when not grouped)
  conv_input,  ///< first layer: [o/8][kh][kw][i][8o]
  depthwise,   ///< {c, 1, kh, kw} as [c/8][kh][kw][8c]
  conv_plain,  ///< {o, i, kh, kw} as it is: for shapes that no blocked kernel takes
  linear,      ///< {o, i} as [o padded][stored i]: see Tensor::source
};

enum class Kind { parameter, running_mean, running_variance };

/// One tensor of the arena: floats [offset, offset + stored).
struct Tensor {
  std::string name;
  Kind kind = Kind::parameter;
  model::Role role = model::Role::weight;
  model::LayerId layer = 0;
  std::vector<int64_t> shape;  ///< plain shape, as in checkpoints
  int64_t fan_in = 1;
  Layout layout = Layout::channels;
  int64_t groups = 1;  ///< conv: groups
  /// linear: how its input sample is stored. Blocked {c, h, w}: column of plain index (c, y, x) is
  /// its place in nChw8c; plain: as it is.
  model::Shape source;
  bool source_blocked = true;
  int64_t offset = 0;
  int64_t stored = 0;

  int64_t plain_size() const;
};

/// The arena's table of contents.
class Arena {
 public:
  /// Appends a tensor: sets its offset and stored size.
  void add(Tensor tensor);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  int64_t size() const { return size_; }  ///< floats, a multiple of 16
  /// Learned values, padding not counted.
  int64_t parameter_count() const;

 private:
  std::vector<Tensor> tensors_;
  int64_t size_ = 0;
};

/// Converts between the arena's layout and the plain one.
void to_plain(const Tensor& tensor, std::span<const float> arena, std::span<float> plain);
/// The same in order, a piece at a time.
void to_plain(const Tensor& tensor, std::span<const float> arena,
              const std::function<void(std::span<const float>)>& take);
void from_plain(const Tensor& tensor, std::span<const float> plain, std::span<float> arena);

/// Fills the arena with the usual initial values: weights uniform with variance 2/fan_in (He et al.
/// 2015), scales and running variances 1, the rest 0. Value number i of a tensor depends only on
/// (seed, the tensor's name, i), so neither the layout nor other layers change it.
void initialise(const Arena& arena, uint64_t seed, std::span<float> values);

}  // namespace convoy::engine
