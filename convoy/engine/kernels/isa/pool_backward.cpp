// Gradients of poolings. Each input value is written once, or summed in a row that stays in the
// first-level cache; nothing is cleared first and scattered into later.

#include "convoy/engine/kernels/isa/parts.hpp"
#include "convoy/engine/kernels/isa/pooling.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

// GCC converts a vector of bytes to integers one by one, so we say how.
IVec load_bytes(const uint8_t* from) {
#if defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return reinterpret_cast<IVec>(_mm256_cvtepu8_epi32(bytes));
#elif defined(__SSE2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  const __m128i words = _mm_unpacklo_epi8(bytes, _mm_setzero_si128());
  const __m128i halves[2] = {_mm_unpacklo_epi16(words, _mm_setzero_si128()),
                             _mm_unpackhi_epi16(words, _mm_setzero_si128())};
  IVec positions;
  std::memcpy(&positions, halves, sizeof positions);
  return positions;
#else
  IVec positions{};
  for (int i = 0; i < kBlock; ++i) positions[i] = from[i];
  return positions;
#endif
}

/// What the window of an output passes on to the input value at one of its positions. The walks
/// below take either of these.
struct MaxGradient {
  const PoolShape& s;
  const float* dy;
  const uint8_t* argmax;
  const float* relu_y;

  struct Window {
    Vec d;
    IVec chosen;
    Vec at(int64_t position) const { return keep(chosen == splat_int(position), d); }
  };
  Window window(int64_t oh, int64_t ow) const {
    const int64_t o = (oh * s.out_width + ow) * kBlock;
    const Vec d = load(dy + o);
    return {relu_y == nullptr ? d : keep(load(relu_y + o) > zero(), d), load_bytes(argmax + o)};
  }
};

struct AverageGradient {
  const PoolShape& s;
  const Shares& shares;
  const float* dy;

  struct Window {
    Vec d;
    Vec at(int64_t /*position*/) const { return d; }
  };
  Window window(int64_t oh, int64_t ow) const {
    return {load(dy + (oh * s.out_width + ow) * kBlock) * shares(oh, ow)};
  }
};

template <To kTo>
void put_zeros(float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += kBlock) put<kTo>(to + i, zero());
}

/// Windows that tile the input from its corner: an input value has at most one.
template <int K, To kTo, class Gradient>
void tiles(const PoolShape& s, const Gradient& g, float* dx) {
  const int64_t kernel_h = K > 0 ? K : s.kernel_h;
  const int64_t kernel_w = K > 0 ? K : s.kernel_w;
  const int64_t row = s.in.width * kBlock;
  const int64_t whole = smaller(s.out_width, s.in.width / kernel_w);
  const int64_t covered = smaller(s.in.width, s.out_width * kernel_w) * kBlock;
  for (int64_t oh = 0; oh < s.out_height; ++oh) {
    float* top = dx + oh * kernel_h * row;
    const int64_t height = smaller(kernel_h, s.in.height - oh * kernel_h);
    const auto spread = [&](int64_t ow, int64_t rows, int64_t columns) {
      const auto window = g.window(oh, ow);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          put<kTo>(top + i * row + (ow * kernel_w + j) * kBlock, window.at(i * kernel_w + j));
        }
      }
    };
    if (height == kernel_h) {
      for (int64_t ow = 0; ow < whole; ++ow) spread(ow, kernel_h, kernel_w);
    } else {
      for (int64_t ow = 0; ow < whole; ++ow) spread(ow, height, kernel_w);
    }
    if (whole < s.out_width) spread(whole, height, s.in.width - whole * kernel_w);
    for (int64_t i = 0; i < height; ++i) put_zeros<kTo>(top + i * row + covered, row - covered);
  }
  const int64_t rest = s.in.height - s.out_height * kernel_h;
  put_zeros<kTo>(dx + s.out_height * kernel_h * row, rest * row);
}

/// One input row under 3×3 windows two apart, kRows of which rows cover it: every other column has
/// two windows, and the left one's part is carried along.
template <int kRows, To kTo, class Gradient>
void row_of_pairs(const PoolShape& s, const Gradient& g, int64_t ih, int64_t first, float* line) {
  const auto write = [&](int64_t iw, Vec v) {
    if (iw >= 0 && iw < s.in.width) put<kTo>(line + iw * kBlock, v);
  };
  int64_t base[2];
  for (int r = 0; r < kRows; ++r) base[r] = (ih + s.pad_h - (first + r) * 2) * 3;
  Vec carry{};
  for (int64_t ow = 0; ow < s.out_width; ++ow) {
    Vec left = carry;
    Vec middle{};
    carry = zero();
    for (int r = 0; r < kRows; ++r) {
      const auto window = g.window(first + r, ow);
      left += window.at(base[r]);
      middle += window.at(base[r] + 1);
      carry += window.at(base[r] + 2);
    }
    write(2 * ow - s.pad_w, left);
    write(2 * ow - s.pad_w + 1, middle);
  }
  const int64_t end = 2 * s.out_width - s.pad_w;
  write(end, carry);
  for (int64_t iw = larger(0, end + 1); iw < s.in.width; ++iw) write(iw, zero());
}

template <To kTo, class Gradient>
void pairs(const PoolShape& s, const Gradient& g, float* dx) {
  for (int64_t ih = 0; ih < s.in.height; ++ih) {
    float* line = dx + ih * s.in.width * kBlock;
    const Span rows = rows_covering(s, ih);
    if (rows.end - rows.begin == 2) {
      row_of_pairs<2, kTo>(s, g, ih, rows.begin, line);
    } else if (rows.end - rows.begin == 1) {
      row_of_pairs<1, kTo>(s, g, ih, rows.begin, line);
    } else {
      put_zeros<kTo>(line, s.in.width * kBlock);
    }
  }
}

/// Any windows: each input value gathers from those that cover it. Away from the edges of windows
/// one apart these are K×K.
template <int K, class Gradient>
void gather(const PoolShape& s, const Gradient& g, float* dx) {
  const int64_t kernel_w = K > 0 ? K : s.kernel_w;
  const bool dense = K > 0 && s.stride_h == 1 && s.stride_w == 1;
  const Span full{kernel_w - 1 - s.pad_w, s.out_width - s.pad_w};
  for (int64_t ih = 0; ih < s.in.height; ++ih) {
    const Span rows = rows_covering(s, ih);
    const bool all_rows = dense && rows.end - rows.begin == K;
    for (int64_t iw = 0; iw < s.in.width; ++iw) {
      Vec sum{};
      if (all_rows && full.holds(iw)) {
        for (int64_t i = 0; i < K; ++i) {
          for (int64_t j = 0; j < K; ++j) {
            sum += g.window(ih + s.pad_h - i, iw + s.pad_w - j).at(i * K + j);
          }
        }
      } else {
        const Span columns = covering(iw, s.out_width, kernel_w, s.stride_w, s.pad_w);
        for (int64_t oh = rows.begin; oh < rows.end; ++oh) {
          const int64_t base = (ih + s.pad_h - oh * s.stride_h) * kernel_w;
          for (int64_t ow = columns.begin; ow < columns.end; ++ow) {
            sum += g.window(oh, ow).at(base + iw + s.pad_w - ow * s.stride_w);
          }
        }
      }
      store(dx + (ih * s.in.width + iw) * kBlock, sum);
    }
  }
}

template <To kTo, class Gradient>
auto choose(const PoolShape& s) {
  const int64_t k = square(s);
  if (s.stride_h == s.kernel_h && s.stride_w == s.kernel_w && s.pad_h == 0 && s.pad_w == 0) {
    if (k == 2) return tiles<2, kTo, Gradient>;
    return k == 3 ? tiles<3, kTo, Gradient> : tiles<0, kTo, Gradient>;
  }
  if (k == 3 && s.stride_h == 2 && s.stride_w == 2) return pairs<kTo, Gradient>;
  if (k == 2) return gather<2, Gradient>;
  return k == 3 ? gather<3, Gradient> : gather<0, Gradient>;
}

/// Runs all planes; gradient(o) is that of the plane whose outputs begin at o.
template <class Make>
void backward(const PoolShape& s, int64_t n0, int64_t n1, float* dx, Make gradient) {
  using Gradient = decltype(gradient(0));
  const bool around = destination(s.in.size()) == To::memory;
  const auto kernel = around ? choose<To::memory, Gradient>(s) : choose<To::cache, Gradient>(s);
  for (int64_t p = n0 * s.in.blocks(); p < n1 * s.in.blocks(); ++p) {
    kernel(s, gradient(p * out_plane(s)), dx + p * s.in.plane());
  }
  if (around) finish<To::memory>();
}

void max_pool_backward(const PoolShape& s, int64_t n0, int64_t n1, const float* dy,
                       const uint8_t* argmax, const float* relu_y, float* dx) {
  backward(s, n0, n1, dx, [&](int64_t o) {
    return MaxGradient{s, dy + o, argmax + o, relu_y == nullptr ? nullptr : relu_y + o};
  });
}

void average_pool_backward(const PoolShape& s, int64_t n0, int64_t n1, const float* dy, float* dx) {
  const Shares shares(s);
  backward(s, n0, n1, dx, [&](int64_t o) { return AverageGradient{s, shares, dy + o}; });
}

void global_pool_backward(const Blocked& s, int64_t n0, int64_t n1, const float* dy, float* dx) {
  const Vec count = splat(static_cast<float>(s.height * s.width));
  for (int64_t p = n0 * s.blocks(); p < n1 * s.blocks(); ++p) {
    const Vec d = load(dy + p * kBlock) / count;
    for_vectors(p * s.plane(), (p + 1) * s.plane(), [=](int64_t i) { store(dx + i, d); });
  }
}

}  // namespace

void fill_pool_backward(Kernels& kernels) {
  kernels.max_pool_backward = max_pool_backward;
  kernels.average_pool_backward = average_pool_backward;
  kernels.global_pool_backward = global_pool_backward;
}

}  // namespace convoy::engine::CONVOY_ISA
