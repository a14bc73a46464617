#include "convoy/engine/kernels/isa/conv_weights.hpp"

#include "convoy/engine/kernels/isa/parts.hpp"
#include "convoy/engine/kernels/isa/transpose.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

bool supported(const ConvShape& s) {
  if (s.kh > kMaxKernel || s.kw > kMaxKernel) return false;
  if (s.plain_input) return s.groups == 1;
  if (s.groups == 1 || is_depthwise(s)) return true;
  return s.ic % (s.groups * kBlock) == 0 && s.oc % (s.groups * kBlock) == 0;
}

int64_t scratch_floats(const ConvShape& s) {
  return s.plain_input ? conv_weights_plain_scratch(s) : 0;
}

void backward_weights(const ConvShape& s, int64_t b0, int64_t b1, const float* x, const float* dy,
                      float* dw, float* scratch) {
  if (s.plain_input) {
    conv_weights_plain(s, b0, b1, x, dy, dw, scratch);
  } else if (is_depthwise(s)) {
    conv_weights_depthwise(s, b0, b1, x, dy, dw);
  } else {
    conv_weights_blocked(s, b0, b1, x, dy, dw);
  }
}

void transpose_blocks(int64_t blocks, const float* from, float* to) {
  for (int64_t b = 0; b < blocks; ++b, from += kBlock * kBlock, to += kBlock * kBlock) {
    Vec rows[8];
    for (int i = 0; i < 8; ++i) rows[i] = load(from + i * kBlock);
    transpose8(rows);
    for (int i = 0; i < 8; ++i) store(to + i * kBlock, rows[i]);
  }
}

}  // namespace

void fill_conv_weights(Kernels& kernels) {
  kernels.conv_backward_weights_supported = supported;
  kernels.conv_backward_weights_scratch = scratch_floats;
  kernels.conv_backward_weights = backward_weights;
  kernels.transpose_blocks = transpose_blocks;
}

}  // namespace convoy::engine::CONVOY_ISA
