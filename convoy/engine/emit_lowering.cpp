// Convolution by lowering: see kernels/isa/lowering.cpp.

#include <fmt/format.h>

#include "convoy/engine/builder.hpp"

namespace convoy::engine {
namespace {

std::string kernel_name(const Builder& b) {
  return fmt::format("own lowering {}", b.kernels.isa);
}

}  // namespace

void emit_lowering_forward(Builder& b, const Node& node, const ConvShape& s, BufferId x,
                           BufferId y) {
  const int64_t together = b.lowered_together > 0 ? std::min(b.lowered_together, b.grain) : b.grain;
  const int64_t scratch_floats = together * b.kernels.lowering.image_floats(s);
  const BufferId scratch = b.new_floats(scratch_floats * b.threads);
  const int64_t weights = b.tensor(node.head, model::Role::weight)->offset;
  const Tensor* bias = b.tensor(node.head, model::Role::bias);
  b.emit(node.head, Phase::forward, kernel_name(b), {x, y, scratch},
         [=, biases = bias != nullptr ? bias->offset : -1, relu = node.relu, &k = b.kernels,
          threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &k, px = m.floats(x), py = m.floats(y), w = m.weights.arena + weights,
                   pb = biases < 0 ? nullptr : m.weights.arena + biases,
                   own = m.floats(scratch)](RunState& run) {
             const float* input = px != nullptr ? px : run.grain->input;
             for_range_numbered(threads, s.n, [&](int thread, int64_t n0, int64_t n1) {
               k.lowering.forward(s, n0, n1, together, input, w, pb, relu, py,
                                  own + thread * scratch_floats);
             });
           };
         });
}

void emit_lowering_data(Builder& b, model::LayerId id, const ConvShape& s, int64_t transposed,
                        BufferId dy, BufferId dx) {
  const int64_t scratch_floats = b.kernels.lowering.image_floats(s);
  const BufferId scratch = b.new_floats(scratch_floats * b.threads);
  b.emit(id, Phase::backward_data, kernel_name(b), {dy, dx, scratch},
         [=, &k = b.kernels, threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &k, pdy = m.floats(dy), pdx = m.floats(dx),
                   w = m.weights.prepared + transposed, own = m.floats(scratch)](RunState&) {
             for_range_numbered(threads, s.n, [&](int thread, int64_t n0, int64_t n1) {
               k.lowering.backward_data(s, n0, n1, pdy, w, pdx, own + thread * scratch_floats);
             });
           };
         });
}

void emit_lowering_weights(Builder& b, model::LayerId id, const ConvShape& s, BufferId x,
                           BufferId dy) {
  const int64_t scratch_floats = b.kernels.lowering.image_floats(s);
  const BufferId scratch = b.new_floats(scratch_floats * b.threads);
  const int64_t offset = b.tensor(id, model::Role::weight)->offset;
  const int64_t begin = b.span(id).first;
  b.emit(id, Phase::backward_weights, kernel_name(b), {x, dy, scratch},
         [=, &k = b.kernels, threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &k, px = m.floats(x), pdy = m.floats(dy),
                   own = m.floats(scratch)](RunState& run) {
             const float* input = px != nullptr ? px : run.grain->input;
             float* dw = run.gradient(offset, begin);
             const int64_t blocks = Blocked{.channels = s.oc}.blocks();
             for_range_numbered(threads, blocks, [&](int thread, int64_t b0, int64_t b1) {
               k.lowering.backward_weights(s, b0, b1, input, pdy, dw,
                                           own + thread * scratch_floats);
             });
           };
         });
}

}  // namespace convoy::engine
