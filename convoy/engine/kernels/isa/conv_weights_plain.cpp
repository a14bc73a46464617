// The weights' gradient of a first layer, whose input is NCHW with one or a few channels.
//
// Each image is first copied to a padded one with the channels innermost: then no tap has an edge,
// and for an output pixel the taps' inputs lie at offsets that do not depend on the pixel. A
// register tile holds V output blocks × M of the kh·kw·ic rows of dw, in the order of Ohwi8o.

#include "convoy/engine/kernels/isa/conv_weights.hpp"
#include "convoy/engine/kernels/isa/tile.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

constexpr int64_t kStripPixels = 192;

struct Packed {
  int64_t height, width;

  explicit Packed(const ConvShape& s)
      : height((s.oh - 1) * s.stride_h + (s.kh - 1) * s.dilation_h + 1),
        width((s.ow - 1) * s.stride_w + (s.kw - 1) * s.dilation_w + 1) {}
};

void pack(const ConvShape& s, const Packed& p, const float* x, float* packed) {
  const Range columns = intersect({s.pad_w, s.pad_w + s.iw}, {0, p.width});
  for (int64_t row = 0; row < p.height; ++row) {
    float* to = packed + row * p.width * s.ic;
    const int64_t ih = row - s.pad_h;
    if (ih < 0 || ih >= s.ih || columns.size() == 0) {
      std::fill_n(to, p.width * s.ic, 0.0F);
      continue;
    }
    std::fill_n(to, columns.begin * s.ic, 0.0F);
    std::fill_n(to + columns.end * s.ic, (p.width - columns.end) * s.ic, 0.0F);
    for (int64_t c = 0; c < s.ic; ++c) {
      const float* from = x + (c * s.ih + ih) * s.iw;
      for (int64_t w = columns.begin; w < columns.end; ++w) to[w * s.ic + c] = from[w - s.pad_w];
    }
  }
}

struct Walk {
  int64_t rows, pixels;
  int64_t x_row, x_pixel;
  int64_t dy_row, dy_block;
  int64_t dw_block;
};

template <int V, int M>
[[gnu::noinline]] void tile(const Walk& walk, const float* const* inputs, const float* dy,
                            float* dw) {
  Tile<V, M> sums;
  for (int64_t row = 0; row < walk.rows; ++row) {
    const float* x[M];
    unroll<M>([&](int m) { x[m] = inputs[m] + row * walk.x_row; });
    const float* dyp = dy + row * walk.dy_row;
    int64_t at = 0;
    for (int64_t pixel = walk.pixels; pixel > 0; --pixel) {
      sums.add_product([&](int v) { return load(dyp + v * walk.dy_block); },
                       [&](int m) { return x[m][at]; });
      at += walk.x_pixel;
      dyp += kBlock;
    }
  }
  sums.each([&](int v, int m, Vec sum) {
    float* to = dw + v * walk.dw_block + m * kBlock;
    store(to, load(to) + sum);
  });
}

/// Most rows of dw in a tile of `width` output blocks.
constexpr int64_t tile_rows(int64_t width) {
  return width == 1 ? 8 : width == 2 ? 6 : width == 3 ? 4 : 3;
}

template <int V, int M = tile_rows(V)>
void run_tile(int64_t count, const Walk& walk, const float* const* inputs, const float* dy,
              float* dw) {
  if (count == M) return tile<V, M>(walk, inputs, dy, dw);
  if constexpr (M > 1) run_tile<V, M - 1>(count, walk, inputs, dy, dw);
}

/// Widths of 4, 3 and 2 blocks fill the registers, so a single block is not left over.
int64_t tile_width(int64_t left) {
  if (left == 5 || left == 6 || left == 9) return 3;
  return std::min<int64_t>(left, 4);
}

/// The packed inputs of rows [first, first + count) of dw, for the output pixel at `base`.
void locate(const ConvShape& s, const Packed& p, const float* base, int64_t first, int64_t count,
            const float** inputs) {
  for (int64_t j = first; j < first + count; ++j) {
    const int64_t c = j % s.ic;
    const int64_t kw = j / s.ic % s.kw;
    const int64_t kh = j / (s.ic * s.kw);
    *inputs++ = base + (kh * s.dilation_h * p.width + kw * s.dilation_w) * s.ic + c;
  }
}

void strip(const ConvShape& s, const Packed& p, Range rows, int64_t b0, int64_t b1,
           const float* packed, const float* dy, float* dw) {
  const int64_t dw_rows = s.kh * s.kw * s.ic;
  const Walk walk{rows.size(),       s.ow,          s.stride_h * p.width * s.ic,
                  s.stride_w * s.ic, s.ow * kBlock, s.oh * s.ow * kBlock,
                  dw_rows * kBlock};
  const float* base = packed + rows.begin * walk.x_row;
  const float* inputs[8];
  for (int64_t b = b0; b < b1;) {
    const int64_t width = tile_width(b1 - b);
    const float* d = dy + b * walk.dy_block + rows.begin * walk.dy_row;
    for (int64_t j = 0; j < dw_rows; j += tile_rows(width)) {
      const int64_t count = std::min(tile_rows(width), dw_rows - j);
      locate(s, p, base, j, count, inputs);
      float* to = dw + b * walk.dw_block + j * kBlock;
      switch (width) {
        case 1:
          run_tile<1>(count, walk, inputs, d, to);
          break;
        case 2:
          run_tile<2>(count, walk, inputs, d, to);
          break;
        case 3:
          run_tile<3>(count, walk, inputs, d, to);
          break;
        default:
          run_tile<4>(count, walk, inputs, d, to);
          break;
      }
    }
    b += width;
  }
}

}  // namespace

int64_t conv_weights_plain_scratch(const ConvShape& s) {
  const Packed p(s);
  return p.height * p.width * s.ic;
}

void conv_weights_plain(const ConvShape& s, int64_t b0, int64_t b1, const float* x, const float* dy,
                        float* dw, float* scratch) {
  const Packed p(s);
  const int64_t dw_block = s.kh * s.kw * s.ic * kBlock;
  const int64_t dy_image = ceil_div(s.oc, kBlock) * s.oh * s.ow * kBlock;
  const int64_t strips = ceil_div(s.oh, std::max<int64_t>(1, kStripPixels / s.ow));
  std::fill_n(dw + b0 * dw_block, (b1 - b0) * dw_block, 0.0F);
  for (int64_t n = 0; n < s.n; ++n) {
    pack(s, p, x + n * s.ic * s.ih * s.iw, scratch);
    for (int64_t index = 0; index < strips; ++index) {
      strip(s, p, part(s.oh, strips, index), b0, b1, scratch, dy + n * dy_image, dw);
    }
  }
}

}  // namespace convoy::engine::CONVOY_ISA
