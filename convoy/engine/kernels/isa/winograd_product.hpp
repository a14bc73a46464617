#pragma once
// The matrix product of Winograd's convolution, one for each element of the tile: output channels ×
// input channels times input channels × tiles. bench/products.cpp measures it beside libxsmm's.

#include "convoy/engine/kernels/isa/tile.hpp"
#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::engine::CONVOY_ISA::winograd {

/// Output channel blocks and tiles of a register tile.
inline constexpr int kPanel = 2;
inline constexpr int kStrip = kRegisters == 32 ? 14 : 6;

/// V output blocks × kStrip tiles, summed over all input channels. u: [input channel][V blocks][8];
/// v: [input block][tile][8], `v_block` floats from one input block to the next; m: as v.
template <int V>
void multiply(int64_t in_blocks, const float* u, const float* v, int64_t v_block, float* m,
              int64_t m_block) {
  BlockTile<V, kStrip, true> sums;
  for (int64_t b = 0; b < in_blocks; ++b) {
#pragma GCC unroll 4
    for (int i = 0; i < kBlock; ++i) {
      sums.add_product([&](auto o) { return u + o * kBlock; },
                       [&](auto t) { return v[t * kBlock + i]; });
      u += V * kBlock;
    }
    v += v_block;
  }
  sums.each([&](auto o, auto t, Vec sum) { store(m + o * m_block + t * kBlock, sum); });
}

}  // namespace convoy::engine::CONVOY_ISA::winograd
