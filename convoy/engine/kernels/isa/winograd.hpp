#pragma once
// What Winograd's kernels share: the transforms, and windows of an image.
//
// F(M×M, 3×3) computes M×M outputs from a tile of (M+2)×(M+2) inputs with one multiplication per
// element of the tile, where the definition takes 9 per output: 36 instead of 144 for M = 4, 16
// instead of 36 for M = 2. In one dimension, with kernel g, data d and gradients e,
//
//   outputs          y  = Aᵀ[(G g) ⊙ (Bᵀ d)]
//   kernel gradient  dg = Gᵀ[(A e) ⊙ (Bᵀ d)]
//
// and in two dimensions every matrix is applied to the columns and then to the rows. Summed over
// channels (or tiles), each of the (M+2)² products becomes a matrix product. The interpolation
// points are 0, ±1, ±2 and ∞ for M = 4, and 0, ±1 and ∞ for M = 2.

#include "convoy/engine/kernels/isa/scratch.hpp"
#include "convoy/engine/kernels/isa/tiles.hpp"

namespace convoy::engine::CONVOY_ISA::winograd {

/// Bᵀ, on the data.
template <int M>
struct DataLine;
/// Aᵀ, on the products.
template <int M>
struct OutputLine;
/// A, on the gradients of the outputs.
template <int M>
struct GradientLine;
/// G, on the kernel.
template <int M>
struct KernelLine;
/// Gᵀ, on the products that make the kernel's gradient.
template <int M>
struct KernelGradientLine;

template <>
struct DataLine<4> {
  static constexpr int kIn = 6;
  static constexpr int kOut = 6;
  template <class In, class Out>
  [[gnu::always_inline]] static void apply(In in, Out out) {
    const Vec d0 = in(0), d1 = in(1), d2 = in(2), d3 = in(3), d4 = in(4), d5 = in(5);
    const Vec a = d4 - 4.0F * d2;
    const Vec b = d3 - 4.0F * d1;
    const Vec c = d4 - d2;
    const Vec e = 2.0F * (d3 - d1);
    out(0, 4.0F * (d0 - d2) - d2 + d4);
    out(1, a + b);
    out(2, a - b);
    out(3, c + e);
    out(4, c - e);
    out(5, d5 - d3 - 4.0F * (d3 - d1));
  }
};

template <>
struct DataLine<2> {
  static constexpr int kIn = 4;
  static constexpr int kOut = 4;
  template <class In, class Out>
  [[gnu::always_inline]] static void apply(In in, Out out) {
    const Vec d0 = in(0), d1 = in(1), d2 = in(2), d3 = in(3);
    out(0, d0 - d2);
    out(1, d1 + d2);
    out(2, d2 - d1);
    out(3, d1 - d3);
  }
};

template <>
struct OutputLine<4> {
  static constexpr int kIn = 6;
  static constexpr int kOut = 4;
  template <class In, class Out>
  [[gnu::always_inline]] static void apply(In in, Out out) {
    const Vec m1 = in(1), m2 = in(2), m3 = in(3), m4 = in(4);
    const Vec s1 = m1 + m2;
    const Vec d1 = m1 - m2;
    const Vec s2 = m3 + m4;
    const Vec d2 = m3 - m4;
    out(0, in(0) + s1 + s2);
    out(1, d1 + 2.0F * d2);
    out(2, s1 + 4.0F * s2);
    out(3, d1 + 8.0F * d2 + in(5));
  }
};

template <>
struct OutputLine<2> {
  static constexpr int kIn = 4;
  static constexpr int kOut = 2;
  template <class In, class Out>
  [[gnu::always_inline]] static void apply(In in, Out out) {
    const Vec m1 = in(1), m2 = in(2);
    out(0, in(0) + m1 + m2);
    out(1, m1 - m2 - in(3));
  }
};

template <>
struct GradientLine<4> {
  static constexpr int kIn = 4;
  static constexpr int kOut = 6;
  template <class In, class Out>
  [[gnu::always_inline]] static void apply(In in, Out out) {
    const Vec e0 = in(0), e1 = in(1), e2 = in(2), e3 = in(3);
    const Vec even = e0 + e2;
    const Vec odd = e1 + e3;
    const Vec even2 = e0 + 4.0F * e2;
    const Vec odd2 = 2.0F * e1 + 8.0F * e3;
    out(0, e0);
    out(1, even + odd);
    out(2, even - odd);
    out(3, even2 + odd2);
    out(4, even2 - odd2);
    out(5, e3);
  }
};

template <>
struct GradientLine<2> {
  static constexpr int kIn = 2;
  static constexpr int kOut = 4;
  template <class In, class Out>
  [[gnu::always_inline]] static void apply(In in, Out out) {
    const Vec e0 = in(0), e1 = in(1);
    out(0, e0);
    out(1, e0 + e1);
    out(2, e0 - e1);
    out(3, -e1);
  }
};

template <>
struct KernelLine<4> {
  static constexpr int kIn = 3;
  static constexpr int kOut = 6;
  template <class In, class Out>
  [[gnu::always_inline]] static void apply(In in, Out out) {
    const Vec g0 = in(0), g1 = in(1), g2 = in(2);
    const Vec even = (-1.0F / 6) * (g0 + g2);
    const Vec odd = (1.0F / 6) * g1;
    const Vec even2 = (1.0F / 24) * g0 + (1.0F / 6) * g2;
    const Vec odd2 = (1.0F / 12) * g1;
    out(0, 0.25F * g0);
    out(1, even - odd);
    out(2, even + odd);
    out(3, even2 + odd2);
    out(4, even2 - odd2);
    out(5, g2);
  }
};

template <>
struct KernelLine<2> {
  static constexpr int kIn = 3;
  static constexpr int kOut = 4;
  template <class In, class Out>
  [[gnu::always_inline]] static void apply(In in, Out out) {
    const Vec g0 = in(0), g2 = in(2);
    const Vec even = 0.5F * (g0 + g2);
    const Vec odd = 0.5F * in(1);
    out(0, g0);
    out(1, even + odd);
    out(2, even - odd);
    out(3, g2);
  }
};

template <>
struct KernelGradientLine<4> {
  static constexpr int kIn = 6;
  static constexpr int kOut = 3;
  template <class In, class Out>
  [[gnu::always_inline]] static void apply(In in, Out out) {
    const Vec u1 = in(1), u2 = in(2), u3 = in(3), u4 = in(4);
    const Vec s1 = u1 + u2;
    const Vec s2 = u3 + u4;
    out(0, 0.25F * in(0) - (1.0F / 6) * s1 + (1.0F / 24) * s2);
    out(1, (1.0F / 6) * (u2 - u1) + (1.0F / 12) * (u3 - u4));
    out(2, (1.0F / 6) * (s2 - s1) + in(5));
  }
};

template <>
struct KernelGradientLine<2> {
  static constexpr int kIn = 4;
  static constexpr int kOut = 3;
  template <class In, class Out>
  [[gnu::always_inline]] static void apply(In in, Out out) {
    const Vec u1 = in(1), u2 = in(2);
    const Vec s = 0.5F * (u1 + u2);
    out(0, in(0) + s);
    out(1, 0.5F * (u1 - u2));
    out(2, s + in(3));
  }
};

/// Applies Line to the columns of in(row, column), then to the rows: out(row, column, value).
template <class Line, class In, class Out>
[[gnu::always_inline]] inline void transform(In in, Out out) {
  Vec half[Line::kOut][Line::kIn];
  for (int c = 0; c < Line::kIn; ++c) {
    Line::apply(
        [&](int r) __attribute__((always_inline)) { return in(r, c); },
        [&](int r, Vec v) __attribute__((always_inline)) { half[r][c] = v; });
  }
  for (int r = 0; r < Line::kOut; ++r) {
    Line::apply(
        [&](int c) __attribute__((always_inline)) { return half[r][c]; },
        [&](int c, Vec v) __attribute__((always_inline)) { out(r, c, v); });
  }
}

/// A window of an image's channel block; outside the image it is zero.
struct Plane {
  const float* pixels;
  int64_t height, width;
};

/// Calls use(pointer, floats per row) with the SIZE×SIZE window at (row, column): where it lies if
/// it is inside the image, else copied.
template <int SIZE, class Use>
[[gnu::always_inline]] inline void with_window(const Plane& plane, int64_t row, int64_t column,
                                               Use use) {
  if (row >= 0 && column >= 0 && row + SIZE <= plane.height && column + SIZE <= plane.width) {
    use(plane.pixels + (row * plane.width + column) * kBlock, plane.width * kBlock);
    return;
  }
  alignas(64) float copy[SIZE * SIZE * kBlock];
  for (int r = 0; r < SIZE; ++r) {
    const int64_t y = row + r;
    const bool inside = y >= 0 && y < plane.height;
    for (int c = 0; c < SIZE; ++c) {
      const int64_t x = column + c;
      const bool there = inside && x >= 0 && x < plane.width;
      store(copy + (r * SIZE + c) * kBlock,
            there ? load(plane.pixels + (y * plane.width + x) * kBlock) : zero());
    }
  }
  use(static_cast<const float*>(copy), int64_t{SIZE * kBlock});
}

/// Transforms the windows of `count` tiles from number `first` on by Line, to
/// to[element][block][tile][8]; tiles from `count` up to `padded` become zero. A window starts
/// `pad` pixels before its tile's first output.
template <class Line>
void transform_tiles(const float* from, const Channels& channels, const Extent& image,
                     const Extent& pad, const Tiles& tiles, int64_t first, int64_t count,
                     int64_t padded, float* to, int64_t to_slice) {
  const int64_t plane = image.height * image.width * kBlock;
  for (int64_t b = channels.begin; b < channels.end; ++b) {
    TileWalk at(tiles, first);
    float* block = to + (b - channels.begin) * padded * kBlock;
    for (int64_t t = 0; t < count; ++t, at.next()) {
      const Plane whole{from + (at.image * channels.all + b) * plane, image.height, image.width};
      float* out = block + t * kBlock;
      with_window<Line::kIn>(
          whole, at.row - pad.height,
          at.column - pad.width, [&](const float* p, int64_t row) __attribute__((always_inline)) {
            transform<Line>(
                [&](int r, int c)
                    __attribute__((always_inline)) { return load(p + r * row + c * kBlock); },
                [&](int r, int c, Vec v) __attribute__((always_inline)) {
                  store(out + (r * Line::kOut + c) * to_slice, v);
                });
          });
    }
    for (int64_t t = count; t < padded; ++t) {
      for (int e = 0; e < Line::kOut * Line::kOut; ++e) {
        store(block + e * to_slice + t * kBlock, zero());
      }
    }
  }
}

}  // namespace convoy::engine::CONVOY_ISA::winograd
