#pragma once
// The two loops most kernels are made of: over the vectors of a range, and over the pixels of a
// channel block of all images while summing. Included only by the files in this folder.

#include "convoy/engine/kernels/isa/vec.hpp"
#include "convoy/engine/kernels/kernels.hpp"

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace convoy::engine::CONVOY_ISA {

using DVec = double __attribute__((vector_size(64)));

inline int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}
inline int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/// Calls f(i) for i = begin, begin + 8, … below end, which lies a multiple of 8 further.
template <class F>
[[gnu::always_inline]] inline void for_vectors(int64_t begin, int64_t end, F f) {
  int64_t i = begin;
  for (; i + 4 * kBlock <= end; i += 4 * kBlock) {
    f(i);
    f(i + kBlock);
    f(i + 2 * kBlock);
    f(i + 3 * kBlock);
  }
  for (; i < end; i += kBlock) f(i);
}

/// Where results go: through the caches, or around them if the array is larger than the share of
/// the last-level cache a lane can hope for. Then a line need not be read before it is written.
enum class To { cache, memory };

inline constexpr int64_t kShare = 2 << 20;

inline To destination(int64_t floats) {
  return floats > kShare ? To::memory : To::cache;
}

/// Stores to a multiple of 32 bytes; whoever stored around the caches calls finish() at the end.
template <To kTo>
[[gnu::always_inline]] inline void put(float* p, Vec v) {
#if defined(__AVX__)
  if constexpr (kTo == To::memory) return _mm256_stream_ps(p, reinterpret_cast<__m256>(v));
#elif defined(__SSE2__)
  if constexpr (kTo == To::memory) {
    __m128 halves[2];
    std::memcpy(halves, &v, sizeof halves);
    _mm_stream_ps(p, halves[0]);
    return _mm_stream_ps(p + 4, halves[1]);
  }
#endif
  store(p, v);
}

/// Makes what was stored around the caches visible before anything stored later.
template <To kTo>
inline void finish() {
#ifdef __SSE2__
  if constexpr (kTo == To::memory) _mm_sfence();
#endif
}

inline void prefetch(const float* p) {
  __builtin_prefetch(p);
}

/// How far ahead a kernel that goes through the planes of a channel block should prefetch its
/// inputs, `next` being the distance of the plane it comes to next. The hardware finds its way in a
/// large plane, but not to the next; with small planes that would be most of the time spent.
inline constexpr int64_t kSmallPlane = 2048;

inline int64_t lookahead(const Blocked& s, int64_t next) {
  return s.plane() <= kSmallPlane ? next : 0;
}

/// Calls f(i) for the pixels of channel block b of all images, and touch(j) to prefetch. From the
/// last image to the first: a pass that has just gone the other way left the last in the cache.
template <class F, class Touch>
[[gnu::always_inline]] inline void for_planes(const Blocked& s, int64_t b, F f, Touch touch) {
  for (int64_t n = s.n - 1; n >= 0; --n) {
    const int64_t ahead = n > 0 ? lookahead(s, -s.image()) : 0;
    int64_t i = n * s.image() + b * s.plane();
    const int64_t end = i + s.plane();
    for (; i + 4 * kBlock <= end; i += 4 * kBlock) {
      touch(i + ahead);
      touch(i + ahead + 2 * kBlock);
      f(i);
      f(i + kBlock);
      f(i + 2 * kBlock);
      f(i + 3 * kBlock);
    }
    for (; i < end; i += kBlock) f(i);
  }
}

/// Two running sums per channel; kernels that need one leave the second at zero.
struct Pair {
  Vec first{};
  Vec second{};
};
struct Totals {
  DVec first{};
  DVec second{};
};

/// Sums in float lose about √terms roundings; after this many pixels they move on to doubles.
inline constexpr int64_t kRun = 512;

/// Sums over n, h and w of channel block b: step(offset, pair) adds the terms of the eight
/// channels at x[offset], touch(offset) prefetches them. Four chains of sums hide the latency of
/// additions. The order of the additions depends on the shape only.
template <class Step, class Touch>
[[gnu::always_inline]] inline Totals sum_block(const Blocked& s, int64_t n0, int64_t n1, int64_t b,
                                               Step step, Touch touch) {
  Totals totals;
  Pair p0;
  Pair p1;
  Pair p2;
  Pair p3;
  int64_t room = kRun * kBlock;
  for (int64_t n = n0; n < n1; ++n) {
    const int64_t ahead = n + 1 < n1 ? lookahead(s, s.image()) : 0;
    int64_t i = n * s.image() + b * s.plane();
    const int64_t end = i + s.plane();
    while (i < end) {
      const int64_t stop = smaller(end, i + room);
      room -= stop - i;
      for (; i + 4 * kBlock <= stop; i += 4 * kBlock) {
        touch(i + ahead);
        touch(i + ahead + 2 * kBlock);
        step(i, p0);
        step(i + kBlock, p1);
        step(i + 2 * kBlock, p2);
        step(i + 3 * kBlock, p3);
      }
      for (; i < stop; i += kBlock) step(i, p0);
      if (room == 0 || (n + 1 == n1 && i == end)) {
        const Vec first = (p0.first + p1.first) + (p2.first + p3.first);
        const Vec second = (p0.second + p1.second) + (p2.second + p3.second);
        totals.first += __builtin_convertvector(first, DVec);
        totals.second += __builtin_convertvector(second, DVec);
        p0 = p1 = p2 = p3 = Pair{};
        room = kRun * kBlock;
      }
    }
  }
  return totals;
}

inline Vec to_float(const DVec& v) {
  return __builtin_convertvector(v, Vec);
}
inline DVec splat_double(double x) {
  return DVec{x, x, x, x, x, x, x, x};
}

}  // namespace convoy::engine::CONVOY_ISA
