// Forward convolution of the network's plain (NCHW) input, for first layers that oneDNN's blocked
// kernels do not take, such as AlexNet's 11×11 with stride 4.

#include "convoy/engine/kernels/isa/parts.hpp"
#include "convoy/engine/kernels/isa/tile.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

constexpr int kPixels = 6;

/// One row of outputs of V neighbouring blocks of output channels.
struct Row {
  const ConvShape* s;
  const float* x;     // the image
  const float* w;     // the first block's weights
  int64_t w_block;    // floats from one block's weights to the next
  const float* bias;  // of the first block, or null
  bool relu;
  float* y;  // the row in the first block
  int64_t y_block;
  int64_t iy;  // input row of the first tap, may be negative
};

/// Outputs ox … ox+M−1, with the taps [k0, k1) of each row of the kernel, which lie inside the
/// input for all of them.
template <int V, int M>
void tile(const Row& r, int64_t ox, int64_t k0, int64_t k1) {
  const ConvShape& s = *r.s;
  Tile<V, M> sums;
  const int64_t ix = ox * s.stride_w - s.pad_w;
  for (int64_t kh = 0; kh < s.kh; ++kh) {
    const int64_t iy = r.iy + kh * s.dilation_h;
    if (iy < 0 || iy >= s.ih) continue;
    for (int64_t kw = k0; kw < k1; ++kw) {
      const float* x = r.x + iy * s.iw + ix + kw * s.dilation_w;
      const float* w = r.w + (kh * s.kw + kw) * s.ic * kBlock;
      for (int64_t i = 0; i < s.ic; ++i) {
        sums.add_product([&](auto v) { return load(w + v * r.w_block); },
                         [&](auto m) { return x[m * s.stride_w]; });
        x += s.ih * s.iw;
        w += kBlock;
      }
    }
  }
  sums.each([&](auto v, auto m, Vec& sum) {
    Vec value = r.bias == nullptr ? sum : sum + load(r.bias + v * kBlock);
    if (r.relu) value = positive_part(value);
    store(r.y + v * r.y_block + (ox + m) * kBlock, value);
  });
}

/// First tap whose column is inside the input, and one past the last, for output ox.
int64_t first_tap(const ConvShape& s, int64_t ox) {
  const int64_t before = s.pad_w - ox * s.stride_w;
  return before <= 0 ? 0 : (before + s.dilation_w - 1) / s.dilation_w;
}
int64_t end_tap(const ConvShape& s, int64_t ox) {
  const int64_t room = s.iw - 1 + s.pad_w - ox * s.stride_w;
  if (room < 0) return 0;
  const int64_t taps = room / s.dilation_w + 1;
  return taps < s.kw ? taps : s.kw;
}

template <int V>
void row(const Row& r) {
  const ConvShape& s = *r.s;
  int64_t ox = 0;
  while (ox < s.ow) {
    const bool whole =
        first_tap(s, ox) == 0 && ox + kPixels <= s.ow && end_tap(s, ox + kPixels - 1) == s.kw;
    if (whole) {
      tile<V, kPixels>(r, ox, 0, s.kw);
      ox += kPixels;
    } else {
      const int64_t k0 = first_tap(s, ox);
      const int64_t k1 = end_tap(s, ox);
      tile<V, 1>(r, ox, k0 < k1 ? k0 : k1, k1);
      ox += 1;
    }
  }
}

void forward_plain(const ConvShape& s, int64_t n0, int64_t n1, const float* x, const float* w,
                   const float* bias, bool relu, float* y) {
  const int64_t blocks = (s.oc + kBlock - 1) / kBlock;
  const int64_t plane = s.oh * s.ow * kBlock;
  for (int64_t n = n0; n < n1; ++n) {
    // Two blocks' weights stay in the first-level cache while they sweep the image.
    for (int64_t b = 0; b < blocks; b += 2) {
      for (int64_t oy = 0; oy < s.oh; ++oy) {
        Row r{};
        r.s = &s;
        r.x = x + n * s.ic * s.ih * s.iw;
        r.w_block = s.kh * s.kw * s.ic * kBlock;
        r.w = w + b * r.w_block;
        r.bias = bias == nullptr ? nullptr : bias + b * kBlock;
        r.relu = relu;
        r.y_block = plane;
        r.y = y + (n * blocks + b) * plane + oy * s.ow * kBlock;
        r.iy = oy * s.stride_h - s.pad_h;
        if (b + 1 < blocks) {
          row<2>(r);
        } else {
          row<1>(r);
        }
      }
    }
  }
}

}  // namespace

void fill_conv_plain(Kernels& kernels) {
  kernels.conv_forward_plain = forward_plain;
}

}  // namespace convoy::engine::CONVOY_ISA
