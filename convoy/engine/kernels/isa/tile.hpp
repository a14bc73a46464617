#pragma once
// What register tiles of matrix products need beyond plain vectors.

#include <type_traits>
#include <utility>

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

inline Wide multiply_add(Wide a, Wide b, Wide c) {
#ifdef __AVX512F__
  return _mm512_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

/// c − a·b, rounded once where the instruction set can.
inline Vec subtract_product(Vec a, Vec b, Vec c) {
#ifdef __FMA__
  return _mm256_fnmadd_ps(a, b, c);
#else
  return c - a * b;
#endif
}

/// Keeps a loaded value in its register: GCC would rather load it again for each use, and loads are
/// what a tile is short of.
inline void hold([[maybe_unused]] Vec& v) {
#ifdef __AVX__
  asm("" : "+x"(v));
#endif
}
inline void hold([[maybe_unused]] Wide& v) {
#ifdef __AVX512F__
  asm("" : "+v"(v));
#endif
}

template <class Vector>
inline Vector all_of(float x);
template <>
inline Vec all_of<Vec>(float x) {
  return splat(x);
}
template <>
inline Wide all_of<Wide>(float x) {
  return join(splat(x), splat(x));
}

/// f(0), …, f(N − 1) with constant arguments. A loop would do, but GCC unrolls it too late to put
/// an array that it indexes into registers.
template <int N, class F>
[[gnu::always_inline]] inline void unroll(F f) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

/// V vectors × M scalars of sums, all in registers: of sixteen, twelve hold sums, the others the
/// smaller side of the product and one of the other side.
template <class Vector, int V, int M>
class VectorTile {
 public:
  [[gnu::always_inline]] VectorTile() {
    each([](auto, auto, Vector& sum) __attribute__((always_inline)) { sum = Vector{}; });
  }

  /// sums[v][m] += vectors(v)·scalars(m); both are called once for each index.
  template <class Vectors, class Scalars>
  [[gnu::always_inline]] void add_product(Vectors vectors, Scalars scalars) {
    if constexpr (M < V) {
      Vector broadcast[M];
      unroll<M>([&](auto m)
                    __attribute__((always_inline)) { broadcast[m] = all_of<Vector>(scalars(m)); });
      unroll<V>([&](auto v) __attribute__((always_inline)) {
        Vector vector = vectors(v);
        hold(vector);
        unroll<M>([&](auto m) __attribute__((always_inline)) {
          sums_[v][m] = multiply_add(broadcast[m], vector, sums_[v][m]);
        });
      });
    } else {
      Vector vector[V];
      unroll<V>([&](auto v) __attribute__((always_inline)) {
        vector[v] = vectors(v);
        hold(vector[v]);
      });
      unroll<M>([&](auto m) __attribute__((always_inline)) {
        const Vector broadcast = all_of<Vector>(scalars(m));
        unroll<V>([&](auto v) __attribute__((always_inline)) {
          sums_[v][m] = multiply_add(broadcast, vector[v], sums_[v][m]);
        });
      });
    }
  }

  /// f(v, m, sum) for every sum.
  template <class F>
  [[gnu::always_inline]] void each(F f) {
    unroll<V>([&](auto v) __attribute__((always_inline)) {
      unroll<M>([&](auto m) __attribute__((always_inline)) { f(v, m, sums_[v][m]); });
    });
  }

 private:
  Vector sums_[V][M];
};

template <int V, int M>
using Tile = VectorTile<Vec, V, M>;

/// The same over V blocks of channels, which are taken in pairs where vectors are wide. ADJACENT:
/// the blocks of a pair lie side by side.
template <int V, int M, bool ADJACENT>
class BlockTile {
 public:
  /// sums[v][m] += the eight floats at blocks(v) · scalars(m)
  template <class Blocks, class Scalars>
  [[gnu::always_inline]] void add_product(Blocks blocks, Scalars scalars) {
    if constexpr (!kPairs) {
      tile_.add_product(
          [&](auto v) __attribute__((always_inline)) { return load(blocks(v)); }, scalars);
    } else if constexpr (ADJACENT) {
      tile_.add_product(
          [&](auto p) __attribute__((always_inline)) { return load_wide(blocks(2 * p)); }, scalars);
    } else {
      tile_.add_product(
          [&](auto p) __attribute__((always_inline)) {
            return join(load(blocks(2 * p)), load(blocks(2 * p + 1)));
          },
          scalars);
    }
  }

  /// f(v, m, sum) for every sum of eight.
  template <class F>
  [[gnu::always_inline]] void each(F f) {
    if constexpr (kPairs) {
      tile_.each([&](auto p, auto m, Wide& sum) __attribute__((always_inline)) {
        f(2 * p, m, low_half(sum));
        f(2 * p + 1, m, high_half(sum));
      });
    } else {
      tile_.each([&](auto v, auto m, Vec& sum) __attribute__((always_inline)) { f(v, m, sum); });
    }
  }

 private:
  static constexpr bool kPairs = kWide && V % 2 == 0;
  std::conditional_t<kPairs, VectorTile<Wide, V / 2, M>, Tile<V, M>> tile_;
};

}  // namespace convoy::engine::CONVOY_ISA
