#pragma once
// One direction of a depthwise convolution along one axis, cut into stretches of outputs that use
// the same taps: inside such a stretch nothing has to be checked.

#include <vector>

#include "convoy/engine/kernels/isa/conv_weights.hpp"

namespace convoy::engine::CONVOY_ISA {

/// Output j takes input first + j·step + a·tap_step for tap a, and lies at `to` + j·to_step.
struct Axis {
  int64_t outputs = 0, to = 0, to_step = 1;
  int64_t inputs = 0, first = 0, step = 1;
  int64_t taps = 0, tap_step = 1;
  int64_t weight = 0, weight_step = 1;  ///< tap a is weight + a·weight_step of the kernel

  int64_t input(int64_t j, int64_t a) const { return first + j * step + a * tap_step; }
};

/// Outputs of an axis whose taps are the same.
struct Stretch {
  Range outputs, taps;
};

inline std::vector<Stretch> stretches(const Axis& axis) {
  std::vector<Stretch> all;
  for (int64_t j = 0; j < axis.outputs; ++j) {
    const auto inside = [&](int64_t a) {
      return axis.input(j, a) >= 0 && axis.input(j, a) < axis.inputs;
    };
    Range taps;
    while (taps.begin < axis.taps && !inside(taps.begin)) ++taps.begin;
    taps.end = taps.begin;
    while (taps.end < axis.taps && inside(taps.end)) ++taps.end;
    if (all.empty() || all.back().taps.begin != taps.begin || all.back().taps.end != taps.end) {
      all.push_back({{j, j}, taps});
    }
    all.back().outputs.end = j + 1;
  }
  return all;
}

/// A convolution along one axis.
struct AxisShape {
  int64_t in, out, taps, stride, pad, dilation;
};

inline AxisShape rows_of(const ConvShape& s) {
  return {s.ih, s.oh, s.kh, s.stride_h, s.pad_h, s.dilation_h};
}
inline AxisShape columns_of(const ConvShape& s) {
  return {s.iw, s.ow, s.kw, s.stride_w, s.pad_w, s.dilation_w};
}

/// From inputs to outputs, as the forward pass goes.
inline Axis forward_axis(const AxisShape& s) {
  return {.outputs = s.out,
          .inputs = s.in,
          .first = -s.pad,
          .step = s.stride,
          .taps = s.taps,
          .tap_step = s.dilation};
}

/// Whether depthwise_data can compute the shape, and faster than oneDNN.
bool depthwise_data_supported(const ConvShape& s);
/// dx of images [n0, n1); weights as Goihw8g.
void depthwise_data(const ConvShape& s, int64_t n0, int64_t n1, const float* dy, const float* w,
                    float* dx);

}  // namespace convoy::engine::CONVOY_ISA
