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
    const auto touch = [=](int64_t i) { prefetch(x + i); };
    const auto step = [=](int64_t i, Pair& p) {
      const Vec d = load(x + i) - pilot;
      p.first += d;
      p.second += d * d;
    };
    const Totals sums = sum_block(s, 0, s.n, b, step, touch);
    const DVec d = sums.first / count;
    const DVec v = sums.second / count - d * d;
    store(mean + b * kBlock, to_float(__builtin_convertvector(pilot, DVec) + d));
    // Rounding may leave a constant channel slightly below zero.
    store(variance + b * kBlock, positive_part(to_float(v)));
  }
}

template <bool kResidual, bool kRelu, To kTo>
void forward(const Blocked& s, int64_t b0, int64_t b1, const float* x, const float* scale,
             const float* shift, const float* residual, float* y) {
  for (int64_t b = b0; b < b1; ++b) {
    const Vec a = load(scale + b * kBlock);
    const Vec c = load(shift + b * kBlock);
    const auto touch = [=](int64_t i) {
      prefetch(x + i);
      if constexpr (kResidual) prefetch(residual + i);
    };
    const auto apply = [=](int64_t i) {
      Vec v = a * load(x + i) + c;
      if constexpr (kResidual) v += load(residual + i);
      if constexpr (kRelu) v = positive_part(v);
      put<kTo>(y + i, v);
    };
    for_planes(s, b, apply, touch);
  }
  finish<kTo>();
}

template <To kTo>
auto forward_for(bool residual, bool relu) {
  if (residual) return relu ? forward<true, true, kTo> : forward<true, false, kTo>;
  return relu ? forward<false, true, kTo> : forward<false, false, kTo>;
}

void bn_forward(const Blocked& s, int64_t b0, int64_t b1, const float* x, const float* scale,
                const float* shift, const float* residual, bool relu, float* y) {
  const bool in_place = y == x || y == residual;
  const auto kernel = in_place || destination(s.size()) == To::cache
                          ? forward_for<To::cache>(residual != nullptr, relu)
                          : forward_for<To::memory>(residual != nullptr, relu);
  kernel(s, b0, b1, x, scale, shift, residual, y);
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
    const auto touch = [=](int64_t i) {
      prefetch(x + i);
      prefetch(dy + i);
      if constexpr (kMask == Mask::output) prefetch(y + i);
    };
    const auto step = [=](int64_t i, Pair& p) {
      const Vec v = load(x + i);
      Vec dz = load(dy + i);
      if constexpr (kMask == Mask::recompute) dz = keep(a * v + c > zero(), dz);
      if constexpr (kMask == Mask::output) {
        dz = keep(load(y + i) > zero(), dz);
        store(dy + i, dz);
      }
      p.first += dz;
      p.second += dz * (v - m);
    };
    const Totals sums = sum_block(s, 0, s.n, b, step, touch);
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

template <bool kMasked, To kTo>
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
    const auto touch = [=](int64_t i) {
      prefetch(x + i);
      prefetch(dy + i);
    };
    const auto apply = [=](int64_t i) {
      const Vec v = load(x + i);
      Vec dz = load(dy + i);
      if constexpr (kMasked) dz = keep(gain * v + offset > zero(), dz);
      put<kTo>(dx + i, of_dz * dz + (of_x * v + constant));
    };
    for_planes(s, block, apply, touch);
  }
  finish<kTo>();
}

void bn_backward(const Blocked& s, int64_t b0, int64_t b1, const float* x, const float* dy,
                 Mask mask, const float* scale, const float* shift, const float* a, const float* b,
                 const float* c, float* dx) {
  const bool masked = mask == Mask::recompute;
  const bool in_place = dx == dy || dx == x;
  const auto kernel = in_place || destination(s.size()) == To::cache
                          ? (masked ? backward<true, To::cache> : backward<false, To::cache>)
                          : (masked ? backward<true, To::memory> : backward<false, To::memory>);
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
