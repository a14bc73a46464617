#include <cmath>

#include "convoy/engine/kernels/isa/loops.hpp"
#include "convoy/engine/kernels/isa/math.hpp"
#include "convoy/engine/kernels/isa/parts.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

const IVec kLanes = {0, 1, 2, 3, 4, 5, 6, 7};

IVec lanes_from(int64_t column) {
  return kLanes + static_cast<int32_t>(column);
}

double sum(Vec v) {
  const DVec d = __builtin_convertvector(v, DVec);
  return ((d[0] + d[1]) + (d[2] + d[3])) + ((d[4] + d[5]) + (d[6] + d[7]));
}

bool any(IVec v) {
  return (v[0] | v[1] | v[2] | v[3] | v[4] | v[5] | v[6] | v[7]) != 0;
}

/// Calls f(c, real) for the columns c = 0, 8, …; `real` tells classes from padding.
template <class F>
[[gnu::always_inline]] inline void for_classes(int64_t classes, F f) {
  int64_t c = 0;
  for (; c + kBlock <= classes; c += kBlock) f(c, ~IVec{});
  if (c < classes) f(c, lanes_from(c) < static_cast<int32_t>(classes));
}

/// What one look at the logits of a sample tells.
struct Row {
  float largest;   ///< not NaN, unless the first is
  double total;    ///< their sum
  bool predicted;  ///< the label's logit is the first largest; never if one is NaN
};

Row survey(int64_t classes, const float* x, int32_t label) {
  const Vec mine = splat(x[label]);
  Vec largest = splat(x[0]);
  Vec total{};
  IVec beaten{};
  for_classes(classes, [&](int64_t c, IVec real) {
    const IVec earlier = lanes_from(c) < label;
    const Vec v = load(x + c);
    largest = (real & (v > largest)) ? v : largest;
    total += keep(real, v);
    beaten |= real & (~(v <= mine) | (earlier & (v == mine)));
  });
  Row row{largest[0], sum(total), !any(beaten)};
  for (int i = 1; i < kBlock; ++i) {
    if (largest[i] > row.largest) row.largest = largest[i];
  }
  return row;
}

// With l = log Σ exp(x − m), m the largest logit, and targets t = (1 − smoothing)·onehot +
// smoothing/classes: loss = Σ t·(m + l − x), gradient = exp(x − m)/Σ exp − t.
void softmax_cross_entropy(int64_t n, int64_t classes, float smoothing, float gradient_scale,
                           const float* x, const int32_t* labels, float* dx, double* loss,
                           int64_t* correct) {
  const int64_t columns = round_up(classes, kBlock);
  const float elsewhere = smoothing / static_cast<float>(classes);
  for (int64_t i = 0; i < n; ++i) {
    const float* row = x + i * columns;
    float* gradient = dx == nullptr ? nullptr : dx + i * columns;
    const int32_t label = labels[i];
    if (label < 0) {
      if (gradient != nullptr)
        std::memset(gradient, 0, static_cast<size_t>(columns) * sizeof(float));
      continue;
    }
    const Row seen = survey(classes, row, label);
    const double mine = row[label];
    Vec total{};
    for_classes(classes, [&](int64_t c, IVec real) {
      const Vec e = keep(real, exp(load(row + c) - splat(seen.largest)));
      total += e;
      if (gradient != nullptr) store(gradient + c, e);
    });
    const double denominator = sum(total);
    const double level = seen.largest + std::log(denominator);
    const double mean = seen.total / static_cast<double>(classes);
    *loss += (1.0 - smoothing) * (level - mine) + smoothing * (level - mean);
    *correct += seen.predicted ? 1 : 0;
    if (gradient == nullptr) continue;
    const Vec factor = splat(static_cast<float>(gradient_scale / denominator));
    const Vec everywhere = splat(gradient_scale * elsewhere);
    for_classes(classes, [&](int64_t c, IVec real) {
      store(gradient + c, factor * load(gradient + c) - keep(real, everywhere));
    });
    gradient[label] -= gradient_scale * (1.0F - smoothing);
  }
}

void mean_squared_error(int64_t n, int64_t classes, float gradient_scale, const float* x,
                        const int32_t* labels, float* dx, double* loss, int64_t* correct) {
  const int64_t columns = round_up(classes, kBlock);
  const Vec factor = splat(2.0F * gradient_scale / static_cast<float>(classes));
  for (int64_t i = 0; i < n; ++i) {
    const float* row = x + i * columns;
    float* gradient = dx == nullptr ? nullptr : dx + i * columns;
    const int32_t label = labels[i];
    if (label < 0) {
      if (gradient != nullptr)
        std::memset(gradient, 0, static_cast<size_t>(columns) * sizeof(float));
      continue;
    }
    *correct += survey(classes, row, label).predicted ? 1 : 0;
    Vec squares{};
    for_classes(classes, [&](int64_t c, IVec real) {
      const Vec d = keep(real, load(row + c) - keep(lanes_from(c) == label, splat(1.0F)));
      squares += d * d;
      if (gradient != nullptr) store(gradient + c, factor * d);
    });
    *loss += sum(squares) / static_cast<double>(classes);
  }
}

}  // namespace

void fill_loss(Kernels& kernels) {
  kernels.softmax_cross_entropy = softmax_cross_entropy;
  kernels.mean_squared_error = mean_squared_error;
}

}  // namespace convoy::engine::CONVOY_ISA
