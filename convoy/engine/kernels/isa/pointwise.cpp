#include "convoy/engine/kernels/isa/loops.hpp"
#include "convoy/engine/kernels/isa/parts.hpp"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace convoy::engine::CONVOY_ISA {
namespace {

/// y[i] = f(i) for i = 0, 8, … < n.
template <class F>
[[gnu::always_inline]] inline void fill(int64_t n, bool in_place, float* y, F f) {
  if (in_place || destination(n) == To::cache) {
    for_vectors(0, n, [=](int64_t i) { put<To::cache>(y + i, f(i)); });
  } else {
    for_vectors(0, n, [=](int64_t i) { put<To::memory>(y + i, f(i)); });
    finish<To::memory>();
  }
}

void relu(int64_t n, const float* x, float* y) {
  fill(n, y == x, y, [=](int64_t i) { return positive_part(load(x + i)); });
}

void relu_backward(int64_t n, const float* y, const float* dy, float* dx) {
  fill(n, dx == dy || dx == y, dx,
       [=](int64_t i) { return keep(load(y + i) > zero(), load(dy + i)); });
}

void add(int64_t n, const float* a, const float* b, bool relu, float* y) {
  const bool in_place = y == a || y == b;
  if (relu) {
    fill(n, in_place, y, [=](int64_t i) { return positive_part(load(a + i) + load(b + i)); });
  } else {
    fill(n, in_place, y, [=](int64_t i) { return load(a + i) + load(b + i); });
  }
}

void accumulate(int64_t n, const float* x, float* y) {
  for_vectors(0, n, [=](int64_t i) { store(y + i, load(y + i) + load(x + i)); });
}

void bias_backward(const Blocked& s, int64_t b0, int64_t b1, const float* y, float* dy,
                   float* d_bias) {
  for (int64_t b = b0; b < b1; ++b) {
    const auto touch = [=](int64_t i) {
      prefetch(dy + i);
      if (y != nullptr) prefetch(y + i);
    };
    const auto plain = [=](int64_t i, Pair& p) { p.first += load(dy + i); };
    const auto masked = [=](int64_t i, Pair& p) {
      const Vec dz = keep(load(y + i) > zero(), load(dy + i));
      store(dy + i, dz);
      p.first += dz;
    };
    const Totals sums = y == nullptr ? sum_block(s, 0, s.n, b, plain, touch)
                                     : sum_block(s, 0, s.n, b, masked, touch);
    store(d_bias + b * kBlock, to_float(sums.first));
  }
}

// ---- dropout: four Philox blocks at once, each of their words in the low half of a 64-bit lane
// ----

using Wide = uint64_t __attribute__((vector_size(32)));
using UVec = uint32_t __attribute__((vector_size(32)));

Wide splat_wide(uint64_t x) {
  return Wide{x, x, x, x};
}

/// Products of the low halves; whatever the upper halves hold is ignored.
Wide multiply_low(Wide a, uint32_t factor) {
#ifdef __AVX2__
  return reinterpret_cast<Wide>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a),
                                                 reinterpret_cast<__m256i>(splat_wide(factor))));
#else
  return (a & splat_wide(0xFFFFFFFF)) * splat_wide(factor);
#endif
}

constexpr int kRounds = 10;

/// The round keys of philox4x32 (convoy/base/philox.hpp).
struct Schedule {
  Wide key0[kRounds];
  Wide key1[kRounds];
  explicit Schedule(uint64_t key) {
    auto low = static_cast<uint32_t>(key);
    auto high = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < kRounds; ++round) {
      key0[round] = splat_wide(low);
      key1[round] = splat_wide(high);
      low += 0x9E3779B9U;
      high += 0xBB67AE85U;
    }
  }
};

/// Sixteen random words in the order of elements: of blocks block … block + 3 of the sample.
[[gnu::always_inline]] inline void philox(const Schedule& schedule, uint64_t block, Wide sample,
                                          UVec* words) {
  // Blocks 0 and 1 in the lanes that the final shuffle puts into the first result.
  Wide c0 = splat_wide(block) + Wide{0, 2, 1, 3};
  Wide c1 = c0 >> 32;
  Wide c2 = sample;
  Wide c3 = sample >> 32;
#pragma GCC unroll 10
  for (int round = 0; round < kRounds; ++round) {
    const Wide p0 = multiply_low(c0, 0xD2511F53U);
    const Wide p1 = multiply_low(c2, 0xCD9E8D57U);
    c0 = (p1 >> 32) ^ c1 ^ schedule.key0[round];
    c1 = p1;
    c2 = (p0 >> 32) ^ c3 ^ schedule.key1[round];
    c3 = p0;
  }
  const Wide low = splat_wide(0xFFFFFFFF);
  const Wide front = (c0 & low) | (c1 << 32);
  const Wide back = (c2 & low) | (c3 << 32);
  words[0] = reinterpret_cast<UVec>(__builtin_shufflevector(front, back, 0, 4, 2, 6));
  words[1] = reinterpret_cast<UVec>(__builtin_shufflevector(front, back, 1, 5, 3, 7));
}

void dropout(int64_t samples, int64_t image, int64_t first, uint64_t key, float rate,
             const float* x, float* y) {
  const Schedule schedule(key);
  // The smallest integer that is not below rate·2³².
  const double bound = static_cast<double>(rate) * 4294967296.0;
  auto least = static_cast<uint32_t>(bound);
  if (static_cast<double>(least) < bound) ++least;
  const UVec threshold = UVec{} + least;
  const Vec factor = splat(1.0F / (1.0F - rate));
  for (int64_t n = 0; n < samples; ++n) {
    const Wide sample = splat_wide(static_cast<uint64_t>(first + n));
    const float* from = x + n * image;
    float* to = y + n * image;
    for (int64_t e = 0; e < image; e += 2 * kBlock) {
      UVec words[2];
      philox(schedule, static_cast<uint64_t>(e / 4), sample, words);
      store(to + e, load(from + e) * keep(words[0] >= threshold, factor));
      if (e + kBlock == image) break;
      store(to + e + kBlock, load(from + e + kBlock) * keep(words[1] >= threshold, factor));
    }
  }
}

}  // namespace

void fill_pointwise(Kernels& kernels) {
  kernels.relu = relu;
  kernels.relu_backward = relu_backward;
  kernels.add = add;
  kernels.accumulate = accumulate;
  kernels.bias_backward = bias_backward;
  kernels.dropout = dropout;
}

}  // namespace convoy::engine::CONVOY_ISA
