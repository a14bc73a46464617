#pragma once
// The geometry that pooling forward and backward share. Every window touches the input, and has at
// most 256 positions if its largest value is asked for. Included only by the files in this folder.

#include "convoy/engine/kernels/isa/loops.hpp"
#include "convoy/engine/kernels/isa/vec.hpp"
#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::engine::CONVOY_ISA {

struct Span {
  int64_t begin;
  int64_t end;
  bool holds(int64_t i) const { return begin <= i && i < end; }
};

/// The positions of a window starting at `origin` that fall into [0, extent).
inline Span clip(int64_t origin, int64_t kernel, int64_t extent) {
  return {larger(0, -origin), smaller(kernel, extent - origin)};
}

/// The outputs whose whole window lies inside the input.
inline Span inside(int64_t outputs, int64_t kernel, int64_t stride, int64_t pad, int64_t extent) {
  const int64_t begin = smaller(outputs, (pad + stride - 1) / stride);
  const int64_t room = extent + pad - kernel;
  const int64_t end = room < 0 ? 0 : smaller(outputs, room / stride + 1);
  return {begin, larger(begin, end)};
}
inline Span rows_inside(const PoolShape& s) {
  return inside(s.out_height, s.kernel_h, s.stride_h, s.pad_h, s.in.height);
}
inline Span columns_inside(const PoolShape& s) {
  return inside(s.out_width, s.kernel_w, s.stride_w, s.pad_w, s.in.width);
}

/// The outputs whose window covers input position i.
inline Span covering(int64_t i, int64_t outputs, int64_t kernel, int64_t stride, int64_t pad) {
  const int64_t first = i + pad - kernel + 1;
  return {first <= 0 ? 0 : (first + stride - 1) / stride, smaller(outputs, (i + pad) / stride + 1)};
}
inline Span rows_covering(const PoolShape& s, int64_t ih) {
  return covering(ih, s.out_height, s.kernel_h, s.stride_h, s.pad_h);
}

inline int64_t out_plane(const PoolShape& s) {
  return s.out_height * s.out_width * kBlock;
}
inline IVec splat_int(int64_t x) {
  return IVec{} + static_cast<int32_t>(x);
}

/// The kernel's extent if it is one of the usual squares, for which loops are compiled; else 0.
inline int64_t square(const PoolShape& s) {
  return s.kernel_h == s.kernel_w && (s.kernel_h == 2 || s.kernel_h == 3) ? s.kernel_h : 0;
}

/// One over the number of values each window of an average counts. Padding counts if asked for, but
/// what hangs over beyond the padding (when the output size was rounded up) never does.
class Shares {
 public:
  explicit Shares(const PoolShape& s)
      : s_(s),
        rows_(rows_inside(s)),
        columns_(columns_inside(s)),
        uniform_(s.count_padding && padded_holds(s)),
        whole_(splat(1.0F / static_cast<float>(s.kernel_h * s.kernel_w))) {}

  Vec operator()(int64_t oh, int64_t ow) const {
    return uniform_ || (rows_.holds(oh) && columns_.holds(ow)) ? whole_ : at_edge(oh, ow);
  }

 private:
  static bool padded_holds(const PoolShape& s) {
    return (s.out_height - 1) * s.stride_h + s.kernel_h <= s.in.height + 2 * s.pad_h &&
           (s.out_width - 1) * s.stride_w + s.kernel_w <= s.in.width + 2 * s.pad_w;
  }

  [[gnu::noinline]] Vec at_edge(int64_t oh, int64_t ow) const {
    const int64_t top = oh * s_.stride_h - s_.pad_h;
    const int64_t left = ow * s_.stride_w - s_.pad_w;
    int64_t height = smaller(s_.kernel_h, s_.in.height + s_.pad_h - top);
    int64_t width = smaller(s_.kernel_w, s_.in.width + s_.pad_w - left);
    if (!s_.count_padding) {
      const Span kh = clip(top, s_.kernel_h, s_.in.height);
      const Span kw = clip(left, s_.kernel_w, s_.in.width);
      height = kh.end - kh.begin;
      width = kw.end - kw.begin;
    }
    return splat(1.0F / static_cast<float>(height * width));
  }

  const PoolShape& s_;
  Span rows_;
  Span columns_;
  bool uniform_;  ///< no window hangs over the padding, and padding counts
  Vec whole_;
};

}  // namespace convoy::engine::CONVOY_ISA
