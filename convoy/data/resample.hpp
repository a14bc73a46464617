#pragma once
// From decoded pixels to the floats a network sees: reduced or enlarged to its input size, mirrored
// if need be, normalised, as planes. And colour jitter.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "convoy/data/image.hpp"

namespace convoy::data {

/// value · scale[c] + shift[c], with values from 0 to 255. To normalise by mean and std of pixels
/// in 0 … 1: scale = 1 / (255 std), shift = −mean / std.
struct Affine {
  std::array<float, 3> scale{1, 1, 1};
  std::array<float, 3> shift{};
};

/// Scales images with a triangle filter, as Pillow's BILINEAR does: output pixel i along an axis is
/// the weighted mean of the input pixels k around its centre,
///
///     centre = origin + (i + ½) · s,    s = extent / size,    support = max(1, s)
///     weight(k) = max(0, 1 − |k + ½ − centre| / support), divided by their sum,
///
/// over the pixels that the region touches (never beyond it): linear interpolation when enlarging,
/// an antialiased mean when reducing. Keeps its memory from one image to the next; one per thread.
/// The same bits on every CPU: there are no fused multiply-adds and sums have one order.
class Resampler {
 public:
  /// Without vectors the plain code runs even where AVX2 is at hand (for tests).
  explicit Resampler(bool vectors = true) : vectors_(vectors) {}

  /// Writes channel after channel, `size.height` × `size.width` floats each, with columns in
  /// reverse if `mirror`. The region is that of `decoded`.
  void resample(const Decoded& decoded, Size size, bool mirror, const Affine& affine,
                std::span<float> out);

 private:
  /// The weights along one axis.
  struct Taps {
    int32_t low = 0;  // the input pixels that the region touches: [low, high)
    int32_t high = 0;
    int32_t count = 0;           // of weights for each output pixel; where fewer do, the rest is 0
    std::vector<int32_t> first;  // of each output pixel: its first input pixel, counted from low
    std::vector<float> weights;
  };
  static void compute(double origin, double extent, int32_t input, int32_t output, Taps& taps);
  static void reverse(int32_t output, Taps& taps);

  bool vectors_;
  Taps across_;
  Taps down_;
  std::vector<float> row_;   // one input row as floats
  std::vector<float> ring_;  // rows already scaled across, as many as the filter is high
  std::vector<const float*> rows_;
};

/// How colours are changed, in this order; 1 changes nothing. With grey = 0.299 R + 0.587 G +
/// 0.114 B and every result clamped to 0 … 255 (as torchvision's ColorJitter does):
///
///     brightness:  v ← b · v
///     contrast:    v ← c · v + (1 − c) · (mean grey of the image)
///     saturation:  v ← s · v + (1 − s) · (grey of the pixel)
struct Jitter {
  float brightness = 1;
  float contrast = 1;
  float saturation = 1;
  bool operator==(const Jitter&) const = default;
};

/// Applies the jitter to planes of values from 0 to 255 (one or three of equal size), then the
/// affine map. One channel is its own grey.
void apply(const Jitter& jitter, const Affine& affine, int channels, std::span<float> planes);

}  // namespace convoy::data
