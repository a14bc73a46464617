// Gradient of a convolution's input where oneDNN is slow: depthwise (depthwise_data.cpp) and
// kernels that are large beside an unpadded image (LeNet's 5×5 on 12×12): gather formulations spend
// half their multiplications on the zero border. Here each output pixel's gradient is multiplied
// once with each tap and the products are added where they belong, so no multiplication is wasted.

#include "convoy/engine/kernels/isa/depthwise.hpp"
#include "convoy/engine/kernels/isa/parts.hpp"
#include "convoy/engine/kernels/isa/tile.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

constexpr int kPixels = 4;
constexpr int kTaps = 3;

struct Row {
  const float* dy;   // first pixel of the row in block 0
  int64_t dy_block;  // floats from one block of output channels to the next
  const float* w;    // first tap of the group in block 0
  int64_t w_block;   // floats from one block of output channels to the next
  float* dx;         // where the first pixel's first tap is added
  int64_t stride;    // floats between the targets of neighbouring pixels
  int64_t oc;
};

/// Sums over output channels for `P` pixels and `T` neighbouring taps in registers, then adds.
template <int P, int T>
void tile(const Row& r) {
  Tile<T, P> sums;
  for (int64_t block = 0; block * kBlock < r.oc; ++block) {
    const float* dy = r.dy + block * r.dy_block;
    const float* w = r.w + block * r.w_block;
    const int64_t channels = r.oc - block * kBlock < kBlock ? r.oc - block * kBlock : kBlock;
    for (int64_t o = 0; o < channels; ++o) {
      sums.add_product([&](auto t) { return load(w + (t * kBlock + o) * kBlock); },
                       [&](auto p) { return dy[p * kBlock + o]; });
    }
  }
  sums.each([&](auto t, auto p, Vec& sum) {
    float* to = r.dx + p * r.stride + t * kBlock;
    store(to, load(to) + sum);
  });
}

template <int T>
void pixels(Row r, int64_t count) {
  for (; count >= kPixels; count -= kPixels) {
    tile<kPixels, T>(r);
    r.dy += kPixels * kBlock;
    r.dx += kPixels * r.stride;
  }
  if (count == 3) tile<3, T>(r);
  if (count == 2) tile<2, T>(r);
  if (count == 1) tile<1, T>(r);
}

bool supported(const ConvShape& s) {
  if (depthwise_data_supported(s)) return true;
  const bool simple = s.groups == 1 && !s.plain_input && s.pad_h == 0 && s.pad_w == 0 &&
                      s.dilation_h == 1 && s.dilation_w == 1;
  // Worth it where the border that others multiply with is as large as half the image.
  return simple && s.stride_h == 1 && s.stride_w == 1 && s.kw > 1 && 2 * s.oh * s.ow <= s.ih * s.iw;
}

void backward_data(const ConvShape& s, int64_t n0, int64_t n1, const float* dy, const float* w,
                   float* dx) {
  if (is_depthwise(s)) {
    depthwise_data(s, n0, n1, dy, w, dx);
    return;
  }
  const int64_t in_blocks = (s.ic + kBlock - 1) / kBlock;
  const int64_t out_blocks = (s.oc + kBlock - 1) / kBlock;
  const int64_t in_plane = s.ih * s.iw * kBlock;
  const int64_t out_plane = s.oh * s.ow * kBlock;
  constexpr int64_t kTap = kBlock * kBlock;
  for (int64_t n = n0; n < n1; ++n) {
    float* image = dx + n * in_blocks * in_plane;
    std::memset(image, 0, static_cast<size_t>(in_blocks * in_plane) * sizeof(float));
    for (int64_t ib = 0; ib < in_blocks; ++ib) {
      for (int64_t kh = 0; kh < s.kh; ++kh) {
        for (int64_t oy = 0; oy < s.oh; ++oy) {
          Row r{};
          r.dy = dy + n * out_blocks * out_plane + oy * s.ow * kBlock;
          r.dy_block = out_plane;
          r.w_block = in_blocks * s.kh * s.kw * kTap;
          r.stride = s.stride_w * kBlock;
          r.oc = s.oc;
          for (int64_t kw = 0; kw < s.kw; kw += kTaps) {
            r.w = w + ((ib * s.kh + kh) * s.kw + kw) * kTap;
            r.dx = image + ib * in_plane + ((oy * s.stride_h + kh) * s.iw + kw) * kBlock;
            const int64_t taps = s.kw - kw;
            if (taps >= 3) {
              pixels<3>(r, s.ow);
            } else if (taps == 2) {
              pixels<2>(r, s.ow);
            } else {
              pixels<1>(r, s.ow);
            }
          }
        }
      }
    }
  }
}

}  // namespace

void fill_conv_data(Kernels& kernels) {
  kernels.conv_backward_data_supported = supported;
  kernels.conv_backward_data = backward_data;
}

}  // namespace convoy::engine::CONVOY_ISA
