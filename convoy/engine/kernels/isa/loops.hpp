#pragma once
// The two loops most kernels are made of: over the vectors of a range, and over the pixels of a
// channel block of all images while summing. Included only by the files in this folder.

#include "convoy/engine/kernels/isa/vec.hpp"
#include "convoy/engine/kernels/kernels.hpp"

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
/// channels at x[offset]. Four chains of sums hide the latency of additions. The order of the
/// additions depends on the shape only.
template <class Step>
[[gnu::always_inline]] inline Totals sum_block(const Blocked& s, int64_t n0, int64_t n1, int64_t b,
                                               Step step) {
  Totals totals;
  Pair p0;
  Pair p1;
  Pair p2;
  Pair p3;
  int64_t room = kRun * kBlock;
  for (int64_t n = n0; n < n1; ++n) {
    int64_t i = n * s.image() + b * s.plane();
    const int64_t end = i + s.plane();
    while (i < end) {
      const int64_t stop = smaller(end, i + room);
      room -= stop - i;
      for (; i + 4 * kBlock <= stop; i += 4 * kBlock) {
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
