// Convolution by lowering: the windows of several images are copied into the rows of one matrix
// ("im2col"), one row per output pixel, and the convolution becomes a tall matrix product,
//
//   y[pixel][o] = Σ_k x̂[pixel][k]·w[k][o],  k over (input block, kernel row, kernel column, 8)
//
// (over (kernel row, kernel column, input channel) for a plain input). Blocked weights hold, for
// each block of 8 outputs, exactly the matrix w[k][8].

#include <algorithm>

#include "convoy/engine/kernels/isa/parts.hpp"
#include "convoy/engine/kernels/isa/scratch.hpp"
#include "convoy/engine/kernels/isa/tile.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

/// Register tiles, and the part of the matrices that stays in the second-level cache.
constexpr int kPanel = 2;   // output blocks
constexpr int kStrip = 6;   // pixels
constexpr int kInputs = 4;  // rows of dw
constexpr int64_t kDepth = 384;
constexpr int64_t kRows = 16 * kStrip;

/// Columns of the lowered matrix.
int64_t columns(const ConvShape& s) {
  const int64_t channels = s.plain_input ? s.ic : blocks_of(s.ic) * kBlock;
  return channels * s.kh * s.kw;
}

/// Floats from one row to the next.
int64_t row_size(const ConvShape& s) {
  return odd_lines(columns(s));
}

bool supported(const ConvShape& s) {
  return s.groups == 1;
}

/// Calls visit(column in the row, pixel of the image or −1 if it is padding) for every tap.
template <class Visit>
void for_each_tap(const ConvShape& s, int64_t oy, int64_t ox, Visit visit) {
  for (int64_t ky = 0; ky < s.kh; ++ky) {
    const int64_t y = oy * s.stride_h - s.pad_h + ky * s.dilation_h;
    for (int64_t kx = 0; kx < s.kw; ++kx) {
      const int64_t x = ox * s.stride_w - s.pad_w + kx * s.dilation_w;
      const bool inside = y >= 0 && y < s.ih && x >= 0 && x < s.iw;
      visit(ky * s.kw + kx, inside ? y * s.iw + x : -1);
    }
  }
}

/// Rows of image n; `rows` is the first.
void lower(const ConvShape& s, int64_t n, const float* x, float* rows) {
  const int64_t taps = s.kh * s.kw;
  const int64_t plane = s.ih * s.iw;
  const int64_t row = row_size(s);
  for (int64_t oy = 0; oy < s.oh; ++oy) {
    for (int64_t ox = 0; ox < s.ow; ++ox, rows += row) {
      if (s.plain_input) {
        const float* image = x + n * s.ic * plane;
        for_each_tap(s, oy, ox, [&](int64_t tap, int64_t pixel) {
          for (int64_t c = 0; c < s.ic; ++c) {
            rows[tap * s.ic + c] = pixel < 0 ? 0.0F : image[c * plane + pixel];
          }
        });
        continue;
      }
      const float* image = x + n * blocks_of(s.ic) * plane * kBlock;
      for_each_tap(s, oy, ox, [&](int64_t tap, int64_t pixel) {
        for (int64_t b = 0; b < blocks_of(s.ic); ++b) {
          store(rows + (b * taps + tap) * kBlock,
                pixel < 0 ? zero() : load(image + (b * plane + pixel) * kBlock));
        }
      });
    }
  }
}

/// Adds the rows of image n back to where they came from; dx starts at zero.
void raise(const ConvShape& s, int64_t n, const float* rows, float* dx) {
  const int64_t taps = s.kh * s.kw;
  const int64_t plane = s.ih * s.iw;
  const int64_t blocks = blocks_of(s.ic);
  float* image = dx + n * blocks * plane * kBlock;
  std::memset(image, 0, static_cast<size_t>(blocks * plane * kBlock) * sizeof(float));
  for (int64_t oy = 0; oy < s.oh; ++oy) {
    for (int64_t ox = 0; ox < s.ow; ++ox, rows += row_size(s)) {
      for_each_tap(s, oy, ox, [&](int64_t tap, int64_t pixel) {
        if (pixel < 0) return;
        for (int64_t b = 0; b < blocks; ++b) {
          float* to = image + (b * plane + pixel) * kBlock;
          store(to, load(to) + load(rows + (b * taps + tap) * kBlock));
        }
      });
    }
  }
}

// ---- forward -----------------------------------------------------------------------------------

/// What one call of forward_tile works on: V output blocks × P pixels over `depth` columns.
struct ForwardTile {
  const float* rows;
  int64_t row;
  const float* w;
  int64_t w_block;
  int64_t depth;
};

template <int V, int P, class Finish>
[[gnu::always_inline]] inline void forward_tile(const ForwardTile& t, Finish finish) {
  Tile<V, P> sums;
  const float* w = t.w;
#pragma GCC unroll 4
  for (int64_t k = 0; k < t.depth; ++k, w += kBlock) {
    sums.add_product([&](auto v) { return load(w + v * t.w_block); },
                     [&](auto p) { return t.rows[p * t.row + k]; });
  }
  sums.each([&](auto v, auto p, Vec& sum) { finish(v, p, sum); });
}

template <class Call>
void with_count(int64_t count, Call call) {
  switch (count) {
    case 1:
      call(std::integral_constant<int, 1>{});
      break;
    case 2:
      call(std::integral_constant<int, 2>{});
      break;
    case 3:
      call(std::integral_constant<int, 3>{});
      break;
    case 4:
      call(std::integral_constant<int, 4>{});
      break;
    case 5:
      call(std::integral_constant<int, 5>{});
      break;
    default:
      call(std::integral_constant<int, kStrip>{});
      break;
  }
}

/// y of `images` images from number n on, whose rows are lowered.
void multiply_forward(const ConvShape& s, int64_t n, int64_t images, const float* rows,
                      const float* w, const float* bias, bool relu, float* y) {
  const int64_t depth = columns(s);
  const int64_t row = row_size(s);
  const int64_t plane = s.oh * s.ow;
  const int64_t pixels = images * plane;
  const int64_t blocks = blocks_of(s.oc);
  for (int64_t k0 = 0; k0 < depth; k0 += kDepth) {
    const bool first = k0 == 0;
    const bool last = k0 + kDepth >= depth;
    for (int64_t p0 = 0; p0 < pixels; p0 += kRows) {
      const int64_t p1 = std::min(p0 + kRows, pixels);
      for (int64_t o = 0; o < blocks; o += kPanel) {
        for (int64_t p = p0; p < p1; p += kStrip) {
          const ForwardTile t{rows + p * row + k0, row, w + (o * depth + k0) * kBlock,
                              depth * kBlock, std::min(kDepth, depth - k0)};
          const auto finish = [&](int64_t v, int64_t q, Vec sum) {
            const int64_t image = n + (p + q) / plane;
            float* to = y + ((image * blocks + o + v) * plane + (p + q) % plane) * kBlock;
            if (!first) sum += load(to);
            if (first && bias != nullptr) sum += load(bias + (o + v) * kBlock);
            store(to, last && relu ? positive_part(sum) : sum);
          };
          with_count(std::min<int64_t>(kStrip, p1 - p), [&](auto count) {
            if (o + kPanel <= blocks) {
              forward_tile<kPanel, count>(t, finish);
            } else {
              forward_tile<1, count>(t, finish);
            }
          });
        }
      }
    }
  }
}

void forward(const ConvShape& s, int64_t n0, int64_t n1, int64_t together, const float* x,
             const float* w, const float* bias, bool relu, float* y, float* scratch) {
  const int64_t image_rows = s.oh * s.ow * row_size(s);
  for (int64_t n = n0; n < n1; n += together) {
    const int64_t images = std::min(together, n1 - n);
    for (int64_t i = 0; i < images; ++i) lower(s, n + i, x, scratch + i * image_rows);
    multiply_forward(s, n, images, scratch, w, bias, relu, y);
  }
}

// ---- backward-data -----------------------------------------------------------------------------

/// Rows of dx̂ for P pixels and the V taps from `position` on (in the order of the columns).
template <int V, int P>
void data_tile(const ConvShape& s, const float* dy, int64_t dy_block, const float* w,
               int64_t w_block, float* rows, int64_t row) {
  Tile<V, P> sums;
  for (int64_t b = 0; b < blocks_of(s.oc); ++b) {
#pragma GCC unroll 4
    for (int64_t o = 0; o < kBlock; ++o) {
      sums.add_product([&](auto v) { return load(w + (v * kBlock + o) * kBlock); },
                       [&](auto p) { return dy[p * kBlock + o]; });
    }
    dy += dy_block;
    w += w_block;
  }
  sums.each([&](auto v, auto p, Vec& sum) { store(rows + p * row + v * kBlock, sum); });
}

void backward_data(const ConvShape& s, int64_t n0, int64_t n1, const float* dy, const float* w,
                   float* dx, float* scratch) {
  const int64_t positions = columns(s) / kBlock;
  const int64_t plane = s.oh * s.ow;
  const int64_t row = row_size(s);
  for (int64_t n = n0; n < n1; ++n) {
    const float* image = dy + n * blocks_of(s.oc) * plane * kBlock;
    for (int64_t position = 0; position < positions; position += kPanel) {
      for (int64_t p = 0; p < plane; p += kStrip) {
        with_count(std::min<int64_t>(kStrip, plane - p), [&](auto count) {
          const auto run = [&](auto width) {
            data_tile<width, count>(s, image + p * kBlock, plane * kBlock,
                                    w + position * kBlock * kBlock, positions * kBlock * kBlock,
                                    scratch + p * row + position * kBlock, row);
          };
          if (position + kPanel <= positions) {
            run(std::integral_constant<int, kPanel>{});
          } else {
            run(std::integral_constant<int, 1>{});
          }
        });
      }
    }
    raise(s, n, scratch, dx);
  }
}

// ---- backward-weights --------------------------------------------------------------------------

template <int V, int M>
void weights_tile(int64_t pixels, const float* rows, int64_t row, const float* dy, int64_t dy_block,
                  float* dw, int64_t dw_block, bool first) {
  Tile<V, M> sums;
#pragma GCC unroll 4
  for (int64_t p = 0; p < pixels; ++p, rows += row, dy += kBlock) {
    sums.add_product([&](auto v) { return load(dy + v * dy_block); },
                     [&](auto m) { return rows[m]; });
  }
  sums.each([&](auto v, auto m, Vec& sum) {
    float* to = dw + v * dw_block + m * kBlock;
    store(to, first ? sum : load(to) + sum);
  });
}

void multiply_weights(const ConvShape& s, int64_t n, bool first, int64_t b0, int64_t b1,
                      const float* rows, const float* dy, float* dw) {
  const int64_t depth = columns(s);
  const int64_t plane = s.oh * s.ow;
  const int64_t row = row_size(s);
  for (int64_t p0 = 0; p0 < plane; p0 += kRows) {
    const int64_t pixels = std::min(kRows, plane - p0);
    for (int64_t o = b0; o < b1;) {
      const int64_t left = b1 - o;
      const int64_t width = left == 4 || left == 2 ? 2 : std::min<int64_t>(left, 3);
      const float* from = dy + ((n * blocks_of(s.oc) + o) * plane + p0) * kBlock;
      for (int64_t k = 0; k < depth; k += kInputs) {
        with_count(std::min<int64_t>(kInputs, depth - k), [&](auto count) {
          if constexpr (count <= kInputs) {
            const auto run = [&](auto v) {
              weights_tile<v, count>(pixels, rows + p0 * row + k, row, from, plane * kBlock,
                                     dw + (o * depth + k) * kBlock, depth * kBlock,
                                     first && p0 == 0);
            };
            if (width == 3) {
              run(std::integral_constant<int, 3>{});
            } else if (width == 2) {
              run(std::integral_constant<int, 2>{});
            } else {
              run(std::integral_constant<int, 1>{});
            }
          }
        });
      }
      o += width;
    }
  }
}

void backward_weights(const ConvShape& s, int64_t b0, int64_t b1, const float* x, const float* dy,
                      float* dw, float* scratch) {
  for (int64_t n = 0; n < s.n; ++n) {
    lower(s, n, x, scratch);
    multiply_weights(s, n, n == 0, b0, b1, scratch, dy, dw);
  }
}

}  // namespace

void fill_lowering(Kernels& kernels) {
  Lowering& l = kernels.lowering;
  l.supported = supported;
  l.image_floats = [](const ConvShape& s) { return s.oh * s.ow * row_size(s); };
  l.forward = forward;
  l.backward_data = backward_data;
  l.backward_weights = backward_weights;
}

}  // namespace convoy::engine::CONVOY_ISA
