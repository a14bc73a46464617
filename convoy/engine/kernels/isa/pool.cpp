// Pooling over planes of eight channels. Windows that lie inside the input run through loops of
// fixed length; only those that hang over an edge look at their bounds.

#include "convoy/engine/kernels/isa/parts.hpp"
#include "convoy/engine/kernels/isa/pooling.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

/// Calls f(oh, ow, window, kh, kw) for every window of a plane: `window` points at its origin, kh
/// and kw are its positions inside the input. K is the extent of a square kernel, or 0 if it is
/// known at run time only.
template <int K, class F>
[[gnu::always_inline]] inline void for_windows(const PoolShape& s, const float* x, F f) {
  const int64_t kernel_h = K > 0 ? K : s.kernel_h;
  const int64_t kernel_w = K > 0 ? K : s.kernel_w;
  const Span rows = rows_inside(s);
  const Span columns = columns_inside(s);
  for (int64_t oh = 0; oh < s.out_height; ++oh) {
    const int64_t top = oh * s.stride_h - s.pad_h;
    const float* origin = x + (top * s.in.width - s.pad_w) * kBlock;
    const Span kh = clip(top, kernel_h, s.in.height);
    const int64_t step = s.stride_w * kBlock;
    const auto edge = [&](int64_t begin, int64_t end) {
      for (int64_t ow = begin; ow < end; ++ow) {
        f(oh, ow, origin + ow * step, kh, clip(ow * s.stride_w - s.pad_w, kernel_w, s.in.width));
      }
    };
    const bool whole = rows.holds(oh);
    edge(0, whole ? columns.begin : s.out_width);
    if (!whole) continue;
    for (int64_t ow = columns.begin; ow < columns.end; ++ow) {
      // The rows of the next windows: several streams at once are too much for the hardware.
      for (int64_t i = 0; i < s.stride_h; ++i) {
        prefetch(origin + ow * step + (s.stride_h + i) * s.in.width * kBlock);
      }
      f(oh, ow, origin + ow * step, Span{0, kernel_h}, Span{0, kernel_w});
    }
    edge(columns.end, s.out_width);
  }
}

// GCC converts a vector of integers to bytes one by one, so we say how.
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

/// y = the first largest value of each window, NaN if there is one; argmax = its position.
template <int K, bool kPositions>
void max_pool_plane(const PoolShape& s, const float* x, float* y, uint8_t* argmax) {
  const int64_t row = s.in.width * kBlock;
  const int64_t kernel_w = K > 0 ? K : s.kernel_w;
  for_windows<K>(s, x, [=](int64_t oh, int64_t ow, const float* window, Span kh, Span kw) {
    Vec value = load(window + kh.begin * row + kw.begin * kBlock);
    IVec position = splat_int(kh.begin * kernel_w + kw.begin);
    for (int64_t i = kh.begin; i < kh.end; ++i) {
      for (int64_t j = kw.begin; j < kw.end; ++j) {
        const Vec v = load(window + i * row + j * kBlock);
        const IVec better = (v > value) | is_nan(v);
        value = better ? v : value;
        if constexpr (kPositions) position = better ? splat_int(i * kernel_w + j) : position;
      }
    }
    const int64_t o = (oh * s.out_width + ow) * kBlock;
    store(y + o, value);
    if constexpr (kPositions) store_bytes(argmax + o, position);
  });
}

void max_pool(const PoolShape& s, int64_t n0, int64_t n1, const float* x, float* y,
              uint8_t* argmax) {
  const int64_t k = square(s);
  const auto with = k == 2   ? max_pool_plane<2, true>
                    : k == 3 ? max_pool_plane<3, true>
                             : max_pool_plane<0, true>;
  const auto without = k == 2   ? max_pool_plane<2, false>
                       : k == 3 ? max_pool_plane<3, false>
                                : max_pool_plane<0, false>;
  for (int64_t p = n0 * s.in.blocks(); p < n1 * s.in.blocks(); ++p) {
    const int64_t o = p * out_plane(s);
    if (argmax == nullptr) {
      without(s, x + p * s.in.plane(), y + o, nullptr);
    } else {
      with(s, x + p * s.in.plane(), y + o, argmax + o);
    }
  }
}

template <int K>
void average_pool_plane(const PoolShape& s, const Shares& shares, const float* x, float* y) {
  const int64_t row = s.in.width * kBlock;
  for_windows<K>(s, x, [&](int64_t oh, int64_t ow, const float* window, Span kh, Span kw) {
    Vec sum{};
    for (int64_t i = kh.begin; i < kh.end; ++i) {
      for (int64_t j = kw.begin; j < kw.end; ++j) sum += load(window + i * row + j * kBlock);
    }
    store(y + (oh * s.out_width + ow) * kBlock, sum * shares(oh, ow));
  });
}

void average_pool(const PoolShape& s, int64_t n0, int64_t n1, const float* x, float* y) {
  const int64_t k = square(s);
  const auto kernel = k == 2   ? average_pool_plane<2>
                      : k == 3 ? average_pool_plane<3>
                               : average_pool_plane<0>;
  const Shares shares(s);
  for (int64_t p = n0 * s.in.blocks(); p < n1 * s.in.blocks(); ++p) {
    kernel(s, shares, x + p * s.in.plane(), y + p * out_plane(s));
  }
}

void global_pool(const Blocked& s, int64_t n0, int64_t n1, const float* x, float* y) {
  const DVec count = splat_double(static_cast<double>(s.height * s.width));
  const auto step = [=](int64_t i, Pair& p) { p.first += load(x + i); };
  const auto touch = [](int64_t /*i*/) {};
  for (int64_t n = n0; n < n1; ++n) {
    for (int64_t b = 0; b < s.blocks(); ++b) {
      const Totals sums = sum_block(s, n, n + 1, b, step, touch);
      store(y + (n * s.blocks() + b) * kBlock, to_float(sums.first / count));
    }
  }
}

}  // namespace

void fill_pool(Kernels& kernels) {
  kernels.max_pool = max_pool;
  kernels.average_pool = average_pool;
  kernels.global_pool = global_pool;
}

}  // namespace convoy::engine::CONVOY_ISA
