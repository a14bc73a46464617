// Fully connected layers over one grain: n is small (1 … 64) and the weights are too large for any
// cache, so every weight is brought in once per call and used for all rows while it is near.
//
// Each product is a sum of partial sums over fixed blocks of the summed dimension, each taken in
// order by one accumulator: the bits do not depend on the range of outputs asked for.

#include <algorithm>

#include "convoy/engine/kernels/isa/parts.hpp"
#include "convoy/engine/kernels/isa/tile.hpp"
#include "convoy/engine/kernels/isa/transpose.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

// ---- forward: vectors over samples, weights broadcast -----------------------------------------

constexpr int64_t kForwardDepth = 128;   // of k: x of 32 samples in 16 KiB
constexpr int64_t kForwardOutputs = 96;  // of f: one pass over x per so many weight rows
constexpr int64_t kForwardSamples = 32;

/// sums[m][8·V samples] += Σ over k of x[k][8·V samples]·w[m][k], for M rows of w. `next` points to
/// the weights wanted after these, 16 of which are fetched per 16 steps.
template <int V, int M>
[[gnu::noinline]] void forward_tile(int64_t depth, const float* x, const float* w, int64_t w_row,
                                    const float* next, float* sums) {
  Tile<V, M> tile;
  for (int64_t k = 0; k < depth;) {
    for (int m = 0; m < M; ++m) __builtin_prefetch(next + m * w_row + k);
    const int64_t end = std::min(depth, k + 16);
    for (; k < end; ++k, x += V * kBlock) {
      tile.add_product([&](int v) { return x + v * kBlock; },
                       [&](int m) { return w[m * w_row + k]; });
    }
  }
  tile.each([&](int v, int m, Vec sum) {
    float* to = sums + (m * V + v) * kBlock;
    store(to, load(to) + sum);
  });
}

template <int V, int M>
void forward_tiles(int64_t count, int64_t depth, const float* x, const float* w, int64_t w_row,
                   float* sums) {
  int64_t m = 0;
  for (; m + M <= count; m += M) {
    const float* row = w + m * w_row;
    forward_tile<V, M>(depth, x, row, w_row, m + 2 * M <= count ? row + M * w_row : row,
                       sums + m * V * kBlock);
  }
  if constexpr (M > 1) {
    if (m < count) {
      forward_tiles<V, M - 1>(count - m, depth, x, w + m * w_row, w_row, sums + m * V * kBlock);
    }
  }
}

/// x[count ≤ 8·V samples][depth] → packed [depth][8·V], zero beyond `count`.
template <int V>
void pack_samples(int64_t count, int64_t depth, const float* x, int64_t x_row, float* packed) {
  for (int v = 0; v < V; ++v) {
    const float* from = x + v * kBlock * x_row;
    const int64_t lanes = std::clamp<int64_t>(count - v * kBlock, 0, kBlock);
    float* to = packed + v * kBlock;
    int64_t k = 0;
    for (; k + kBlock <= depth; k += kBlock) {
      Vec rows[8];
      for (int i = 0; i < 8; ++i) rows[i] = i < lanes ? load(from + i * x_row + k) : zero();
      transpose8(rows);
      for (int i = 0; i < 8; ++i) store(to + (k + i) * V * kBlock, rows[i]);
    }
    for (; k < depth; ++k) {
      for (int64_t i = 0; i < kBlock; ++i) {
        to[k * V * kBlock + i] = i < lanes ? from[i * x_row + k] : 0.0F;
      }
    }
  }
}

struct ForwardOutput {
  const float* bias;  // of the first output; may be null
  bool relu;
  float* y;
  int64_t row;
};

/// sums[outputs][8·V samples] → y, outputs being a multiple of 8.
template <int V>
void unpack_outputs(int64_t count, int64_t outputs, const float* sums, const ForwardOutput& out) {
  for (int64_t f = 0; f < outputs; f += kBlock) {
    const Vec bias = out.bias != nullptr ? load(out.bias + f) : zero();
    for (int64_t v = 0; v * kBlock < count; ++v) {
      Vec rows[8];
      for (int i = 0; i < 8; ++i) rows[i] = load(sums + ((f + i) * V + v) * kBlock);
      transpose8(rows);
      const int64_t lanes = std::min(count - v * kBlock, kBlock);
      for (int64_t i = 0; i < lanes; ++i) {
        const Vec sum = rows[i] + bias;
        store(out.y + (v * kBlock + i) * out.row + f, out.relu ? positive_part(sum) : sum);
      }
    }
  }
}

/// Up to 8·V samples and kForwardOutputs outputs.
template <int V>
void forward_chunk(int64_t count, int64_t k, int64_t outputs, const float* x, const float* w,
                   const ForwardOutput& out) {
  constexpr int kRows = V == 1 ? 8 : V == 2 ? 6 : V == 3 ? 4 : 3;
  alignas(64) float packed[kForwardDepth * V * kBlock];
  alignas(64) float sums[kForwardOutputs * V * kBlock];
  std::fill_n(sums, outputs * V * kBlock, 0.0F);
  for (int64_t at = 0; at < k; at += kForwardDepth) {
    const int64_t depth = std::min(kForwardDepth, k - at);
    pack_samples<V>(count, depth, x + at, k, packed);
    forward_tiles<V, kRows>(outputs, depth, packed, w + at, k, sums);
  }
  unpack_outputs<V>(count, outputs, sums, out);
}

void forward(int64_t n, int64_t k, int64_t f, int64_t f0, int64_t f1, const float* x,
             const float* w, const float* bias, bool relu, float* y) {
  for (int64_t at = f0; at < f1; at += kForwardOutputs) {
    const int64_t outputs = std::min(kForwardOutputs, f1 - at);
    for (int64_t i = 0; i < n; i += kForwardSamples) {
      const int64_t count = std::min(kForwardSamples, n - i);
      const ForwardOutput out{bias != nullptr ? bias + at : nullptr, relu, y + i * f + at, f};
      const float* samples = x + i * k;
      const float* rows = w + at * k;
      switch ((count + kBlock - 1) / kBlock) {
        case 1:
          forward_chunk<1>(count, k, outputs, samples, rows, out);
          break;
        case 2:
          forward_chunk<2>(count, k, outputs, samples, rows, out);
          break;
        case 3:
          forward_chunk<3>(count, k, outputs, samples, rows, out);
          break;
        default:
          forward_chunk<4>(count, k, outputs, samples, rows, out);
          break;
      }
    }
  }
}

// ---- backward: vectors over k, dy broadcast -----------------------------------------------------

constexpr int64_t kPanel = 64;  // of k: whole cache lines of each row
constexpr int kPanelVecs = 4;   // of a register tile

/// Elements of dy: a(m, r) = data[m·row + r·step] for output row m and summed index r.
struct Factor {
  const float* data;
  int64_t row, step;
};

enum class Store { set, add };

/// out[m][32] (+)= Σ over r of a(m, r)·panel[r][32], for M rows.
template <int M>
[[gnu::noinline]] void panel_tile(int64_t depth, Factor a, const float* panel, Store how,
                                  float* out, int64_t out_row) {
  Tile<kPanelVecs, M> tile;
  const float* factor = a.data;
  for (int64_t r = 0; r < depth; ++r, factor += a.step, panel += kPanel) {
    tile.add_product([&](int v) { return panel + v * kBlock; },
                     [&](int m) { return factor[m * a.row]; });
  }
  if (how == Store::set) {
    tile.each([&](int v, int m, Vec sum) { store(out + m * out_row + v * kBlock, sum); });
  } else {
    tile.each([&](int v, int m, Vec sum) {
      float* to = out + m * out_row + v * kBlock;
      store(to, load(to) + sum);
    });
  }
}

void panel_tiles(int64_t rows, int64_t depth, Factor a, const float* panel, Store how, float* out,
                 int64_t out_row) {
  for (int64_t m = 0; m < rows;) {
    const int64_t left = rows - m;
    const Factor from{a.data + m * a.row, a.row, a.step};
    float* to = out + m * out_row;
    if (left >= 3 && left != 4) {
      panel_tile<3>(depth, from, panel, how, to, out_row);
      m += 3;
    } else if (left >= 2) {
      panel_tile<2>(depth, from, panel, how, to, out_row);
      m += 2;
    } else {
      panel_tile<1>(depth, from, panel, how, to, out_row);
      m += 1;
    }
  }
}

/// Copies rows of `width` ≤ kPanel floats to a panel, zero beyond them.
void pack_panel(int64_t rows, int64_t width, const float* from, int64_t from_row, float* panel) {
  for (int64_t r = 0; r < rows; ++r, from += from_row, panel += kPanel) {
    if (width == kPanel) {
      for (int v = 0; v < kPanel; v += kBlock) store(panel + v, load(from + v));
    } else {
      std::copy_n(from, width, panel);
      std::fill_n(panel + width, kPanel - width, 0.0F);
    }
  }
}

/// out[rows][width] (+)= a·panel, the columns being any number up to kPanel.
void panel_product(int64_t rows, int64_t depth, Factor a, const float* panel, int64_t width,
                   Store how, float* out, int64_t out_row) {
  constexpr int64_t kTile = kPanelVecs * kBlock;
  for (int64_t c = 0; c < width; c += kTile) {
    if (c + kTile <= width) {
      panel_tiles(rows, depth, a, panel + c, how, out + c, out_row);
      continue;
    }
    for (int64_t m = 0; m < rows; ++m) {
      alignas(64) float line[kTile];
      float* to = out + m * out_row + c;
      if (how == Store::add) std::copy_n(to, width - c, line);
      panel_tile<1>(depth, {a.data + m * a.row, a.row, a.step}, panel + c, how, line, kTile);
      std::copy_n(line, width - c, to);
    }
  }
}

constexpr int64_t kDataDepth = 128;            // of f
constexpr int64_t kDataColumns = 16 * kPanel;  // of k: one page of each weight row

void backward_data(int64_t n, int64_t k, int64_t f, int64_t k0, int64_t k1, const float* dy,
                   const float* w, float* dx) {
  alignas(64) float panel[kDataDepth * kPanel];
  for (int64_t column = k0; column < k1; column += kDataColumns) {
    const int64_t end = std::min(k1, column + kDataColumns);
    for (int64_t r = 0; r < f; r += kDataDepth) {
      const int64_t depth = std::min(kDataDepth, f - r);
      for (int64_t c = column; c < end; c += kPanel) {
        const int64_t width = std::min(kPanel, end - c);
        pack_panel(depth, width, w + r * k + c, k, panel);
        panel_product(n, depth, {dy + r, f, 1}, panel, width, r == 0 ? Store::set : Store::add,
                      dx + c, k);
      }
    }
  }
}

constexpr int64_t kWeightsDepth = 64;  // samples of one panel
constexpr int64_t kWeightsRows = 96;   // of f

void backward_weights(int64_t n, int64_t k, int64_t f, int64_t f0, int64_t f1, const float* x,
                      const float* dy, float* dw) {
  alignas(64) float panel[kWeightsDepth * kPanel];
  for (int64_t row = f0; row < f1; row += kWeightsRows) {
    const int64_t rows = std::min(kWeightsRows, f1 - row);
    for (int64_t c = 0; c < k; c += kPanel) {
      const int64_t width = std::min(kPanel, k - c);
      for (int64_t i = 0; i < n; i += kWeightsDepth) {
        const int64_t depth = std::min(kWeightsDepth, n - i);
        pack_panel(depth, width, x + i * k + c, k, panel);
        panel_product(rows, depth, {dy + i * f + row, 1, f}, panel, width,
                      i == 0 ? Store::set : Store::add, dw + row * k + c, k);
      }
    }
  }
}

}  // namespace

void fill_linear(Kernels& kernels) {
  kernels.linear_forward = forward;
  kernels.linear_backward_data = backward_data;
  kernels.linear_backward_weights = backward_weights;
}

}  // namespace convoy::engine::CONVOY_ISA
