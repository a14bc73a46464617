// Convolution of tiles in a transformed space: Winograd's algorithm and Fourier transforms. The
// transformed kernels are prepared once per step.

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/engine/builder.hpp"

namespace convoy::engine {
namespace {

std::string kernel_name(const Builder& b, Algorithm algorithm) {
  return fmt::format("own {} {}", to_string(algorithm), b.kernels.isa);
}

/// Room for the transformed kernel, rewritten after each update; returns its offset.
int64_t prepare_kernel(Builder& b, model::LayerId id, const ConvShape& s, const TiledConv& w,
                       bool turned) {
  const int64_t from = b.tensor(id, model::Role::weight)->offset;
  const int64_t blocks = Blocked{.channels = turned ? s.ic : s.oc}.blocks();
  return b.prepare(w.kernel_size(turned ? backward_shape(s) : s), blocks,
                   [=, &w](const float* arena, float* to, int64_t b0, int64_t b1) {
                     w.kernel(s, turned, b0, b1, arena + from, to);
                   });
}

/// y = relu?(x ∗ kernel + bias?), for the forward pass and, with the shape turned, for the
/// backward.
void emit_tiles(Builder& b, model::LayerId id, Phase phase, Algorithm algorithm, const ConvShape& s,
                int64_t kernel, int64_t bias, bool relu, BufferId x, BufferId y) {
  const TiledConv& w = tiled_of(b.kernels, algorithm);
  const int64_t scratch_floats = w.forward_scratch(s);
  const BufferId scratch = b.new_floats(scratch_floats * b.threads);
  b.emit(id, phase, kernel_name(b, algorithm), {x, y, scratch},
         [=, &w, threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &w, px = m.floats(x), py = m.floats(y), u = m.weights.prepared + kernel,
                   pb = bias < 0 ? nullptr : m.weights.arena + bias,
                   own = m.floats(scratch)](RunState&) {
             for_range_numbered(threads, w.tiles(s), [&](int thread, int64_t t0, int64_t t1) {
               w.forward(s, t0, t1, px, u, pb, relu, py, own + thread * scratch_floats);
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
  const int64_t blocks = Blocked{.channels = s.oc}.blocks();
  const int64_t scratch_floats =
      w.backward_weights_scratch(s, (blocks + b.threads - 1) / b.threads);
  const BufferId scratch = b.new_floats(scratch_floats * b.threads);
  const int64_t offset = b.tensor(id, model::Role::weight)->offset;
  const int64_t begin = b.span(id).first;
  b.emit(id, Phase::backward_weights, kernel_name(b, algorithm), {x, dy, scratch},
         [=, &w, threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &w, px = m.floats(x), pdy = m.floats(dy),
                   own = m.floats(scratch)](RunState& run) {
             float* dw = run.gradient(offset, begin);
             for_range_numbered(threads, blocks, [&](int thread, int64_t b0, int64_t b1) {
               w.backward_weights(s, b0, b1, px, pdy, dw, own + thread * scratch_floats);
             });
           };
         });
}

}  // namespace convoy::engine
