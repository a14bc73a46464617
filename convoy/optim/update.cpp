#include "convoy/optim/update.hpp"

#include <cmath>
#include <cstring>

// Inlined into each variant, so that it is compiled for that variant's instruction set.
#define CONVOY_BODY [[gnu::always_inline]] inline

// "avx2" does not bring FMA along, and that is meant: see the header. The loops wait for memory,
// a fused multiply-add would not make them faster.
#define CONVOY_AVX2 [[gnu::target("avx2")]]

namespace convoy::optim {
namespace {

CONVOY_BODY void plain_body(SgdRates r, int64_t count, float* __restrict w,
                            const float* __restrict gradient) {
  for (int64_t i = 0; i < count; ++i) w[i] -= r.rate * (r.scale * gradient[i] + r.decay * w[i]);
}

template <bool kNesterov>
CONVOY_BODY void momentum_body(SgdRates r, int64_t count, float* __restrict w,
                               const float* __restrict gradient, float* __restrict velocity) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = r.scale * gradient[i] + r.decay * w[i];
    const float v = r.momentum * velocity[i] + g;
    velocity[i] = v;
    w[i] -= r.rate * (kNesterov ? g + r.momentum * v : v);
  }
}

CONVOY_BODY void adam_body(AdamRates r, int64_t count, float* __restrict w,
                           const float* __restrict gradient, float* __restrict mean,
                           float* __restrict variance) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = r.scale * gradient[i] + r.decay * w[i];
    const float m = r.beta1 * mean[i] + r.one_minus_beta1 * g;
    const float v = r.beta2 * variance[i] + r.one_minus_beta2 * (g * g);
    mean[i] = m;
    variance[i] = v;
    w[i] -= r.rate * m / (std::sqrt(v) * r.root_correction + r.epsilon);
  }
}

// Sixteen running sums, element i into sum i mod 16, then added as a balanced tree. The square of
// a float is exact in double, so the only roundings are those of the additions.
CONVOY_BODY double squared_norm_body(const float* values, int64_t count) {
  using Floats = float __attribute__((vector_size(16)));
  using Doubles = double __attribute__((vector_size(32)));
  Doubles sums[4] = {};
  const auto add_sixteen = [&](const float* from) __attribute__((always_inline)) {
    for (int part = 0; part < 4; ++part) {
      Floats x;
      std::memcpy(&x, from + 4 * part, sizeof x);
      const Doubles wide = __builtin_convertvector(x, Doubles);
      sums[part] += wide * wide;
    }
  };
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) add_sixteen(values + i);
  if (i < count) {
    float rest[16] = {};
    std::memcpy(rest, values + i, static_cast<size_t>(count - i) * sizeof(float));
    add_sixteen(rest);
  }
  const Doubles s = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return (s[0] + s[1]) + (s[2] + s[3]);
}

// NOLINTBEGIN(bugprone-macro-parentheses): `attribute` is one
#define CONVOY_VARIANT(name, attribute)                                                           \
  struct name {                                                                                   \
    attribute static void plain(const SgdRates& r, int64_t n, float* w, const float* g) {         \
      plain_body(r, n, w, g);                                                                     \
    }                                                                                             \
    attribute static void momentum(const SgdRates& r, int64_t n, float* w, const float* g,        \
                                   float* v) {                                                    \
      momentum_body<false>(r, n, w, g, v);                                                        \
    }                                                                                             \
    attribute static void nesterov(const SgdRates& r, int64_t n, float* w, const float* g,        \
                                   float* v) {                                                    \
      momentum_body<true>(r, n, w, g, v);                                                         \
    }                                                                                             \
    attribute static void adam(const AdamRates& r, int64_t n, float* w, const float* g, float* m, \
                               float* v) {                                                        \
      adam_body(r, n, w, g, m, v);                                                                \
    }                                                                                             \
    attribute static double squared_norm(const float* x, int64_t n) {                             \
      return squared_norm_body(x, n);                                                             \
    }                                                                                             \
    static UpdateLoops loops() { return {plain, momentum, nesterov, adam, squared_norm}; }        \
  }
// NOLINTEND(bugprone-macro-parentheses)

CONVOY_VARIANT(Baseline, );
CONVOY_VARIANT(Avx2, CONVOY_AVX2);

}  // namespace

UpdateLoops baseline_loops() {
  return Baseline::loops();
}

UpdateLoops best_loops() {
  return __builtin_cpu_supports("avx2") != 0 ? Avx2::loops() : Baseline::loops();
}

}  // namespace convoy::optim
