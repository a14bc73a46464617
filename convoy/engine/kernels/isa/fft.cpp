// Convolution by Fourier transforms, forward and backward-data: as winograd.cpp, with spectra of
// 16×16 tiles. It pays for large kernels.

#include "convoy/engine/kernels/isa/fft.hpp"

#include <algorithm>

#include "convoy/engine/kernels/isa/parts.hpp"
#include "convoy/engine/kernels/isa/transpose.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

/// Tiles of a register tile.
constexpr int kStrip = kRegisters == 32 ? 12 : 6;
/// Tiles transformed at a time: enough of them to be worth passing over all kernels, which do not
/// stay in the cache.
constexpr int64_t kMostTiles = 48;

int64_t block_tiles(const ConvShape& s) {
  return std::min(kMostTiles, round_up(Tiles(s, fft::tile_of(s)).all, kStrip));
}

/// Floats of one element of the kernels' spectra: [output block][input channel][re, im][8].
int64_t kernel_slice(const ConvShape& s) {
  return odd_lines(blocks_of(s.ic) * kBlock * blocks_of(s.oc) * 2 * kBlock);
}

/// One output block × kStrip tiles, summed over all input channels.
void multiply(int64_t in_blocks, const float* u, const float* v_re, const float* v_im,
              int64_t v_block, float* m_re, float* m_im) {
  fft::ComplexTile<kStrip> sums;
  for (int64_t b = 0; b < in_blocks; ++b) {
#pragma GCC unroll 2
    for (int i = 0; i < kBlock; ++i) {
      sums.add_product(
          load(u), load(u + kBlock), [&](auto t) { return v_re[t * kBlock + i]; },
          [&](auto t) { return v_im[t * kBlock + i]; });
      u += 2 * kBlock;
    }
    v_re += v_block;
    v_im += v_block;
  }
  sums.each([&](auto t, Vec& re, Vec& im) {
    store(m_re + t * kBlock, re);
    store(m_im + t * kBlock, im);
  });
}

/// Writes tile `at` of y's block from its spectrum.
void write_tile(const ConvShape& s, const Tiles& tiles, const TileWalk& at, const float* from,
                int64_t slice, Vec bias, bool relu, float* plane) {
  const int64_t rows = std::min(tiles.size.height, s.oh - at.row);
  const int64_t columns = std::min(tiles.size.width, s.ow - at.column);
  float* to = plane + (at.row * s.ow + at.column) * kBlock;
  fft::invert(from, slice, rows, [&](int r, const Vec* row) {
    for (int64_t c = 0; c < columns; ++c) {
      const Vec value = row[c] + bias;
      store(to + (r * s.ow + c) * kBlock, relu ? positive_part(value) : value);
    }
  });
}

void forward(const ConvShape& s, int64_t t0, int64_t t1, const float* x, const float* u,
             const float* bias, bool relu, float* y, float* scratch) {
  const Tiles tiles(s, fft::tile_of(s));
  const int64_t in_blocks = blocks_of(s.ic);
  const int64_t out_blocks = blocks_of(s.oc);
  const int64_t image_blocks = output_channels(s).all;
  const int64_t step = block_tiles(s);
  const int64_t v_slice = odd_lines(in_blocks * step * kBlock);
  const int64_t m_slice = odd_lines(out_blocks * step * kBlock);
  const int64_t u_slice = kernel_slice(s);
  float* v = scratch;
  float* m = scratch + fft::kSlices * v_slice;

  for (int64_t first = t0; first < t1; first += step) {
    const int64_t count = std::min(step, t1 - first);
    const int64_t padded = round_up(count, kStrip);
    fft::transform_tiles(x, input_channels(s), {s.ih, s.iw}, {s.pad_h, s.pad_w},
                         {fft::kSize, fft::kSize}, tiles, first, count, padded, v, v_slice);
    for (int e = 0; e < fft::kElements; ++e) {
      const float* from = v + 2 * e * v_slice;
      float* to = m + 2 * e * m_slice;
      for (int64_t o = 0; o < out_blocks; ++o) {
        const float* panel = u + e * u_slice + o * in_blocks * kBlock * 2 * kBlock;
        for (int64_t t = 0; t < padded; t += kStrip) {
          const int64_t at = (o * padded + t) * kBlock;
          multiply(in_blocks, panel, from + t * kBlock, from + v_slice + t * kBlock,
                   padded * kBlock, to + at, to + m_slice + at);
        }
      }
    }
    for (int64_t b = 0; b < out_blocks; ++b) {
      const Vec shift = bias != nullptr ? load(bias + b * kBlock) : zero();
      TileWalk at(tiles, first);
      for (int64_t t = 0; t < count; ++t, at.next()) {
        write_tile(s, tiles, at, m + (b * padded + t) * kBlock, m_slice, shift, relu,
                   y + (at.image * image_blocks + b) * s.oh * s.ow * kBlock);
      }
    }
  }
}

/// The spectra of an 8×8 block of kernels that lie tap by tap as [8 inputs][8 outputs].
void transform_kernels(const ConvShape& s, const float* taps, float* u, int64_t u_slice) {
  alignas(64) float spectrum[fft::kSlices * kBlock];
  for (int i = 0; i < kBlock; ++i) {
    constexpr int64_t kTap = kBlock * kBlock;
    fft::transform({taps + i * kBlock, s.kw * kTap, kTap, 0, s.kh, 0, s.kw}, spectrum, kBlock);
    for (int e = 0; e < fft::kElements; ++e) {
      std::memcpy(u + e * u_slice + i * 2 * kBlock, spectrum + 2 * e * kBlock,
                  2 * kBlock * sizeof(float));
    }
  }
}

void kernel(const ConvShape& s, bool turned, int64_t b0, int64_t b1, const float* w, float* u) {
  constexpr int64_t kTap = kBlock * kBlock;
  const int64_t in_blocks = blocks_of(s.ic);
  const int64_t taps = s.kh * s.kw;
  const int64_t slice = kernel_slice(s);
  constexpr int64_t kPlace = kBlock * 2 * kBlock;  // of an 8×8 block, within an element
  if (!turned) {
    for (int64_t at = b0 * in_blocks; at < b1 * in_blocks; ++at) {
      transform_kernels(s, w + at * taps * kTap, u + at * kPlace, slice);
    }
    return;
  }
  const int64_t out_blocks = blocks_of(s.oc);
  alignas(64) float copy[(fft::kSize - 5) * (fft::kSize - 5) * kTap];
  for (int64_t i = b0; i < b1; ++i) {
    for (int64_t o = 0; o < out_blocks; ++o) {
      const float* from = w + (o * in_blocks + i) * taps * kTap;
      for (int64_t t = 0; t < taps; ++t) {
        Vec rows[kBlock];
        for (int k = 0; k < kBlock; ++k) rows[k] = load(from + t * kTap + k * kBlock);
        transpose8(rows);
        float* to = copy + (taps - 1 - t) * kTap;
        for (int k = 0; k < kBlock; ++k) store(to + k * kBlock, rows[k]);
      }
      transform_kernels(s, copy, u + (i * out_blocks + o) * kPlace, slice);
    }
  }
}

}  // namespace

void fill_fft(Kernels& kernels) {
  TiledConv& f = kernels.fft;
  f.supported = fft::supported;
  f.tiles = [](const ConvShape& s) { return Tiles(s, fft::tile_of(s)).all; };
  f.kernel_size = [](const ConvShape& s) { return fft::kElements * kernel_slice(s); };
  f.kernel = kernel;
  f.forward_scratch = [](const ConvShape& s) {
    const int64_t tile = block_tiles(s) * kBlock;
    return fft::kSlices * (odd_lines(blocks_of(s.ic) * tile) + odd_lines(blocks_of(s.oc) * tile));
  };
  f.forward = forward;
}

}  // namespace convoy::engine::CONVOY_ISA
