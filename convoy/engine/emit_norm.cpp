// Batch norm over a grain, with the addition and the ReLU that follow it.

#include <algorithm>
#include <cmath>

#include "convoy/engine/builder.hpp"

namespace convoy::engine {
namespace {

/// Arena offsets of a batch norm's tensors and the lane's small arrays for it.
struct NormParts {
  Blocked s;
  float epsilon = 0;
  int64_t scale = 0, shift = 0, mean = 0, variance = 0;  // arena offsets
  int64_t begin = 0;                                     // of the layer's span
  // Padded channel arrays, one after the other in `saved`: the affine map in force (scale, shift),
  // mean, 1/deviation, variance, and the three coefficients of the backward map.
  BufferId saved = kNone;
  int64_t channels() const { return s.blocks() * kBlock; }
  static constexpr int kArrays = 8;
};

/// Calls pass(b0, b1) on small groups of channel blocks: what a first sweep over a group has read
/// is still in the second-level cache for the next sweep.
template <typename F>
void for_groups(const NormParts& p, int threads, const F& pass) {
  constexpr int64_t kGroupBytes = 128 * 1024;
  const int64_t group = std::max<int64_t>(
      1, kGroupBytes / (p.s.n * p.s.plane() * static_cast<int64_t>(sizeof(float))));
  for_range(threads, p.s.blocks(), [&](int64_t begin, int64_t end) {
    for (int64_t b0 = begin; b0 < end; b0 += group) pass(b0, std::min(b0 + group, end));
  });
}

struct Arrays {
  float *scale, *shift, *mean, *inv_std, *variance, *a, *b, *c;
  Arrays(const NormParts& p, const LaneMemory& m) {
    float* at = m.floats(p.saved);
    const int64_t n = p.channels();
    scale = at, shift = at + n, mean = at + 2 * n, inv_std = at + 3 * n, variance = at + 4 * n;
    a = at + 5 * n, b = at + 6 * n, c = at + 7 * n;
  }
};

NormParts describe(Builder& b, model::LayerId id) {
  NormParts p;
  const model::Layer& layer = b.graph.layer(id);
  p.s = b.value(layer.inputs[0]).stored;
  p.epsilon = std::get<model::BatchNorm>(layer.kind).epsilon;
  p.scale = b.tensor(id, model::Role::scale)->offset;
  p.shift = b.tensor(id, model::Role::shift)->offset;
  p.mean = b.tensor(id, model::Role::scale, Kind::running_mean)->offset;
  p.variance = b.tensor(id, model::Role::scale, Kind::running_variance)->offset;
  p.begin = b.span(id).first;
  p.saved = b.new_floats(NormParts::kArrays * p.channels());
  return p;
}

/// scale = γ/√(variance + ε), shift = β − mean·scale, for channels [c0, c1).
void fold(const NormParts& p, const Arrays& v, const float* weights, const float* mean,
          const float* variance, int64_t c0, int64_t c1) {
  for (int64_t c = c0; c < c1; ++c) {
    v.inv_std[c] = 1.0F / std::sqrt(variance[c] + p.epsilon);
    v.scale[c] = weights[p.scale + c] * v.inv_std[c];
    v.shift[c] = weights[p.shift + c] - mean[c] * v.scale[c];
  }
}

void emit_forward(Builder& b, const Node& node, const NormParts& p, BufferId x, BufferId residual,
                  BufferId y) {
  b.emit(node.head, Phase::forward, std::string("own ") + b.kernels.isa, {x, residual, y, p.saved},
         [=, relu = node.relu, &k = b.kernels, threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &k, v = Arrays(p, m), px = m.floats(x), pr = m.floats(residual),
                   py = m.floats(y), weights = m.weights.arena](RunState& run) {
             for_groups(p, threads, [&](int64_t b0, int64_t b1) {
               const float* mean = weights + p.mean;
               const float* variance = weights + p.variance;
               if (run.grain->training) {
                 k.bn_statistics(p.s, b0, b1, px, v.mean, v.variance);
                 mean = v.mean;
                 variance = v.variance;
               }
               fold(p, v, weights, mean, variance, b0 * kBlock, b1 * kBlock);
               k.bn_forward(p.s, b0, b1, px, v.scale, v.shift, pr, relu, py);
             });
           };
         });
}

/// Computes the dropped output again.
BufferId emit_again(Builder& b, const Node& node, const NormParts& p, BufferId x) {
  const BufferId y = b.new_floats(p.s.size());
  b.emit(node.head, Phase::backward_other, std::string("own ") + b.kernels.isa + " again",
         {x, y, p.saved},
         [=, relu = node.relu, &k = b.kernels, threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &k, v = Arrays(p, m), px = m.floats(x), py = m.floats(y)](RunState&) {
             for_range(threads, p.s.blocks(), [&](int64_t b0, int64_t b1) {
               k.bn_forward(p.s, b0, b1, px, v.scale, v.shift, nullptr, relu, py);
             });
           };
         });
  return y;
}

/// With m samples per channel: dx = γ/σ·(dz − Σdz/m − x̂·Σ(dz·x̂)/m) = a·dz + b·x + c.
void coefficients(const NormParts& p, const Arrays& v, const float* d_scale, const float* d_shift,
                  int64_t c0, int64_t c1) {
  const float count = static_cast<float>(p.s.n * p.s.height * p.s.width);
  for (int64_t c = c0; c < c1; ++c) {
    v.a[c] = v.scale[c];
    v.b[c] = -v.scale[c] * v.inv_std[c] * d_scale[c] / count;
    v.c[c] = -v.scale[c] * d_shift[c] / count - v.b[c] * v.mean[c];
  }
}

/// The grain's statistics travel with its gradients; variance unbiased, as it is kept.
void report_statistics(const NormParts& p, const Arrays& v, RunState& run, int64_t c0, int64_t c1) {
  const auto count = static_cast<float>(p.s.n * p.s.height * p.s.width);
  const float unbias = count > 1 ? count / (count - 1) : 1;
  float* mean = run.gradient(p.mean, p.begin);
  float* variance = run.gradient(p.variance, p.begin);
  for (int64_t c = c0; c < c1; ++c) {
    mean[c] = v.mean[c];
    variance[c] = v.variance[c] * unbias;
  }
}

/// Sums, statistics and (where dx is wanted) the input's gradient. The layer's few own gradients
/// are reported with it: splitting the sweeps would cost more than waiting for them.
void emit_backward(Builder& b, const Node& node, const NormParts& p, Mask mask, BufferId x,
                   BufferId y, BufferId dy, BufferId dx) {
  // With Mask::output the sums mask dy in place.
  const Mask left = mask == Mask::output ? Mask::none : mask;
  b.emit(node.head, Phase::backward_data, std::string("own ") + b.kernels.isa,
         {x, y, dy, dx, p.saved},
         [=, &k = b.kernels, threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &k, v = Arrays(p, m), px = m.floats(x), py = m.floats(y), pdy = m.floats(dy),
                   pdx = m.floats(dx)](RunState& run) {
             float* d_scale = run.gradient(p.scale, p.begin);
             float* d_shift = run.gradient(p.shift, p.begin);
             for_groups(p, threads, [&](int64_t b0, int64_t b1) {
               k.bn_backward_sums(p.s, b0, b1, px, v.mean, v.inv_std, v.scale, v.shift, mask, py,
                                  pdy, d_scale, d_shift);
               coefficients(p, v, d_scale, d_shift, b0 * kBlock, b1 * kBlock);
               report_statistics(p, v, run, b0 * kBlock, b1 * kBlock);
               if (pdx == nullptr) return;
               k.bn_backward(p.s, b0, b1, px, pdy, left, v.scale, v.shift, v.a, v.b, v.c, pdx);
             });
           };
         });
  b.completes(node.head);
}

}  // namespace

Backward emit_norm(Builder& b, const Node& node) {
  const model::LayerId from = b.graph.layer(node.head).inputs[0];
  const BufferId x = b.blocked(from);
  const BufferId residual = node.residual >= 0 ? b.blocked(node.residual) : kNone;
  const NormParts p = describe(b, node.head);
  Value& out = b.value(node.result);
  out.stored = p.s;
  out.buffer = b.new_floats(p.s.size());
  out.wants_gradient = true;
  emit_forward(b, node, p, x, residual, out.buffer);
  if (b.recompute_norm && node.residual < 0) {
    out.rematerialise = [&b, node, p, from] { return emit_again(b, node, p, b.available(from)); };
  }

  return [&b, node, p, from] {
    const Value& result = b.value(node.result);
    const BufferId dy = result.gradient;
    Mask mask = Mask::none;
    if (node.relu) mask = node.residual >= 0 ? Mask::output : Mask::recompute;
    const bool in_place = node.residual < 0 || !b.value(node.residual).wants_gradient;
    BufferId dx = kNone;
    if (b.value(from).wants_gradient) dx = in_place ? dy : b.new_floats(p.s.size());
    emit_backward(b, node, p, mask, b.available(from), mask == Mask::output ? result.buffer : kNone,
                  dy, dx);
    if (node.residual >= 0 && b.value(node.residual).wants_gradient) {
      b.add_gradient(node.residual, dy);
    }
    if (dx != kNone) b.add_gradient(from, dx);
  };
}

}  // namespace convoy::engine
