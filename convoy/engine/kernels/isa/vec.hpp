#pragma once
// Eight floats, whatever the instruction set: GCC lowers the vector type to one AVX register or to
// two SSE ones. Included only by the files in this folder, which are compiled once per set.

#include <cstdint>
#include <cstring>

#ifndef CONVOY_ISA
#error "compiled once per instruction set, with CONVOY_ISA naming it"
#endif

namespace convoy::engine::CONVOY_ISA {

using Vec = float __attribute__((vector_size(32)));
using IVec = int32_t __attribute__((vector_size(32)));

/// Two blocks side by side: one register of AVX-512.
using Wide = float __attribute__((vector_size(64)));
/// Whether matrix products work on pairs of blocks. Without AVX they do, too, though nothing is
/// gained by it: so the code is tested on every machine.
#if defined(__AVX512F__) || !defined(__AVX__)
inline constexpr bool kWide = true;
#else
inline constexpr bool kWide = false;
#endif
/// Vector registers.
#if defined(__AVX512F__)
inline constexpr int kRegisters = 32;
#else
inline constexpr int kRegisters = 16;
#endif

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Vec v) {
  std::memcpy(p, &v, sizeof v);
}
inline Vec splat(float x) {
  return Vec{x, x, x, x, x, x, x, x};
}
inline Vec zero() {
  return Vec{};
}
inline Wide join(Vec low, Vec high) {
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
inline Vec low_half(Wide v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
}
inline Vec high_half(Wide v) {
  return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
}
inline Wide load_wide(const float* p) {
  Wide v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
/// x where the lane of `condition` is all ones, else 0.
inline Vec keep(IVec condition, Vec x) {
  return reinterpret_cast<Vec>(condition & reinterpret_cast<IVec>(x));
}
inline IVec is_nan(Vec x) {
  const Vec itself = x;
  return x != itself;
}
/// max(x, 0), and NaN where x is NaN: a broken number must not turn into a plausible one.
inline Vec positive_part(Vec x) {
  return keep(~(x <= zero()), x);
}

}  // namespace convoy::engine::CONVOY_ISA
