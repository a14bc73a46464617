// Winograd's convolution, forward and backward-data: the kernel is transformed beforehand (once per
// step), a block of tiles is transformed, multiplied and transformed back while it is in the cache.
//
// Backward-data is the same with the roles of the channels exchanged, the kernel turned by 180° and
// 2 − pad for the padding.

#include "convoy/engine/kernels/isa/winograd.hpp"

#include <algorithm>

#include "convoy/engine/kernels/isa/parts.hpp"
#include "convoy/engine/kernels/isa/transpose.hpp"
#include "convoy/engine/kernels/isa/winograd_product.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

using winograd::kPanel;
using winograd::kStrip;
/// Tiles transformed at a time: all their elements should stay in the second-level cache, but the
/// kernels pass through it once per block of tiles too.
constexpr int64_t kLeastTiles = 8 * kStrip;
constexpr int64_t kMostTiles = 32 * kStrip;
constexpr int64_t kCachedFloats = 256 * 1024;

template <int M>
int64_t block_tiles(const ConvShape& s) {
  constexpr int64_t kElements = (M + 2) * (M + 2);
  const int64_t channels = (blocks_of(s.ic) + blocks_of(s.oc)) * kBlock;
  const int64_t wanted = kCachedFloats / (kElements * channels) / kStrip * kStrip;
  const int64_t most = round_up(Tiles(s, {M, M}).all, kStrip);
  return std::min(std::clamp(wanted, kLeastTiles, kMostTiles), most);
}

/// Floats of one element's slice of the transformed kernel: [panel][input channel][16 outputs].
int64_t kernel_slice(int64_t ic, int64_t oc) {
  return odd_lines(blocks_of(ic) * kBlock * blocks_of(oc) * kBlock);
}

template <int M>
void forward(const ConvShape& s, int64_t t0, int64_t t1, const float* x, const float* u,
             const float* bias, bool relu, float* y, float* scratch) {
  constexpr int kSize = M + 2;
  constexpr int kElements = kSize * kSize;
  using Output = winograd::OutputLine<M>;
  const Tiles tiles(s, {M, M});
  const int64_t in_blocks = blocks_of(s.ic);
  const int64_t out_blocks = blocks_of(s.oc);
  const int64_t image_blocks = output_channels(s).all;
  const int64_t step = block_tiles<M>(s);
  const int64_t v_slice = odd_lines(in_blocks * step * kBlock);
  const int64_t m_slice = odd_lines(out_blocks * step * kBlock);
  const int64_t u_slice = kernel_slice(s.ic, s.oc);
  float* v = scratch;
  float* m = scratch + kElements * v_slice;

  for (int64_t first = t0; first < t1; first += step) {
    const int64_t count = std::min(step, t1 - first);
    const int64_t padded = round_up(count, kStrip);
    winograd::transform_tiles<winograd::DataLine<M>>(x, input_channels(s), {s.ih, s.iw},
                                                     {s.pad_h, s.pad_w}, tiles, first, count,
                                                     padded, v, v_slice);
    for (int e = 0; e < kElements; ++e) {
      const float* panel = u + e * u_slice;
      for (int64_t o = 0; o < out_blocks; o += kPanel) {
        float* to = m + e * m_slice + o * padded * kBlock;
        const bool whole = o + kPanel <= out_blocks;
        for (int64_t t = 0; t < padded; t += kStrip) {
          const float* from = v + e * v_slice + t * kBlock;
          if (whole) {
            winograd::multiply<kPanel>(in_blocks, panel, from, padded * kBlock, to + t * kBlock,
                                       padded * kBlock);
          } else {
            winograd::multiply<1>(in_blocks, panel, from, padded * kBlock, to + t * kBlock,
                                  padded * kBlock);
          }
        }
        panel += kPanel * kBlock * in_blocks * kBlock;
      }
    }
    for (int64_t b = 0; b < out_blocks; ++b) {
      const Vec shift = bias != nullptr ? load(bias + b * kBlock) : zero();
      TileWalk at(tiles, first);
      for (int64_t t = 0; t < count; ++t, at.next()) {
        const float* from = m + (b * padded + t) * kBlock;
        float* to =
            y + (((at.image * image_blocks + b) * s.oh + at.row) * s.ow + at.column) * kBlock;
        const int64_t rows = std::min<int64_t>(M, s.oh - at.row);
        const int64_t columns = std::min<int64_t>(M, s.ow - at.column);
        alignas(64) float partial[M * M * kBlock];
        const bool inside = rows == M && columns == M;
        float* out = inside ? to : partial;
        const int64_t out_row = inside ? s.ow * kBlock : M * kBlock;
        winograd::transform<Output>(
            [&](int r, int c)
                __attribute__((always_inline)) { return load(from + (r * kSize + c) * m_slice); },
            [&](int r, int c, Vec value) __attribute__((always_inline)) {
              value += shift;
              store(out + r * out_row + c * kBlock, relu ? positive_part(value) : value);
            });
        if (inside) continue;
        for (int64_t r = 0; r < rows; ++r) {
          std::memcpy(to + r * s.ow * kBlock, partial + r * M * kBlock,
                      static_cast<size_t>(columns * kBlock) * sizeof(float));
        }
      }
    }
  }
}

/// One 8×8 block of the kernel: rows[tap][i] = the weights of input i to 8 outputs, as they lie.
template <int M, class Kernel>
void transform_kernel_block(Kernel kernel, float* u, int64_t u_slice, int64_t u_channel) {
  constexpr int kSize = M + 2;
  for (int i = 0; i < kBlock; ++i) {
    winograd::transform<winograd::KernelLine<M>>(
        [&](int r, int c) __attribute__((always_inline)) { return kernel(r, c, i); },
        [&](int r, int c, Vec value) __attribute__((always_inline)) {
          store(u + (r * kSize + c) * u_slice + i * u_channel, value);
        });
  }
}

/// Where output block `b`, input block `i` of a transformed kernel starts, and the floats from one
/// input channel to the next.
struct KernelPlace {
  int64_t offset, channel;
  KernelPlace(int64_t b, int64_t i, int64_t in_blocks, int64_t out_blocks) {
    const int64_t panel = b / kPanel * kPanel;
    channel = std::min<int64_t>(kPanel, out_blocks - panel) * kBlock;
    offset = panel * kBlock * in_blocks * kBlock + i * kBlock * channel + (b - panel) * kBlock;
  }
};

template <int M>
void kernel_forward(const ConvShape& s, int64_t b0, int64_t b1, const float* w, float* u) {
  const int64_t in_blocks = blocks_of(s.ic);
  const int64_t out_blocks = blocks_of(s.oc);
  for (int64_t o = b0; o < b1; ++o) {
    for (int64_t i = 0; i < in_blocks; ++i) {
      const float* from = w + (o * in_blocks + i) * 9 * kBlock * kBlock;
      const KernelPlace place(o, i, in_blocks, out_blocks);
      transform_kernel_block<M>(
          [&](int r, int c, int k) { return load(from + ((r * 3 + c) * kBlock + k) * kBlock); },
          u + place.offset, kernel_slice(s.ic, s.oc), place.channel);
    }
  }
}

template <int M>
void kernel_backward(const ConvShape& s, int64_t b0, int64_t b1, const float* w, float* u) {
  const int64_t in_blocks = blocks_of(s.ic);
  const int64_t out_blocks = blocks_of(s.oc);
  for (int64_t i = b0; i < b1; ++i) {
    for (int64_t o = 0; o < out_blocks; ++o) {
      const float* from = w + (o * in_blocks + i) * 9 * kBlock * kBlock;
      Vec turned[9][kBlock];
      for (int tap = 0; tap < 9; ++tap) {
        for (int k = 0; k < kBlock; ++k) {
          turned[8 - tap][k] = load(from + (tap * kBlock + k) * kBlock);
        }
        transpose8(turned[8 - tap]);
      }
      const KernelPlace place(i, o, out_blocks, in_blocks);
      transform_kernel_block<M>([&](int r, int c, int k) { return turned[r * 3 + c][k]; },
                                u + place.offset, kernel_slice(s.oc, s.ic), place.channel);
    }
  }
}

bool supported(const ConvShape& s) {
  return s.groups == 1 && !s.plain_input && s.kh == 3 && s.kw == 3 && s.stride_h == 1 &&
         s.stride_w == 1 && s.dilation_h == 1 && s.dilation_w == 1 && s.pad_h <= 2 && s.pad_w <= 2;
}

template <int M>
void kernel(const ConvShape& s, bool turned, int64_t b0, int64_t b1, const float* w, float* u) {
  if (turned) {
    kernel_backward<M>(s, b0, b1, w, u);
  } else {
    kernel_forward<M>(s, b0, b1, w, u);
  }
}

template <int M>
void fill(TiledConv& w) {
  constexpr int64_t kElements = (M + 2) * (M + 2);
  w.supported = supported;
  w.tiles = [](const ConvShape& s) { return Tiles(s, {M, M}).all; };
  w.kernel_size = [](const ConvShape& s) { return kElements * kernel_slice(s.ic, s.oc); };
  w.kernel = kernel<M>;
  w.forward_scratch = [](const ConvShape& s) {
    const int64_t tile = block_tiles<M>(s) * kBlock;
    return kElements * (odd_lines(blocks_of(s.ic) * tile) + odd_lines(blocks_of(s.oc) * tile));
  };
  w.forward = forward<M>;
}

}  // namespace

void fill_winograd(Kernels& kernels) {
  fill<2>(kernels.winograd2);
  fill<4>(kernels.winograd4);
}

}  // namespace convoy::engine::CONVOY_ISA
