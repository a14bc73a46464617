#pragma once
// Fourier transforms of real tiles of 16×16, eight channels at a time, and products of spectra.
//
// With W, D and Y the transforms of a kernel w, a tile of data d and the outputs y, all filled up
// with zeros to 16×16, the correlation y[n] = Σ w[k]·d[n + k] becomes Y = conj(W) ⊙ D. The outputs
// n ≤ 16 − kernel are not touched by the wrap-around, so they are what a tile gives. The kernel's
// gradient is the correlation of the outputs' gradient with the data.
//
// A real tile's spectrum has 16 rows of 9 columns (the rest are conjugates), and in its first and
// last column, which are spectra of real numbers, again only 9 rows are needed: 130 complex
// products, 520 multiplications for the (17 − kernel)² outputs of a tile.

#include "convoy/engine/kernels/isa/scratch.hpp"
#include "convoy/engine/kernels/isa/tile.hpp"
#include "convoy/engine/kernels/isa/tiles.hpp"

namespace convoy::engine::CONVOY_ISA::fft {

inline constexpr int kSize = 16;
inline constexpr int kColumns = kSize / 2 + 1;
/// Complex numbers of a spectrum, and the slices they take: real and imaginary part of each.
inline constexpr int kElements = 2 * kColumns + (kColumns - 2) * kSize;
inline constexpr int kSlices = 2 * kElements;
/// The unscaled inverse of a transform is this much too large.
inline constexpr float kGain = kSize * kSize;

inline Extent tile_of(const ConvShape& s) {
  return {kSize + 1 - s.kh, kSize + 1 - s.kw};
}

struct Complex {
  Vec re, im;
  friend Complex operator+(const Complex& a, const Complex& b) {
    return {a.re + b.re, a.im + b.im};
  }
  friend Complex operator-(const Complex& a, const Complex& b) {
    return {a.re - b.re, a.im - b.im};
  }
};
inline Complex conj(const Complex& z) {
  return {z.re, -z.im};
}
inline Complex real(Vec re) {
  return {re, zero()};
}

/// cos(2π·i/16) for i ≤ 8; the sine is the cosine a quarter turn back.
inline constexpr float kCos[] = {1.0F,          0.923879533F,  0.707106781F,  0.382683432F, 0.0F,
                                 -0.382683432F, -0.707106781F, -0.923879533F, -1.0F};

/// z·exp(∓2πi·K/N), K ≤ N/2; minus sign forward, plus sign for the inverse.
template <int N, int K, bool INVERSE>
[[gnu::always_inline]] inline Complex turn(const Complex& z) {
  constexpr int kAt = K * kSize / N;
  if constexpr (kAt == 0) {
    return z;
  } else if constexpr (kAt == kSize / 4) {
    return INVERSE ? Complex{-z.im, z.re} : Complex{z.im, -z.re};
  } else {
    constexpr float kC = kCos[kAt];
    constexpr float kSine = kCos[kAt < 4 ? 4 - kAt : kAt - 4];
    constexpr float kS = INVERSE ? kSine : -kSine;
    return {z.re * kC - z.im * kS, z.im * kC + z.re * kS};
  }
}

/// The first half of the spectrum of N real numbers in(0), …, in(N − 1).
template <int N, class In>
[[gnu::always_inline]] inline void transform_real(In in, Complex (&out)[N / 2 + 1]) {
  if constexpr (N == 2) {
    out[0] = real(in(0) + in(1));
    out[1] = real(in(0) - in(1));
  } else {
    constexpr int kQuarter = N / 4;
    Complex even[kQuarter + 1];
    Complex odd[kQuarter + 1];
    transform_real<N / 2>(
        [&](int i) __attribute__((always_inline)) { return in(2 * i); }, even);
    transform_real<N / 2>(
        [&](int i) __attribute__((always_inline)) { return in(2 * i + 1); }, odd);
    // Both are real at the ends of their spectra.
    out[0] = real(even[0].re + odd[0].re);
    out[N / 2] = real(even[0].re - odd[0].re);
    out[kQuarter] = {even[kQuarter].re, -odd[kQuarter].re};
    unroll<kQuarter - 1>([&](auto i) __attribute__((always_inline)) {
      constexpr int kK = i + 1;
      const Complex turned = turn<N, kK, false>(odd[kK]);
      out[kK] = even[kK] + turned;
      out[N / 2 - kK] = conj(even[kK] - turned);
    });
  }
}

/// Its inverse, N times too large: out(i, value).
template <int N, class Out>
[[gnu::always_inline]] inline void invert_real(const Complex (&in)[N / 2 + 1], Out out) {
  if constexpr (N == 2) {
    out(0, in[0].re + in[1].re);
    out(1, in[0].re - in[1].re);
  } else {
    constexpr int kQuarter = N / 4;
    Complex even[kQuarter + 1];
    Complex odd[kQuarter + 1];
    even[0] = real(in[0].re + in[N / 2].re);
    odd[0] = real(in[0].re - in[N / 2].re);
    even[kQuarter] = real(2.0F * in[kQuarter].re);
    odd[kQuarter] = real(-2.0F * in[kQuarter].im);
    unroll<kQuarter - 1>([&](auto i) __attribute__((always_inline)) {
      constexpr int kK = i + 1;
      const Complex other = conj(in[N / 2 - kK]);
      even[kK] = in[kK] + other;
      odd[kK] = turn<N, kK, true>(in[kK] - other);
    });
    invert_real<N / 2>(
        even, [&](int i, Vec v) __attribute__((always_inline)) { out(2 * i, v); });
    invert_real<N / 2>(
        odd, [&](int i, Vec v) __attribute__((always_inline)) { out(2 * i + 1, v); });
  }
}

/// The spectrum of N complex numbers, or the unscaled inverse.
template <int N, bool INVERSE, class In>
[[gnu::always_inline]] inline void transform_complex(In in, Complex (&out)[N]) {
  if constexpr (N == 1) {
    out[0] = in(0);
  } else {
    Complex even[N / 2];
    Complex odd[N / 2];
    transform_complex<N / 2, INVERSE>(
        [&](int i) __attribute__((always_inline)) { return in(2 * i); }, even);
    transform_complex<N / 2, INVERSE>(
        [&](int i) __attribute__((always_inline)) { return in(2 * i + 1); }, odd);
    unroll<N / 2>([&](auto k) __attribute__((always_inline)) {
      const Complex turned = turn<N, k, INVERSE>(odd[k]);
      out[k] = even[k] + turned;
      out[N / 2 + k] = even[k] - turned;
    });
  }
}

/// Where an element lies in a spectrum: the first column, the last, then the others.
constexpr int element(int row, int column) {
  if (column == 0) return row;
  if (column == kColumns - 1) return kColumns + row;
  return 2 * kColumns + (column - 1) * kSize + row;
}

/// What of a 16×16 tile is not zero: rows [r0, r1) and columns [c0, c1), from `pixels` on.
struct Patch {
  const float* pixels;
  int64_t row, column;  ///< floats from one to the next
  int64_t r0, r1, c0, c1;
};

/// The part of the 16×16 window at (row, column) of an image that lies inside it; no more than
/// `rows`×`columns` of the window.
inline Patch window(const float* image, const Extent& size, int64_t row, int64_t column,
                    int64_t rows, int64_t columns) {
  const auto clamp = [](int64_t v, int64_t most) { return v < 0 ? 0 : v > most ? most : v; };
  Patch p{};
  p.row = size.width * kBlock;
  p.column = kBlock;
  p.r0 = clamp(-row, rows), p.r1 = clamp(size.height - row, rows);
  p.c0 = clamp(-column, columns), p.c1 = clamp(size.width - column, columns);
  if (p.r0 < p.r1 && p.c0 < p.c1) {
    p.pixels = image + ((row + p.r0) * size.width + column + p.c0) * kBlock;
  } else {
    p.r0 = p.r1 = 0;
  }
  return p;
}

/// The spectrum of a patch, to to[slice·element], real and imaginary parts in turn.
inline void transform(const Patch& patch, float* to, int64_t slice) {
  Complex half[kSize][kColumns];
  for (int r = 0; r < kSize; ++r) {
    if (r < patch.r0 || r >= patch.r1) {
      for (Complex& z : half[r]) z = real(zero());
      continue;
    }
    Vec row[kSize] = {};
    const float* from = patch.pixels + (r - patch.r0) * patch.row;
    for (int64_t c = patch.c0; c < patch.c1; ++c, from += patch.column) row[c] = load(from);
    transform_real<kSize>(
        [&](int c) __attribute__((always_inline)) { return row[c]; }, half[r]);
  }
  const auto put = [&](int e, const Complex& z) __attribute__((always_inline)) {
    store(to + 2 * e * slice, z.re);
    store(to + (2 * e + 1) * slice, z.im);
  };
  for (const int c : {0, kColumns - 1}) {
    Complex column[kColumns];
    transform_real<kSize>(
        [&](int r) __attribute__((always_inline)) { return half[r][c].re; }, column);
    for (int r = 0; r < kColumns; ++r) put(element(r, c), column[r]);
  }
  for (int c = 1; c < kColumns - 1; ++c) {
    Complex column[kSize];
    transform_complex<kSize, false>(
        [&](int r) __attribute__((always_inline)) { return half[r][c]; }, column);
    for (int r = 0; r < kSize; ++r) put(element(r, c), column[r]);
  }
}

/// The first `rows` rows of the tile whose spectrum lies at `from`: out(row, its 16 values), scaled
/// right.
template <class Out>
inline void invert(const float* from, int64_t slice, int64_t rows, Out out) {
  Complex half[kSize][kColumns];
  const auto get = [&](int e) __attribute__((always_inline)) {
    return Complex{load(from + 2 * e * slice), load(from + (2 * e + 1) * slice)};
  };
  for (const int c : {0, kColumns - 1}) {
    Complex column[kColumns];
    for (int r = 0; r < kColumns; ++r) column[r] = get(element(r, c));
    invert_real<kSize>(
        column, [&](int r, Vec v) __attribute__((always_inline)) { half[r][c] = real(v); });
  }
  for (int c = 1; c < kColumns - 1; ++c) {
    Complex column[kSize];
    transform_complex<kSize, true>(
        [&](int r) __attribute__((always_inline)) { return get(element(r, c)); }, column);
    for (int r = 0; r < kSize; ++r) half[r][c] = column[r];
  }
  for (int r = 0; r < rows; ++r) {
    Vec row[kSize];
    invert_real<kSize>(
        half[r], [&](int c, Vec v) __attribute__((always_inline)) { row[c] = v * (1.0F / kGain); });
    out(r, static_cast<const Vec*>(row));
  }
}

/// The spectra of the windows of `count` tiles from number `first` on, to [slice][block][tile][8];
/// tiles from `count` up to `padded` become zero. A window has `extent` pixels of the image and
/// starts `pad` pixels before its tile's first output.
inline void transform_tiles(const float* from, const Channels& channels, const Extent& image,
                            const Extent& pad, const Extent& extent, const Tiles& tiles,
                            int64_t first, int64_t count, int64_t padded, float* to,
                            int64_t slice) {
  const int64_t plane = image.height * image.width * kBlock;
  for (int64_t b = channels.begin; b < channels.end; ++b) {
    TileWalk at(tiles, first);
    float* block = to + (b - channels.begin) * padded * kBlock;
    for (int64_t t = 0; t < count; ++t, at.next()) {
      const float* whole = from + (at.image * channels.all + b) * plane;
      transform(window(whole, image, at.row - pad.height, at.column - pad.width, extent.height,
                       extent.width),
                block + t * kBlock, slice);
    }
    for (int64_t t = count; t < padded; ++t) {
      for (int e = 0; e < kSlices; ++e) store(block + e * slice + t * kBlock, zero());
    }
  }
}

/// Sums of conj(vector)·scalar for M complex scalars, in registers.
template <int M>
class ComplexTile {
 public:
  [[gnu::always_inline]] ComplexTile() {
    unroll<M>([&](auto m) __attribute__((always_inline)) { re_[m] = im_[m] = zero(); });
  }

  /// Takes the scalars' parts by re(m), im(m).
  template <class Re, class Im>
  [[gnu::always_inline]] void add_product(Vec vector_re, Vec vector_im, Re re, Im im) {
    hold(vector_re);
    hold(vector_im);
    unroll<M>([&](auto m) __attribute__((always_inline)) {
      const Vec a = splat(re(m));
      const Vec b = splat(im(m));
      re_[m] = multiply_add(vector_re, a, re_[m]);
      im_[m] = multiply_add(vector_re, b, im_[m]);
      re_[m] = multiply_add(vector_im, b, re_[m]);
      im_[m] = subtract_product(vector_im, a, im_[m]);
    });
  }

  /// f(m, real part, imaginary part)
  template <class F>
  [[gnu::always_inline]] void each(F f) {
    unroll<M>([&](auto m) __attribute__((always_inline)) { f(m, re_[m], im_[m]); });
  }

 private:
  Vec re_[M];
  Vec im_[M];
};

/// Any kernel that leaves some outputs in a tile.
inline bool supported(const ConvShape& s) {
  constexpr int64_t kLargest = 11;
  return s.groups == 1 && !s.plain_input && s.kh <= kLargest && s.kw <= kLargest &&
         s.stride_h == 1 && s.stride_w == 1 && s.dilation_h == 1 && s.dilation_w == 1 &&
         s.pad_h < s.kh && s.pad_w < s.kw;
}

}  // namespace convoy::engine::CONVOY_ISA::fft
