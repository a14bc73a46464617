// The weights' gradient of a depthwise convolution: one filter per channel, a vector holds the same
// tap of eight channels.

#include "convoy/engine/kernels/isa/conv_weights.hpp"
#include "convoy/engine/kernels/isa/tile.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

/// Σ x·dy over `pixels` of a row. Four sums, for one multiply-add has to wait for the last.
Vec row_product(int64_t pixels, const float* x, int64_t x_pixel, const float* dy) {
  Vec sums[4] = {};
  for (; pixels >= 4; pixels -= 4, x += 4 * x_pixel, dy += 4 * kBlock) {
    for (int i = 0; i < 4; ++i) {
      sums[i] = multiply_add(load(x + i * x_pixel), load(dy + i * kBlock), sums[i]);
    }
  }
  for (; pixels > 0; --pixels, x += x_pixel, dy += kBlock) {
    sums[0] = multiply_add(load(x), load(dy), sums[0]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// One image and channel block; `dw` is [kh][kw][8].
void add_plane(const ConvShape& s, const float* x, const float* dy, float* dw) {
  for (int64_t oh = 0; oh < s.oh; ++oh) {
    for (int64_t kh = 0; kh < s.kh; ++kh) {
      const int64_t ih = oh * s.stride_h + kh * s.dilation_h - s.pad_h;
      if (ih < 0 || ih >= s.ih) continue;
      for (int64_t kw = 0; kw < s.kw; ++kw) {
        const int64_t offset = kw * s.dilation_w - s.pad_w;
        const Range columns = valid_outputs(s.ow, s.iw, s.stride_w, offset);
        if (columns.size() == 0) continue;
        const int64_t iw = columns.begin * s.stride_w + offset;
        float* to = dw + (kh * s.kw + kw) * kBlock;
        store(to, load(to) + row_product(columns.size(), x + (ih * s.iw + iw) * kBlock,
                                         s.stride_w * kBlock,
                                         dy + (oh * s.ow + columns.begin) * kBlock));
      }
    }
  }
}

}  // namespace

void conv_weights_depthwise(const ConvShape& s, int64_t b0, int64_t b1, const float* x,
                            const float* dy, float* dw) {
  const int64_t taps = s.kh * s.kw * kBlock;
  const int64_t x_plane = s.ih * s.iw * kBlock;
  const int64_t dy_plane = s.oh * s.ow * kBlock;
  const int64_t blocks = ceil_div(s.oc, kBlock);
  for (int64_t b = b0; b < b1; ++b) {
    std::fill_n(dw + b * taps, taps, 0.0F);
    for (int64_t n = 0; n < s.n; ++n) {
      const int64_t plane = n * blocks + b;
      add_plane(s, x + plane * x_plane, dy + plane * dy_plane, dw + b * taps);
    }
  }
}

}  // namespace convoy::engine::CONVOY_ISA
