// The gradient of a kernel by Fourier transforms: spectra of data and output gradients are
// multiplied and summed over the tiles, and the sums are transformed back once at the end.

#include <algorithm>

#include "convoy/engine/kernels/isa/fft.hpp"
#include "convoy/engine/kernels/isa/parts.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

/// Input channels of a register tile.
constexpr int kInputs = 4;
/// Tiles summed in registers before the sums in memory are touched.
constexpr int64_t kMostTiles = 64;

int64_t block_tiles(const ConvShape& s) {
  return std::min(kMostTiles, Tiles(s, fft::tile_of(s)).all);
}

struct Scratch {
  int64_t v, d, sums;  // floats per slice
  Scratch(const ConvShape& s, int64_t out_blocks) {
    const int64_t tiles = block_tiles(s) * kBlock;
    v = odd_lines(blocks_of(s.ic) * tiles);
    d = odd_lines(out_blocks * tiles);
    sums = odd_lines(out_blocks * kBlock * blocks_of(s.ic) * kBlock);
  }
  int64_t floats() const { return fft::kSlices * (v + d + sums); }
};

/// sums[kInputs][8] (+)= Σ over tiles of conj(d[tile][8])·v[tile][input].
void multiply(int64_t tiles, const float* v, int64_t v_slice, const float* d, int64_t d_slice,
              float* sums, int64_t sums_slice, bool first) {
  fft::ComplexTile<kInputs> tile;
#pragma GCC unroll 2
  for (int64_t t = tiles; t > 0; --t) {
    tile.add_product(
        load(d), load(d + d_slice), [&](auto i) { return v[i]; },
        [&](auto i) { return v[v_slice + i]; });
    v += kBlock;
    d += kBlock;
  }
  tile.each([&](auto i, Vec& re, Vec& im) {
    float* to = sums + i * kBlock;
    store(to, first ? re : load(to) + re);
    store(to + sums_slice, first ? im : load(to + sums_slice) + im);
  });
}

void backward_weights(const ConvShape& s, int64_t b0, int64_t b1, const float* x, const float* dy,
                      float* dw, float* scratch) {
  const Tiles tiles(s, fft::tile_of(s));
  const int64_t in_blocks = blocks_of(s.ic);
  const int64_t out_blocks = b1 - b0;
  const Scratch slices(s, out_blocks);
  float* v = scratch;
  float* d = v + fft::kSlices * slices.v;
  float* sums = d + fft::kSlices * slices.d;

  const int64_t step = block_tiles(s);
  for (int64_t first = 0; first < tiles.all; first += step) {
    const int64_t count = std::min(step, tiles.all - first);
    fft::transform_tiles(x, input_channels(s), {s.ih, s.iw}, {s.pad_h, s.pad_w},
                         {fft::kSize, fft::kSize}, tiles, first, count, count, v, slices.v);
    fft::transform_tiles(dy, {b0, b1, output_channels(s).all}, {s.oh, s.ow}, {0, 0}, tiles.size,
                         tiles, first, count, count, d, slices.d);
    for (int e = 0; e < fft::kElements; ++e) {
      for (int64_t o = 0; o < out_blocks; ++o) {
        for (int64_t i = 0; i < in_blocks * kBlock; i += kInputs) {
          multiply(count, v + 2 * e * slices.v + i / kBlock * count * kBlock + i % kBlock, slices.v,
                   d + 2 * e * slices.d + o * count * kBlock, slices.d,
                   sums + 2 * e * slices.sums + (o * in_blocks * kBlock + i) * kBlock, slices.sums,
                   first == 0);
        }
      }
    }
  }

  constexpr int64_t kTap = kBlock * kBlock;
  for (int64_t o = 0; o < out_blocks; ++o) {
    for (int64_t i = 0; i < in_blocks * kBlock; ++i) {
      float* to =
          dw + ((b0 + o) * in_blocks + i / kBlock) * s.kh * s.kw * kTap + i % kBlock * kBlock;
      fft::invert(sums + (o * in_blocks * kBlock + i) * kBlock, slices.sums, s.kh,
                  [&](int r, const Vec* row) {
                    for (int64_t c = 0; c < s.kw; ++c) store(to + (r * s.kw + c) * kTap, row[c]);
                  });
    }
  }
}

}  // namespace

void fill_fft_weights(Kernels& kernels) {
  kernels.fft.backward_weights_scratch = [](const ConvShape& s, int64_t out_blocks) {
    return Scratch(s, out_blocks).floats();
  };
  kernels.fft.backward_weights = backward_weights;
}

}  // namespace convoy::engine::CONVOY_ISA
