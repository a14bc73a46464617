#pragma once
// The three cases of the weights' gradient, and what they share.
//
//   dw[o][i][kh][kw] = Σ over n, oh, ow of dy[n][o][oh][ow] · x[n][i][oh·s − p + kh·d][…]
//
// Every element of dw has one accumulator per strip of output pixels, which takes the pixels in
// row-major order; the strips depend on the shape alone. So the bits depend neither on the range of
// blocks asked for nor on the register tile an element falls into.

#include <algorithm>

#include "convoy/engine/kernels/isa/vec.hpp"
#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::engine::CONVOY_ISA {

/// Largest kernel extent in one direction: bounds the tables on the stack.
inline constexpr int64_t kMaxKernel = 32;

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

inline Range intersect(Range a, Range b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// The outputs o in [0, out) whose input o·stride + offset lies in [0, in).
inline Range valid_outputs(int64_t out, int64_t in, int64_t stride, int64_t offset) {
  const int64_t begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const int64_t end = in > offset ? (in - offset - 1) / stride + 1 : 0;
  return intersect({begin, end}, {0, out});
}

/// Part `index` of [0, total) cut into `parts` nearly equal parts.
inline Range part(int64_t total, int64_t parts, int64_t index) {
  return {total * index / parts, total * (index + 1) / parts};
}

inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

inline bool is_depthwise(const ConvShape& s) {
  return s.groups > 1 && s.groups == s.ic && s.groups == s.oc;
}

/// gOIhw8i8o: x and dy blocked, channels of a group in whole blocks.
void conv_weights_blocked(const ConvShape& s, int64_t b0, int64_t b1, const float* x,
                          const float* dy, float* dw);
/// Ohwi8o: x is NCHW with few channels. `scratch` takes one padded image, channels innermost.
void conv_weights_plain(const ConvShape& s, int64_t b0, int64_t b1, const float* x, const float* dy,
                        float* dw, float* scratch);
int64_t conv_weights_plain_scratch(const ConvShape& s);
/// Goihw8g: one filter per channel.
void conv_weights_depthwise(const ConvShape& s, int64_t b0, int64_t b1, const float* x,
                            const float* dy, float* dw);

}  // namespace convoy::engine::CONVOY_ISA
