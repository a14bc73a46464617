// Pooling, local response normalisation, and the losses.

#include "convoy/engine/builder.hpp"

namespace convoy::engine {
namespace {

std::string own(const Builder& b) {
  return std::string("own ") + b.kernels.isa;
}

PoolShape pool_shape(const Builder& b, model::LayerId id, const Blocked& in) {
  const model::Layer& layer = b.graph.layer(id);
  const auto& pool = std::get<model::Pool>(layer.kind);
  PoolShape s;
  s.in = in;
  s.out_height = layer.out.height, s.out_width = layer.out.width;
  s.kernel_h = pool.kernel[0], s.kernel_w = pool.kernel[1];
  s.stride_h = pool.stride[0], s.stride_w = pool.stride[1];
  s.pad_h = pool.pad[0], s.pad_w = pool.pad[1];
  s.count_padding = pool.count_padding;
  return s;
}

Value& define(Builder& b, const Node& node, model::LayerId from) {
  b.blocked(from);
  Value& out = b.value(node.result);
  out.stored = b.stored(b.graph.layer(node.result).out);
  out.buffer = b.new_floats(out.stored.size());
  out.wants_gradient = b.value(from).wants_gradient;
  return out;
}

/// Emits f(kernels, n0, n1, x, y) over the images of a grain.
template <typename F>
void emit_images(Builder& b, model::LayerId id, Phase phase, BufferId x, BufferId y, F f) {
  b.emit(id, phase, own(b), {x, y},
         [=, n = b.grain, &k = b.kernels, threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &k, px = m.floats(x), py = m.floats(y)](RunState&) {
             for_range(threads, n, [&](int64_t n0, int64_t n1) { f(k, n0, n1, px, py); });
           };
         });
}

Backward emit_max_pool(Builder& b, const Node& node, model::LayerId from, const PoolShape& s) {
  const Value& out = b.value(node.result);
  const BufferId argmax = b.new_bytes(out.stored.size());
  b.emit(node.head, Phase::forward, own(b), {b.value(from).buffer, out.buffer, argmax},
         [=, x = b.value(from).buffer, y = out.buffer, &k = b.kernels,
          threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &k, px = m.floats(x), py = m.floats(y),
                   pa = reinterpret_cast<uint8_t*>(m.bytes(argmax))](RunState&) {
             for_range(threads, s.in.n,
                       [&](int64_t n0, int64_t n1) { k.max_pool(s, n0, n1, px, py, pa); });
           };
         });
  return [&b, node, from, s, argmax] {
    const Value& result = b.value(node.result);
    if (!result.wants_gradient) return;
    const BufferId dx = b.new_floats(s.in.size());
    const BufferId kept = node.pool_undoes_relu ? result.buffer : kNone;
    b.emit(node.head, Phase::backward_data, own(b), {result.gradient, argmax, kept, dx},
           [=, dy = result.gradient, &k = b.kernels,
            threads = b.threads](const LaneMemory& m) -> Bound {
             return [=, &k, pdy = m.floats(dy), py = m.floats(kept), pdx = m.floats(dx),
                     pa = reinterpret_cast<const uint8_t*>(m.bytes(argmax))](RunState&) {
               for_range(threads, s.in.n, [&](int64_t n0, int64_t n1) {
                 k.max_pool_backward(s, n0, n1, pdy, pa, py, pdx);
               });
             };
           });
    b.add_gradient(from, dx);
  };
}

}  // namespace

Backward emit_pool(Builder& b, const Node& node) {
  const model::LayerId from = b.graph.layer(node.head).inputs[0];
  const Value& out = define(b, node, from);
  const PoolShape s = pool_shape(b, node.head, b.value(from).stored);
  const bool max =
      std::get<model::Pool>(b.graph.layer(node.head).kind).kind == model::PoolKind::max;
  if (max) return emit_max_pool(b, node, from, s);
  emit_images(b, node.head, Phase::forward, b.value(from).buffer, out.buffer,
              [s](const Kernels& k, int64_t n0, int64_t n1, const float* x, float* y) {
                k.average_pool(s, n0, n1, x, y);
              });
  return [&b, node, from, s] {
    if (!b.value(from).wants_gradient) return;
    const BufferId dx = b.new_floats(s.in.size());
    emit_images(b, node.head, Phase::backward_data, b.value(node.result).gradient, dx,
                [s](const Kernels& k, int64_t n0, int64_t n1, const float* dy, float* to) {
                  k.average_pool_backward(s, n0, n1, dy, to);
                });
    b.add_gradient(from, dx);
  };
}

Backward emit_global_pool(Builder& b, const Node& node) {
  const model::LayerId from = b.graph.layer(node.head).inputs[0];
  const Value& out = define(b, node, from);
  const Blocked s = b.value(from).stored;
  emit_images(b, node.head, Phase::forward, b.value(from).buffer, out.buffer,
              [s](const Kernels& k, int64_t n0, int64_t n1, const float* x, float* y) {
                k.global_pool(s, n0, n1, x, y);
              });
  return [&b, node, from, s] {
    if (!b.value(from).wants_gradient) return;
    const BufferId dx = b.new_floats(s.size());
    emit_images(b, node.head, Phase::backward_data, b.value(node.result).gradient, dx,
                [s](const Kernels& k, int64_t n0, int64_t n1, const float* dy, float* to) {
                  k.global_pool_backward(s, n0, n1, dy, to);
                });
    b.add_gradient(from, dx);
  };
}

Backward emit_lrn(Builder& b, const Node& node) {
  const model::LayerId from = b.graph.layer(node.head).inputs[0];
  const Value& out = define(b, node, from);
  const Blocked s = b.value(from).stored;
  const auto lrn = std::get<model::Lrn>(b.graph.layer(node.head).kind);
  emit_images(b, node.head, Phase::forward, b.value(from).buffer, out.buffer,
              [s, lrn](const Kernels& k, int64_t n0, int64_t n1, const float* x, float* y) {
                k.lrn(s, n0, n1, lrn.size, lrn.alpha, lrn.beta, lrn.k, x, y);
              });
  return [&b, node, from, s, lrn] {
    if (!b.value(from).wants_gradient) return;
    const BufferId dx = b.new_floats(s.size());
    const BufferId x = b.available(from);
    b.emit(node.head, Phase::backward_data, own(b), {x, b.value(node.result).gradient, dx},
           [=, dy = b.value(node.result).gradient, &k = b.kernels,
            threads = b.threads](const LaneMemory& m) -> Bound {
             return [=, &k, px = m.floats(x), pdy = m.floats(dy), pdx = m.floats(dx)](RunState&) {
               for_range(threads, s.n, [&](int64_t n0, int64_t n1) {
                 k.lrn_backward(s, n0, n1, lrn.size, lrn.alpha, lrn.beta, lrn.k, px, pdy, pdx);
               });
             };
           });
    b.add_gradient(from, dx);
  };
}

Backward emit_loss(Builder& b, const Node& node) {
  const model::Layer& layer = b.graph.layer(node.head);
  const model::LayerId from = layer.inputs[0];
  BufferId x = b.blocked(from);
  const Blocked stored = b.value(from).stored;
  // The kernels take rows; a map's values lie in another order.
  const Blocked rows{b.grain, b.graph.classes()};
  const bool map = stored.height * stored.width > 1;
  if (map) {
    const BufferId vector = b.new_floats(rows.size());
    emit_repack(b, node.head, Phase::reorder, stored, x, rows, vector);
    x = vector;
  }
  const BufferId dx = b.new_floats(rows.size());
  const auto* softmax = std::get_if<model::SoftmaxCrossEntropy>(&layer.kind);
  const float smoothing = softmax != nullptr ? softmax->smoothing : 0;
  b.emit(node.head, Phase::forward, own(b), {x, dx},
         [=, n = b.grain, classes = b.graph.classes(), cross_entropy = softmax != nullptr,
          &k = b.kernels](const LaneMemory& m) -> Bound {
           return [=, &k, px = m.floats(x), pdx = m.floats(dx)](RunState& run) {
             const GrainRun& g = *run.grain;
             float* gradient = g.training ? pdx : nullptr;
             if (cross_entropy) {
               k.softmax_cross_entropy(n, classes, smoothing, g.gradient_scale, px, g.labels,
                                       gradient, &run.result.loss, &run.result.correct);
             } else {
               k.mean_squared_error(n, classes, g.gradient_scale, px, g.labels, gradient,
                                    &run.result.loss, &run.result.correct);
             }
           };
         });
  return [&b, node, from, dx, map, rows, stored] {
    if (!b.value(from).wants_gradient) return;
    BufferId gradient = dx;
    if (map) {
      gradient = b.new_floats(stored.size());
      emit_repack(b, node.head, Phase::reorder, rows, dx, stored, gradient);
    }
    b.add_gradient(from, gradient);
  };
}

}  // namespace convoy::engine
