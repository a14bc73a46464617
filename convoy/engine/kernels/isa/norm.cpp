// Batch norm: two passes over memory forward (statistics, apply), two backward (sums, apply).
// Each pass reads and writes every value once, so they run at the speed of memory.

#include "convoy/engine/kernels/isa/loops.hpp"
#include "convoy/engine/kernels/isa/parts.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

/// A guess at the mean of a channel block: of eight pixels spread over the first image. Added in
/// pairs, so that equal values give just that value.
Vec pilot_of(const Blocked& s, const float* plane) {
  const auto pixel = [&](int64_t i) { return load(plane + i * s.height * s.width / 8 * kBlock); };
  const Vec front = (pixel(0) + pixel(1)) + (pixel(2) + pixel(3));
  const Vec back = (pixel(4) + pixel(5)) + (pixel(6) + pixel(7));
  return (front + back) * splat(0.125F);
}

// Sums are taken of d = x − pilot: E[d²] − E[d]² then does not cancel when the mean is far from
// zero compared with the deviation.
void bn_statistics(const Blocked& s, int64_t b0, int64_t b1, const float* x, float* mean,
                   float* variance) {
  const DVec count = splat_double(static_cast<double>(s.n * s.height * s.width));
  for (int64_t b = b0; b < b1; ++b) {
    const Vec pilot = pilot_of(s, x + b * s.plane());
    const Totals sums = sum_block(s, 0, s.n, b, [=](int64_t i, Pair& p) {
      const Vec d = load(x + i) - pilot;
      p.first += d;
      p.second += d * d;
    });
    const DVec d = sums.first / count;
    const DVec v = sums.second / count - d * d;
    store(mean + b * kBlock, to_float(__builtin_convertvector(pilot, DVec) + d));
    // Rounding may leave a constant channel slightly below zero.
    store(variance + b * kBlock, positive_part(to_float(v)));
  }
}

template <class F>
[[gnu::always_inline]] inline void for_planes(const Blocked& s, int64_t b, F f) {
  for (int64_t n = 0; n < s.n; ++n) {
    const int64_t begin = n * s.image() + b * s.plane();
    for_vectors(begin, begin + s.plane(), f);
  }
}

template <bool kResidual, bool kRelu>
void forward(const Blocked& s, int64_t b0, int64_t b1, const float* x, const float* scale,
             const float* shift, const float* residual, float* y) {
  for (int64_t b = b0; b < b1; ++b) {
    const Vec a = load(scale + b * kBlock);
    const Vec c = load(shift + b * kBlock);
    for_planes(s, b, [=](int64_t i) {
      Vec v = a * load(x + i) + c;
      if constexpr (kResidual) v += load(residual + i);
      if constexpr (kRelu) v = positive_part(v);
      store(y + i, v);
    });
  }
}

void bn_forward(const Blocked& s, int64_t b0, int64_t b1, const float* x, const float* scale,
                const float* shift, const float* residual, bool relu, float* y) {
  if (residual != nullptr && relu) {
    forward<true, true>(s, b0, b1, x, scale, shift, residual, y);
  } else if (residual != nullptr) {
    forward<true, false>(s, b0, b1, x, scale, shift, residual, y);
  } else if (relu) {
    forward<false, true>(s, b0, b1, x, scale, shift, residual, y);
  } else {
    forward<false, false>(s, b0, b1, x, scale, shift, residual, y);
  }
}

template <Mask kMask>
void backward_sums(const Blocked& s, int64_t b0, int64_t b1, const float* x, const float* mean,
                   const float* inv_std, const float* scale, const float* shift, const float* y,
                   float* dy, float* d_scale, float* d_shift) {
  for (int64_t b = b0; b < b1; ++b) {
    const Vec m = load(mean + b * kBlock);
    Vec a{};
    Vec c{};
    if constexpr (kMask == Mask::recompute) {
      a = load(scale + b * kBlock);
      c = load(shift + b * kBlock);
    }
    const Totals sums = sum_block(s, 0, s.n, b, [=](int64_t i, Pair& p) {
      const Vec v = load(x + i);
      Vec dz = load(dy + i);
      if constexpr (kMask == Mask::recompute) dz = keep(a * v + c > zero(), dz);
      if constexpr (kMask == Mask::output) {
        dz = keep(load(y + i) > zero(), dz);
        store(dy + i, dz);
      }
      p.first += dz;
      p.second += dz * (v - m);
    });
    const DVec deviation = __builtin_convertvector(load(inv_std + b * kBlock), DVec);
    store(d_shift + b * kBlock, to_float(sums.first));
    store(d_scale + b * kBlock, to_float(sums.second * deviation));
  }
}

void bn_backward_sums(const Blocked& s, int64_t b0, int64_t b1, const float* x, const float* mean,
                      const float* inv_std, const float* scale, const float* shift, Mask mask,
                      const float* y, float* dy, float* d_scale, float* d_shift) {
  const auto kernel = mask == Mask::none        ? backward_sums<Mask::none>
                      : mask == Mask::recompute ? backward_sums<Mask::recompute>
                                                : backward_sums<Mask::output>;
  kernel(s, b0, b1, x, mean, inv_std, scale, shift, y, dy, d_scale, d_shift);
}

template <bool kMasked>
void backward(const Blocked& s, int64_t b0, int64_t b1, const float* x, const float* dy,
              const float* scale, const float* shift, const float* a, const float* b,
              const float* c, float* dx) {
  for (int64_t block = b0; block < b1; ++block) {
    const Vec of_dz = load(a + block * kBlock);
    const Vec of_x = load(b + block * kBlock);
    const Vec constant = load(c + block * kBlock);
    Vec gain{};
    Vec offset{};
    if constexpr (kMasked) {
      gain = load(scale + block * kBlock);
      offset = load(shift + block * kBlock);
    }
    for_planes(s, block, [=](int64_t i) {
      const Vec v = load(x + i);
      Vec dz = load(dy + i);
      if constexpr (kMasked) dz = keep(gain * v + offset > zero(), dz);
      store(dx + i, of_dz * dz + (of_x * v + constant));
    });
  }
}

void bn_backward(const Blocked& s, int64_t b0, int64_t b1, const float* x, const float* dy,
                 Mask mask, const float* scale, const float* shift, const float* a, const float* b,
                 const float* c, float* dx) {
  const auto kernel = mask == Mask::recompute ? backward<true> : backward<false>;
  kernel(s, b0, b1, x, dy, scale, shift, a, b, c, dx);
}

}  // namespace

void fill_norm(Kernels& kernels) {
  kernels.bn_statistics = bn_statistics;
  kernels.bn_forward = bn_forward;
  kernels.bn_backward_sums = bn_backward_sums;
  kernels.bn_backward = bn_backward;
}

}  // namespace convoy::engine::CONVOY_ISA
