#pragma once
// What register tiles of matrix products need beyond plain vectors.

#include "convoy/engine/kernels/isa/vec.hpp"

#ifdef __FMA__
#include <immintrin.h>
#endif

namespace convoy::engine::CONVOY_ISA {

/// a·b + c, rounded once where the instruction set can. GCC's tuning for Zen splits some chains of
/// a*b + c into a multiplication and an addition; then bits would depend on the tile's shape.
inline Vec multiply_add(Vec a, Vec b, Vec c) {
#ifdef __FMA__
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

/// Keeps a loaded value in its register: GCC would rather load it again for each use, and loads are
/// what a tile is short of.
inline void hold([[maybe_unused]] Vec& v) {
#ifdef __AVX__
  asm("" : "+x"(v));
#endif
}

}  // namespace convoy::engine::CONVOY_ISA
