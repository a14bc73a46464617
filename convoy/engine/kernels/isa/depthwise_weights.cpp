// The weights' gradient of a depthwise convolution: one filter per channel, a vector holds the same
// tap of eight channels. The sums of up to 3×3 taps stay in registers while the outputs that use
// them go by, so each gradient is loaded once for nine multiply-adds.

#include "convoy/engine/kernels/isa/depthwise.hpp"
#include "convoy/engine/kernels/isa/tile.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

/// Taps of a register tile in one direction.
constexpr int kTaps = 3;
/// Rows of outputs summed in one go: their inputs stay in the first-level cache, and longer sums
/// round more.
int64_t rows_together(int64_t columns) {
  return std::max<int64_t>(1, 512 / columns);
}

/// A rectangle of outputs that all use the same taps; distances in floats.
struct Rectangle {
  int64_t rows, columns;
  const float* x;  ///< the first output's first tap
  int64_t x_row, x_column, x_tap_row, x_tap_column;
  const float* dy;
  int64_t dy_row;
  float* dw;
  int64_t dw_row;
};

/// R×C taps. STEP: x_column, and TAP: x_tap_column, where they are known when compiling, else 0.
template <int R, int C, int STEP, int TAP>
void add_taps(const Rectangle& a) {
  const int64_t step = STEP > 0 ? STEP : a.x_column;
  const int64_t tap = TAP > 0 ? TAP : a.x_tap_column;
  Vec sums[R][C];
  unroll<R>([&](auto r) __attribute__((always_inline)) {
    unroll<C>([&](auto c) __attribute__((always_inline)) { sums[r][c] = zero(); });
  });
  for (int64_t row = 0; row < a.rows; ++row) {
    const float* x = a.x + row * a.x_row;
    const float* dy = a.dy + row * a.dy_row;
    for (int64_t column = 0; column < a.columns; ++column, x += step, dy += kBlock) {
      Vec gradient = load(dy);
      hold(gradient);
      unroll<R>([&](auto r) __attribute__((always_inline)) {
        unroll<C>([&](auto c) __attribute__((always_inline)) {
          sums[r][c] = multiply_add(load(x + r * a.x_tap_row + c * tap), gradient, sums[r][c]);
        });
      });
    }
  }
  unroll<R>([&](auto r) __attribute__((always_inline)) {
    unroll<C>([&](auto c) __attribute__((always_inline)) {
      float* to = a.dw + r * a.dw_row + c * kBlock;
      store(to, load(to) + sums[r][c]);
    });
  });
}

template <int R, int C>
void add_taps(const Rectangle& a) {
  if (a.x_tap_column == kBlock && a.x_column == kBlock) {
    add_taps<R, C, kBlock, kBlock>(a);
  } else if (a.x_tap_column == kBlock && a.x_column == 2 * kBlock) {
    add_taps<R, C, 2 * kBlock, kBlock>(a);
  } else {
    add_taps<R, C, 0, 0>(a);
  }
}

void add_taps(const Rectangle& a, int64_t tap_rows, int64_t tap_columns) {
  unroll<kTaps>([&](auto r) {
    unroll<kTaps>([&](auto c) {
      if (tap_rows == r + 1 && tap_columns == c + 1) add_taps<r + 1, c + 1>(a);
    });
  });
}

/// One image and channel block; `dw` is [kh][kw][8].
void add_plane(const ConvShape& s, const std::vector<Stretch>& rows,
               const std::vector<Stretch>& columns, const float* x, const float* dy, float* dw) {
  const int64_t width = s.iw * kBlock;
  Rectangle a{};
  a.x_row = s.stride_h * width;
  a.x_column = s.stride_w * kBlock;
  a.x_tap_row = s.dilation_h * width;
  a.x_tap_column = s.dilation_w * kBlock;
  a.dy_row = s.ow * kBlock;
  a.dw_row = s.kw * kBlock;
  for (const Stretch& row : rows) {
    const int64_t together = rows_together(s.ow);
    for (int64_t first = row.outputs.begin; first < row.outputs.end; first += together) {
      a.rows = std::min(together, row.outputs.end - first);
      for (const Stretch& column : columns) {
        a.columns = column.outputs.size();
        a.dy = dy + (first * s.ow + column.outputs.begin) * kBlock;
        for (int64_t kh = row.taps.begin; kh < row.taps.end; kh += kTaps) {
          for (int64_t kw = column.taps.begin; kw < column.taps.end; kw += kTaps) {
            a.x = x + forward_axis(rows_of(s)).input(first, kh) * width +
                  forward_axis(columns_of(s)).input(column.outputs.begin, kw) * kBlock;
            a.dw = dw + (kh * s.kw + kw) * kBlock;
            add_taps(a, std::min<int64_t>(kTaps, row.taps.end - kh),
                     std::min<int64_t>(kTaps, column.taps.end - kw));
          }
        }
      }
    }
  }
}

}  // namespace

void conv_weights_depthwise(const ConvShape& s, int64_t b0, int64_t b1, const float* x,
                            const float* dy, float* dw) {
  const int64_t taps = s.kh * s.kw * kBlock;
  const int64_t x_plane = s.ih * s.iw * kBlock;
  const int64_t dy_plane = s.oh * s.ow * kBlock;
  const int64_t blocks = ceil_div(s.oc, kBlock);
  const std::vector<Stretch> rows = stretches(forward_axis(rows_of(s)));
  std::vector<Stretch> columns = stretches(forward_axis(columns_of(s)));
  // The longest first: it walks along the rows, which the cache foresees.
  std::stable_sort(columns.begin(), columns.end(), [](const Stretch& a, const Stretch& b) {
    return a.outputs.size() > b.outputs.size();
  });
  std::fill_n(dw + b0 * taps, (b1 - b0) * taps, 0.0F);
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t b = b0; b < b1; ++b) {
      const int64_t plane = n * blocks + b;
      add_plane(s, rows, columns, x + plane * x_plane, dy + plane * dy_plane, dw + b * taps);
    }
  }
}

}  // namespace convoy::engine::CONVOY_ISA
