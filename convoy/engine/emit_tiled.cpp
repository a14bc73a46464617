// Convolution of tiles in a transformed space: Winograd's algorithm and Fourier transforms, group
// by group. The transformed kernels are prepared once per step.

#include <algorithm>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/engine/builder.hpp"

namespace convoy::engine {
namespace {

std::string kernel_name(const Builder& b, Algorithm algorithm) {
  return fmt::format("own {} {}", to_string(algorithm), b.kernels.isa);
}

/// The groups of a convolution, and the floats from one to the next. More than one group have
/// whole blocks of channels.
struct Groups {
  int64_t count;
  ConvShape shape;  ///< of one group
  int64_t out_blocks;
  int64_t x, y, bias, weights, kernel;

  Groups(const ConvShape& s, const TiledConv& w)
      : count(s.groups),
        shape(group_shape(s)),
        out_blocks(Blocked{.channels = shape.oc}.blocks()),
        x(shape.ic * shape.ih * shape.iw),
        y(shape.oc * shape.oh * shape.ow),
        bias(shape.oc),
        weights(shape.oc * shape.ic * shape.kh * shape.kw),
        kernel(w.kernel_size(shape)) {}

  /// f(group, b0, b1) for each group's part of output blocks [begin, end) of all groups.
  template <class F>
  void each_part(int64_t begin, int64_t end, F f) const {
    for (int64_t g = begin / out_blocks; g * out_blocks < end; ++g) {
      const int64_t first = g * out_blocks;
      f(g, std::max<int64_t>(begin - first, 0), std::min(end - first, out_blocks));
    }
  }
};

/// Room for the transformed kernels, rewritten after each update; returns its offset.
int64_t prepare_kernel(Builder& b, model::LayerId id, const ConvShape& s, const TiledConv& w,
                       bool turned) {
  const int64_t from = b.tensor(id, model::Role::weight)->offset;
  const Groups groups(turned ? backward_shape(s) : s, w);
  return b.prepare(
      id, groups.count * groups.kernel, groups.count * groups.out_blocks,
      [=, &w, one = group_shape(s)](const float* arena, float* to, int64_t begin, int64_t end) {
        groups.each_part(begin, end, [&](int64_t g, int64_t b0, int64_t b1) {
          w.kernel(one, turned, b0, b1, arena + from + g * groups.weights, to + g * groups.kernel);
        });
      });
}

/// y = relu?(x ∗ kernel + bias?), for the forward pass and, with the shape turned, for the
/// backward.
void emit_tiles(Builder& b, model::LayerId id, Phase phase, Algorithm algorithm, const ConvShape& s,
                int64_t kernel, int64_t bias, bool relu, BufferId x, BufferId y) {
  const TiledConv& w = tiled_of(b.kernels, algorithm);
  const Groups groups(s, w);
  const int64_t scratch_floats = w.forward_scratch(groups.shape);
  const BufferId scratch = b.new_floats(scratch_floats * b.threads);
  b.emit(id, phase, kernel_name(b, algorithm), {x, y, scratch},
         [=, &w, threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &w, px = m.floats(x), py = m.floats(y), u = m.weights.prepared + kernel,
                   pb = bias < 0 ? nullptr : m.weights.arena + bias,
                   all = m.floats(scratch)](RunState&) {
             const int64_t tiles = w.tiles(groups.shape);
             for_range_numbered(threads, tiles, [&](int thread, int64_t t0, int64_t t1) {
               float* own = all + thread * scratch_floats;
               for (int64_t g = 0; g < groups.count; ++g) {
                 w.forward(groups.shape, t0, t1, px + g * groups.x, u + g * groups.kernel,
                           pb == nullptr ? nullptr : pb + g * groups.bias, relu, py + g * groups.y,
                           own);
               }
             });
           };
         });
}

}  // namespace

const TiledConv& tiled_of(const Kernels& kernels, Algorithm algorithm) {
  check(is_tiled(algorithm), "an algorithm that works on tiles");
  if (algorithm == Algorithm::fft) return kernels.fft;
  return algorithm == Algorithm::winograd2 ? kernels.winograd2 : kernels.winograd4;
}

void emit_tiled_forward(Builder& b, const Node& node, const ConvShape& s, Algorithm algorithm,
                        BufferId x, BufferId y) {
  const Tensor* bias = b.tensor(node.head, model::Role::bias);
  const int64_t kernel = prepare_kernel(b, node.head, s, tiled_of(b.kernels, algorithm), false);
  emit_tiles(b, node.head, Phase::forward, algorithm, s, kernel,
             bias != nullptr ? bias->offset : -1, node.relu, x, y);
}

void emit_tiled_data(Builder& b, model::LayerId id, const ConvShape& s, Algorithm algorithm,
                     BufferId dy, BufferId dx) {
  const int64_t kernel = prepare_kernel(b, id, s, tiled_of(b.kernels, algorithm), true);
  emit_tiles(b, id, Phase::backward_data, algorithm, backward_shape(s), kernel, -1, false, dy, dx);
}

void emit_tiled_weights(Builder& b, model::LayerId id, const ConvShape& s, Algorithm algorithm,
                        BufferId x, BufferId dy) {
  const TiledConv& w = tiled_of(b.kernels, algorithm);
  const Groups groups(s, w);
  const int64_t scratch_floats =
      w.backward_weights_scratch(groups.shape, (groups.out_blocks + b.threads - 1) / b.threads);
  const BufferId scratch = b.new_floats(scratch_floats * b.threads);
  const int64_t offset = b.tensor(id, model::Role::weight)->offset;
  const int64_t begin = b.span(id).first;
  b.emit(id, Phase::backward_weights, kernel_name(b, algorithm), {x, dy, scratch},
         [=, &w, threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &w, px = m.floats(x), pdy = m.floats(dy),
                   all = m.floats(scratch)](RunState& run) {
             float* dw = run.gradient(offset, begin);
             for_range_numbered(
                 threads, groups.out_blocks, [&](int thread, int64_t b0, int64_t b1) {
                   float* own = all + thread * scratch_floats;
                   for (int64_t g = 0; g < groups.count; ++g) {
                     w.backward_weights(groups.shape, b0, b1, px + g * groups.x, pdy + g * groups.y,
                                        dw + g * groups.weights, own);
                   }
                 });
           };
         });
}

}  // namespace convoy::engine
