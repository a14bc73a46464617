// The gradient of a 3×3 kernel by Winograd's algorithm: data and output gradients are transformed
// tile by tile, multiplied and summed over the tiles for each element of the tile, and the sums are
// transformed back to 3×3 once at the end.

#include <algorithm>

#include "convoy/engine/kernels/isa/parts.hpp"
#include "convoy/engine/kernels/isa/tile.hpp"
#include "convoy/engine/kernels/isa/winograd.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

/// Output blocks and input channels of a register tile.
constexpr int kWidest = kWide ? 2 : 3;
constexpr int kInputs = kWide ? 8 : 4;
/// Tiles summed in registers before the sums in memory are touched. Three output blocks of them
/// stay in the first-level cache.
constexpr int64_t kMostTiles = 256;

template <int M>
int64_t block_tiles(const ConvShape& s) {
  // Blocks of nearly equal size.
  const int64_t all = Tiles(s, {M, M}).all;
  const int64_t blocks = (all + kMostTiles - 1) / kMostTiles;
  return (all + blocks - 1) / blocks;
}

/// Slices of the scratch memory, for output blocks [b0, b1).
template <int M>
struct Scratch {
  static constexpr int64_t kElements = (M + 2) * (M + 2);
  int64_t v, d, sums;  // floats per element
  Scratch(const ConvShape& s, int64_t out_blocks) {
    const int64_t tiles = block_tiles<M>(s) * kBlock;
    v = odd_lines(blocks_of(s.ic) * tiles);
    d = odd_lines(out_blocks * tiles);
    sums = odd_lines(out_blocks * kBlock * blocks_of(s.ic) * kBlock);
  }
  int64_t floats() const { return kElements * (v + d + sums); }
};

/// sums[V blocks][kInputs][8] (+)= Σ over tiles of d[tile][8]·v[tile][input].
template <int V>
void multiply(int64_t tiles, const float* v, const float* d, int64_t d_block, float* sums,
              int64_t sums_block, bool first) {
  BlockTile<V, kInputs, false> tile;
#pragma GCC unroll 4
  for (int64_t t = tiles; t > 0; --t) {
    tile.add_product([&](auto o) { return d + o * d_block; }, [&](auto i) { return v[i]; });
    v += kBlock;
    d += kBlock;
  }
  tile.each([&](auto o, auto i, Vec sum) {
    float* to = sums + o * sums_block + i * kBlock;
    store(to, first ? sum : load(to) + sum);
  });
}

/// All input channels for V output blocks.
template <int V>
void multiply_panel(int64_t in_blocks, int64_t tiles, const float* v, const float* d, float* sums,
                    bool first) {
  const int64_t block = tiles * kBlock;
  const int64_t sums_block = in_blocks * kBlock * kBlock;
  for (int64_t b = 0; b < in_blocks; ++b) {
    for (int i = 0; i < kBlock; i += kInputs) {
      multiply<V>(tiles, v + b * block + i, d, block, sums + (b * kBlock + i) * kBlock, sums_block,
                  first);
    }
  }
}

template <int M>
void backward_weights(const ConvShape& s, int64_t b0, int64_t b1, const float* x, const float* dy,
                      float* dw, float* scratch) {
  constexpr int kSize = M + 2;
  constexpr int kElements = kSize * kSize;
  const Tiles tiles(s, {M, M});
  const int64_t in_blocks = blocks_of(s.ic);
  const int64_t out_blocks = b1 - b0;
  const Scratch<M> slices(s, out_blocks);
  float* v = scratch;
  float* d = v + kElements * slices.v;
  float* sums = d + kElements * slices.d;

  const int64_t step = block_tiles<M>(s);
  for (int64_t first = 0; first < tiles.all; first += step) {
    const int64_t count = std::min(step, tiles.all - first);
    winograd::transform_tiles<winograd::DataLine<M>>(x, input_channels(s), {s.ih, s.iw},
                                                     {s.pad_h, s.pad_w}, tiles, first, count, count,
                                                     v, slices.v);
    winograd::transform_tiles<winograd::GradientLine<M>>(dy, {b0, b1, output_channels(s).all},
                                                         {s.oh, s.ow}, {0, 0}, tiles, first, count,
                                                         count, d, slices.d);
    for (int e = 0; e < kElements; ++e) {
      for (int64_t o = 0; o < out_blocks;) {
        const int64_t left = out_blocks - o;
        const float* from = d + e * slices.d + o * count * kBlock;
        float* to = sums + e * slices.sums + o * in_blocks * kBlock * kBlock;
        // Threes, but 4 = 2 + 2: a single block would be bound by its loads.
        const int64_t width = left == 4 || left == 2 ? 2 : std::min<int64_t>(left, kWidest);
        if (width == kWidest) {
          multiply_panel<kWidest>(in_blocks, count, v + e * slices.v, from, to, first == 0);
        } else if (width == 2) {
          multiply_panel<2>(in_blocks, count, v + e * slices.v, from, to, first == 0);
        } else {
          multiply_panel<1>(in_blocks, count, v + e * slices.v, from, to, first == 0);
        }
        o += width;
      }
    }
  }

  for (int64_t o = 0; o < out_blocks; ++o) {
    for (int64_t i = 0; i < in_blocks * kBlock; ++i) {
      const float* from = sums + (o * in_blocks * kBlock + i) * kBlock;
      float* to = dw + (((b0 + o) * in_blocks + i / kBlock) * 9 * kBlock + i % kBlock) * kBlock;
      winograd::transform<winograd::KernelGradientLine<M>>(
          [&](int r, int c)
              __attribute__((always_inline)) { return load(from + (r * kSize + c) * slices.sums); },
          [&](int r, int c, Vec value)
              __attribute__((always_inline)) { store(to + (r * 3 + c) * kBlock * kBlock, value); });
    }
  }
}

template <int M>
void fill(TiledConv& w) {
  w.backward_weights_scratch = [](const ConvShape& s, int64_t out_blocks) {
    return Scratch<M>(s, out_blocks).floats();
  };
  w.backward_weights = backward_weights<M>;
}

}  // namespace

void fill_winograd_weights(Kernels& kernels) {
  fill<2>(kernels.winograd2);
  fill<4>(kernels.winograd4);
}

}  // namespace convoy::engine::CONVOY_ISA
