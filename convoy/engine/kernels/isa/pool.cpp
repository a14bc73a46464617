// Pooling over planes of eight channels. Windows that lie inside the input run through loops of
// fixed length; only those that hang over an edge look at their bounds. Every window touches the
// input, and has at most 256 positions.

#include "convoy/engine/kernels/isa/loops.hpp"
#include "convoy/engine/kernels/isa/parts.hpp"

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace convoy::engine::CONVOY_ISA {
namespace {

struct Span {
  int64_t begin;
  int64_t end;
};

/// The positions of a window starting at `origin` that fall into [0, extent).
Span clip(int64_t origin, int64_t kernel, int64_t extent) {
  return {larger(0, -origin), smaller(kernel, extent - origin)};
}

/// The outputs whose whole window lies inside the input.
Span inside(int64_t outputs, int64_t kernel, int64_t stride, int64_t pad, int64_t extent) {
  const int64_t begin = smaller(outputs, (pad + stride - 1) / stride);
  const int64_t room = extent + pad - kernel;
  const int64_t end = room < 0 ? 0 : smaller(outputs, room / stride + 1);
  return {begin, larger(begin, end)};
}

/// The outputs whose window covers input position i.
Span covering(int64_t i, int64_t outputs, int64_t kernel, int64_t stride, int64_t pad) {
  const int64_t first = i + pad - kernel + 1;
  return {first <= 0 ? 0 : (first + stride - 1) / stride, smaller(outputs, (i + pad) / stride + 1)};
}

int64_t out_plane(const PoolShape& s) {
  return s.out_height * s.out_width * kBlock;
}
int64_t planes(const PoolShape& s) {
  return s.in.blocks();
}
IVec splat_int(int64_t x) {
  return IVec{} + static_cast<int32_t>(x);
}

// GCC converts between vectors of bytes and of integers one by one, so we say how.

void store_bytes(uint8_t* to, IVec positions) {
#ifdef __SSE2__
  __m128i halves[2];
  std::memcpy(halves, &positions, sizeof halves);
  const __m128i words = _mm_packs_epi32(halves[0], halves[1]);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
#else
  for (int i = 0; i < kBlock; ++i) to[i] = static_cast<uint8_t>(positions[i]);
#endif
}

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

// ---- maximum ----------------------------------------------------------------------------------

struct Best {
  Vec value;
  IVec position;
};

/// The first largest value of a window; NaN if there is one. `x` points at the window's origin,
/// `row` is the distance of its rows.
[[gnu::always_inline]] inline Best largest(const float* x, int64_t row, Span kh, Span kw,
                                           int64_t kernel_w) {
  Best best{load(x + kh.begin * row + kw.begin * kBlock),
            splat_int(kh.begin * kernel_w + kw.begin)};
  for (int64_t i = kh.begin; i < kh.end; ++i) {
    for (int64_t j = kw.begin; j < kw.end; ++j) {
      const Vec v = load(x + i * row + j * kBlock);
      const IVec better = (v > best.value) | (v != v);
      best.value = better ? v : best.value;
      best.position = better ? splat_int(i * kernel_w + j) : best.position;
    }
  }
  return best;
}

/// K is the width of a square kernel, or 0 if it is known at run time only.
template <int K, bool kPositions>
void max_pool_plane(const PoolShape& s, const float* x, float* y, uint8_t* argmax) {
  const int64_t row = s.in.width * kBlock;
  const int64_t kernel_h = K > 0 ? K : s.kernel_h;
  const int64_t kernel_w = K > 0 ? K : s.kernel_w;
  const Span rows = inside(s.out_height, kernel_h, s.stride_h, s.pad_h, s.in.height);
  const Span columns = inside(s.out_width, kernel_w, s.stride_w, s.pad_w, s.in.width);
  for (int64_t oh = 0; oh < s.out_height; ++oh) {
    const int64_t top = oh * s.stride_h - s.pad_h;
    const float* origin = x + top * row - s.pad_w * kBlock;
    const Span kh = clip(top, kernel_h, s.in.height);
    const auto put = [&](int64_t ow, const Best& best) {
      const int64_t o = (oh * s.out_width + ow) * kBlock;
      store(y + o, best.value);
      if constexpr (kPositions) store_bytes(argmax + o, best.position);
    };
    const auto edge = [&](int64_t begin, int64_t end) {
      for (int64_t ow = begin; ow < end; ++ow) {
        const Span kw = clip(ow * s.stride_w - s.pad_w, kernel_w, s.in.width);
        put(ow, largest(origin + ow * s.stride_w * kBlock, row, kh, kw, kernel_w));
      }
    };
    const bool whole = rows.begin <= oh && oh < rows.end;
    edge(0, columns.begin);
    for (int64_t ow = columns.begin; ow < columns.end; ++ow) {
      const float* window = origin + ow * s.stride_w * kBlock;
      put(ow, whole ? largest(window, row, {0, kernel_h}, {0, kernel_w}, kernel_w)
                    : largest(window, row, kh, {0, kernel_w}, kernel_w));
    }
    edge(columns.end, s.out_width);
  }
}

template <int K>
void max_pool_images(const PoolShape& s, int64_t n0, int64_t n1, const float* x, float* y,
                     uint8_t* argmax) {
  for (int64_t p = n0 * planes(s); p < n1 * planes(s); ++p) {
    const float* from = x + p * s.in.plane();
    float* to = y + p * out_plane(s);
    if (argmax == nullptr) {
      max_pool_plane<K, false>(s, from, to, nullptr);
    } else {
      max_pool_plane<K, true>(s, from, to, argmax + p * out_plane(s));
    }
  }
}

void max_pool(const PoolShape& s, int64_t n0, int64_t n1, const float* x, float* y,
              uint8_t* argmax) {
  const bool square = s.kernel_h == s.kernel_w;
  const auto kernel = square && s.kernel_h == 2   ? max_pool_images<2>
                      : square && s.kernel_h == 3 ? max_pool_images<3>
                                                  : max_pool_images<0>;
  kernel(s, n0, n1, x, y, argmax);
}

void fill_zero(float* to, int64_t count) {
  if (count > 0) std::memset(to, 0, static_cast<size_t>(count) * sizeof(float));
}

/// The gradient of one plane of a max pooling: dy, where it counts.
struct MaxGradient {
  const float* dy;
  const uint8_t* argmax;
  const float* relu_y;
  Vec at(int64_t o) const {
    const Vec d = load(dy + o);
    return relu_y == nullptr ? d : keep(load(relu_y + o) > zero(), d);
  }
};

/// Windows that tile the input from its corner: each input value has at most one window, and is
/// written once.
template <int K>
void max_pool_backward_tiles(const PoolShape& s, const MaxGradient& g, float* dx) {
  const int64_t kernel_h = K > 0 ? K : s.kernel_h;
  const int64_t kernel_w = K > 0 ? K : s.kernel_w;
  const int64_t row = s.in.width * kBlock;
  const int64_t whole = smaller(s.out_width, s.in.width / kernel_w);
  const int64_t covered = smaller(s.in.width, s.out_width * kernel_w) * kBlock;
  for (int64_t oh = 0; oh < s.out_height; ++oh) {
    float* top = dx + oh * kernel_h * row;
    const int64_t kh_end = smaller(kernel_h, s.in.height - oh * kernel_h);
    const auto spread = [&](int64_t ow, int64_t kh_stop, int64_t kw_stop) {
      const int64_t o = (oh * s.out_width + ow) * kBlock;
      const Vec d = g.at(o);
      const IVec position = load_bytes(g.argmax + o);
      for (int64_t i = 0; i < kh_stop; ++i) {
        for (int64_t j = 0; j < kw_stop; ++j) {
          store(top + i * row + (ow * kernel_w + j) * kBlock,
                keep(position == splat_int(i * kernel_w + j), d));
        }
      }
    };
    if (kh_end == kernel_h) {
      for (int64_t ow = 0; ow < whole; ++ow) spread(ow, kernel_h, kernel_w);
    } else {
      for (int64_t ow = 0; ow < whole; ++ow) spread(ow, kh_end, kernel_w);
    }
    if (whole < s.out_width) spread(whole, kh_end, s.in.width - whole * kernel_w);
    for (int64_t i = 0; i < kh_end; ++i) fill_zero(top + i * row + covered, row - covered);
  }
  const int64_t rest = s.in.height - s.out_height * kernel_h;
  fill_zero(dx + s.out_height * kernel_h * row, rest * row);
}

/// Any windows: input row by input row, which stays in the first-level cache.
template <int K>
void max_pool_backward_rows(const PoolShape& s, const MaxGradient& g, float* dx) {
  const int64_t kernel_h = K > 0 ? K : s.kernel_h;
  const int64_t kernel_w = K > 0 ? K : s.kernel_w;
  const int64_t row = s.in.width * kBlock;
  const Span columns = inside(s.out_width, kernel_w, s.stride_w, s.pad_w, s.in.width);
  for (int64_t ih = 0; ih < s.in.height; ++ih) {
    float* line = dx + ih * row;
    fill_zero(line, row);
    const Span outputs = covering(ih, s.out_height, kernel_h, s.stride_h, s.pad_h);
    for (int64_t oh = outputs.begin; oh < outputs.end; ++oh) {
      const int64_t first = (ih + s.pad_h - oh * s.stride_h) * kernel_w;
      const auto spread = [&](int64_t ow, Span kw) {
        const int64_t o = (oh * s.out_width + ow) * kBlock;
        const Vec d = g.at(o);
        const IVec position = load_bytes(g.argmax + o) - splat_int(first);
        float* to = line + (ow * s.stride_w - s.pad_w) * kBlock;
        for (int64_t j = kw.begin; j < kw.end; ++j) {
          store(to + j * kBlock, load(to + j * kBlock) + keep(position == splat_int(j), d));
        }
      };
      const auto edge = [&](int64_t begin, int64_t end) {
        for (int64_t ow = begin; ow < end; ++ow) {
          spread(ow, clip(ow * s.stride_w - s.pad_w, kernel_w, s.in.width));
        }
      };
      edge(0, columns.begin);
      for (int64_t ow = columns.begin; ow < columns.end; ++ow) spread(ow, {0, kernel_w});
      edge(columns.end, s.out_width);
    }
  }
}

void max_pool_backward(const PoolShape& s, int64_t n0, int64_t n1, const float* dy,
                       const uint8_t* argmax, const float* relu_y, float* dx) {
  const bool tiles =
      s.stride_h == s.kernel_h && s.stride_w == s.kernel_w && s.pad_h == 0 && s.pad_w == 0;
  const bool square = s.kernel_h == s.kernel_w;
  const auto by_rows = square && s.kernel_h == 2   ? max_pool_backward_rows<2>
                       : square && s.kernel_h == 3 ? max_pool_backward_rows<3>
                                                   : max_pool_backward_rows<0>;
  const auto by_tiles = square && s.kernel_h == 2   ? max_pool_backward_tiles<2>
                        : square && s.kernel_h == 3 ? max_pool_backward_tiles<3>
                                                    : max_pool_backward_tiles<0>;
  for (int64_t p = n0 * planes(s); p < n1 * planes(s); ++p) {
    const int64_t o = p * out_plane(s);
    const MaxGradient g{dy + o, argmax + o, relu_y == nullptr ? nullptr : relu_y + o};
    (tiles ? by_tiles : by_rows)(s, g, dx + p * s.in.plane());
  }
}

// ---- average ----------------------------------------------------------------------------------

/// One over the number of values a window counts. Padding counts if asked for, but what hangs over
/// beyond the padding (when the output size was rounded up) never does.
float share(const PoolShape& s, int64_t oh, int64_t ow) {
  const int64_t top = oh * s.stride_h - s.pad_h;
  const int64_t left = ow * s.stride_w - s.pad_w;
  int64_t height = smaller(top + s.kernel_h, s.in.height + s.pad_h) - top;
  int64_t width = smaller(left + s.kernel_w, s.in.width + s.pad_w) - left;
  if (!s.count_padding) {
    const Span kh = clip(top, s.kernel_h, s.in.height);
    const Span kw = clip(left, s.kernel_w, s.in.width);
    height = kh.end - kh.begin;
    width = kw.end - kw.begin;
  }
  return 1.0F / static_cast<float>(height * width);
}

void average_pool(const PoolShape& s, int64_t n0, int64_t n1, const float* x, float* y) {
  const int64_t row = s.in.width * kBlock;
  for (int64_t p = n0 * planes(s); p < n1 * planes(s); ++p) {
    const float* from = x + p * s.in.plane();
    float* to = y + p * out_plane(s);
    for (int64_t oh = 0; oh < s.out_height; ++oh) {
      const int64_t top = oh * s.stride_h - s.pad_h;
      const Span kh = clip(top, s.kernel_h, s.in.height);
      for (int64_t ow = 0; ow < s.out_width; ++ow) {
        const int64_t left = ow * s.stride_w - s.pad_w;
        const Span kw = clip(left, s.kernel_w, s.in.width);
        Vec sum{};
        for (int64_t i = kh.begin; i < kh.end; ++i) {
          for (int64_t j = kw.begin; j < kw.end; ++j) {
            sum += load(from + (top + i) * row + (left + j) * kBlock);
          }
        }
        store(to + (oh * s.out_width + ow) * kBlock, sum * splat(share(s, oh, ow)));
      }
    }
  }
}

void average_pool_backward(const PoolShape& s, int64_t n0, int64_t n1, const float* dy, float* dx) {
  const int64_t row = s.in.width * kBlock;
  for (int64_t p = n0 * planes(s); p < n1 * planes(s); ++p) {
    const float* from = dy + p * out_plane(s);
    float* to = dx + p * s.in.plane();
    for (int64_t ih = 0; ih < s.in.height; ++ih) {
      float* line = to + ih * row;
      fill_zero(line, row);
      const Span outputs = covering(ih, s.out_height, s.kernel_h, s.stride_h, s.pad_h);
      for (int64_t oh = outputs.begin; oh < outputs.end; ++oh) {
        for (int64_t ow = 0; ow < s.out_width; ++ow) {
          const int64_t left = ow * s.stride_w - s.pad_w;
          const Span kw = clip(left, s.kernel_w, s.in.width);
          const Vec d = load(from + (oh * s.out_width + ow) * kBlock) * splat(share(s, oh, ow));
          for (int64_t j = kw.begin; j < kw.end; ++j) {
            float* pixel = line + (left + j) * kBlock;
            store(pixel, load(pixel) + d);
          }
        }
      }
    }
  }
}

void global_pool(const Blocked& s, int64_t n0, int64_t n1, const float* x, float* y) {
  const DVec count = splat_double(static_cast<double>(s.height * s.width));
  for (int64_t n = n0; n < n1; ++n) {
    for (int64_t b = 0; b < s.blocks(); ++b) {
      const Totals sums = sum_block(
          s, n, n + 1, b, [=](int64_t i, Pair& p) { p.first += load(x + i); },
          [=](int64_t i) { prefetch(x + i); });
      store(y + (n * s.blocks() + b) * kBlock, to_float(sums.first / count));
    }
  }
}

void global_pool_backward(const Blocked& s, int64_t n0, int64_t n1, const float* dy, float* dx) {
  const Vec count = splat(static_cast<float>(s.height * s.width));
  for (int64_t p = n0 * s.blocks(); p < n1 * s.blocks(); ++p) {
    const Vec d = load(dy + p * kBlock) / count;
    for_vectors(p * s.plane(), (p + 1) * s.plane(), [=](int64_t i) { store(dx + i, d); });
  }
}

}  // namespace

void fill_pool(Kernels& kernels) {
  kernels.max_pool = max_pool;
  kernels.max_pool_backward = max_pool_backward;
  kernels.average_pool = average_pool;
  kernels.average_pool_backward = average_pool_backward;
  kernels.global_pool = global_pool;
  kernels.global_pool_backward = global_pool_backward;
}

}  // namespace convoy::engine::CONVOY_ISA
