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

constexpr int64_t kForwardDepth = 128;    // of k: x of 32 samples in 16 KiB
constexpr int64_t kForwardOutputs = 192;  // of f: one pass over x per so many weight rows
constexpr int64_t kForwardSamples = 32;   // of one register tile
constexpr int64_t kForwardGroups = 2;     // of so many samples, while a block of weights is near

/// sums[m][8·V samples] += Σ over k of x[k][8·V samples]·w[m][k], for M rows of w. Meanwhile the
/// weights of the next block of k are fetched.
template <int V, int M>
[[gnu::noinline]] void forward_tile(int64_t depth, const float* x, const float* w, int64_t w_row,
                                    float* sums) {
  Tile<V, M> tile;
  for (int64_t k = 0; k < depth;) {
    for (int m = 0; m < M; ++m) __builtin_prefetch(w + m * w_row + k + kForwardDepth, 0, 2);
    const int64_t end = std::min(depth, k + 16);
    for (; k < end; ++k, x += V * kBlock) {
      tile.add_product([&](int v) { return load(x + v * kBlock); },
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
    forward_tile<V, M>(depth, x, w + m * w_row, w_row, sums + m * V * kBlock);
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

/// Adds the products over one block of k to `sums`.
template <int V>
void forward_block(int64_t count, int64_t k, int64_t depth, int64_t outputs, const float* x,
                   const float* w, float* sums) {
  constexpr int kRows = V == 1 ? 8 : V == 2 ? 6 : V == 3 ? 4 : 3;
  alignas(64) float packed[kForwardDepth * V * kBlock];
  pack_samples<V>(count, depth, x, k, packed);
  forward_tiles<V, kRows>(outputs, depth, packed, w, k, sums);
}

/// Calls f with the number of vectors that `count` ≤ kForwardSamples samples take.
template <class F>
void with_vectors(int64_t count, F f) {
  switch ((count + kBlock - 1) / kBlock) {
    case 1:
      return f(std::integral_constant<int, 1>{});
    case 2:
      return f(std::integral_constant<int, 2>{});
    case 3:
      return f(std::integral_constant<int, 3>{});
    default:
      return f(std::integral_constant<int, 4>{});
  }
}

/// Up to kForwardGroups·kForwardSamples samples and kForwardOutputs outputs.
void forward_chunk(int64_t n, int64_t k, int64_t outputs, const float* x, const float* w,
                   const ForwardOutput& out) {
  alignas(64) float sums[kForwardGroups][kForwardOutputs * kForwardSamples];
  for (auto& group : sums) std::fill_n(group, outputs * kForwardSamples, 0.0F);
  for (int64_t at = 0; at < k; at += kForwardDepth) {
    const int64_t depth = std::min(kForwardDepth, k - at);
    for (int64_t i = 0; i < n; i += kForwardSamples) {
      const int64_t count = std::min(kForwardSamples, n - i);
      with_vectors(count, [&](auto v) {
        forward_block<v>(count, k, depth, outputs, x + i * k + at, w + at,
                         sums[i / kForwardSamples]);
      });
    }
  }
  for (int64_t i = 0; i < n; i += kForwardSamples) {
    const int64_t count = std::min(kForwardSamples, n - i);
    const ForwardOutput part{out.bias, out.relu, out.y + i * out.row, out.row};
    with_vectors(
        count, [&](auto v) { unpack_outputs<v>(count, outputs, sums[i / kForwardSamples], part); });
  }
}

void forward(int64_t n, int64_t k, int64_t f, int64_t f0, int64_t f1, const float* x,
             const float* w, const float* bias, bool relu, float* y) {
  constexpr int64_t kMost = kForwardGroups * kForwardSamples;
  for (int64_t at = f0; at < f1; at += kForwardOutputs) {
    const int64_t outputs = std::min(kForwardOutputs, f1 - at);
    for (int64_t i = 0; i < n; i += kMost) {
      forward_chunk(std::min(kMost, n - i), k, outputs, x + i * k, w + at * k,
                    {bias != nullptr ? bias + at : nullptr, relu, y + i * f + at, f});
    }
  }
}

// ---- backward: vectors over k, dy broadcast -----------------------------------------------------
//
// Both factors are copied to small buffers in the order of use first: rows a power of two apart
// would fight for the same few lines of the caches.

struct Output {
  float* data;
  int64_t row;
  bool add;  // to what is there

  Output from_row(int64_t m) const { return {data + m * row, row, add}; }
};

/// Rows of the larger factor where they lie in memory, and those that are wanted after them.
struct Rows {
  const float* data;
  const float* next;
  int64_t step;
};

template <int V, int M>
[[gnu::always_inline]] inline void finish(Tile<V, M>& tile, const Output& out) {
  const auto at = [&](int v, int m) { return out.data + m * out.row + v * kBlock; };
  if (out.add) {
    tile.each([&](int v, int m, Vec sum) { store(at(v, m), load(at(v, m)) + sum); });
  } else {
    tile.each([&](int v, int m, Vec sum) { store(at(v, m), sum); });
  }
}

/// out[m][8·V] (+)= Σ over r of factors[r][m]·panel[r][8·V], for M rows.
template <int V, int M>
[[gnu::noinline]] void panel_tile(int64_t depth, const float* factors, const float* panel,
                                  const Output& out) {
  Tile<V, M> tile;
  for (int64_t r = 0; r < depth; ++r, factors += M, panel += V * kBlock) {
    tile.add_product([&](int v) { return load(panel + v * kBlock); },
                     [&](int m) { return factors[m]; });
  }
  finish(tile, out);
}

/// The same, with the panel taken from `rows` and copied on the way.
template <int V, int M>
[[gnu::noinline]] void packing_tile(int64_t depth, const float* factors, Rows rows, float* panel,
                                    const Output& out) {
  Tile<V, M> tile;
  for (int64_t r = 0; r < depth; ++r, factors += M, panel += V * kBlock) {
    __builtin_prefetch(rows.next, 0, 2);
    __builtin_prefetch(rows.next + V * kBlock - 1, 0, 2);
    tile.add_product(
        [&](int v) {
          const Vec values = load(rows.data + v * kBlock);
          store(panel + v * kBlock, values);
          return values;
        },
        [&](int m) { return factors[m]; });
    rows.data += rows.step;
    rows.next += rows.step;
  }
  finish(tile, out);
}

/// Fetches the outputs that come `ahead` rows later, at the end those of the next columns.
template <int V, int M>
void fetch_outputs(int64_t m, int64_t rows, int64_t ahead, const Output& out) {
  for (int64_t i = m + ahead; i < m + ahead + M; ++i) {
    const float* later = i < rows ? out.data + i * out.row
                                  : out.data + std::min(i - rows, rows - 1) * out.row + V * kBlock;
    __builtin_prefetch(later, 1);
    __builtin_prefetch(later + V * kBlock - 1, 1);
  }
}

/// All rows: tiles of M and a smaller last one, whose factors lie one tile behind the other. The
/// panel is filled by the first tile.
template <int V, int M>
void panel_tiles(int64_t rows, int64_t depth, const float* factors, const Rows* source,
                 float* panel, const Output& out) {
  constexpr int64_t kSteps = 128;  // between the fetch of an output and its use
  const int64_t ahead = M * std::max<int64_t>(2, kSteps / depth);
  int64_t m = 0;
  for (; m + M <= rows; m += M) {
    fetch_outputs<V, M>(m, rows, ahead, out);
    if (m == 0 && source != nullptr) {
      packing_tile<V, M>(depth, factors, *source, panel, out);
    } else {
      panel_tile<V, M>(depth, factors + m * depth, panel, out.from_row(m));
    }
  }
  if constexpr (M > 1) {
    if (m < rows) {
      panel_tiles<V, M - 1>(rows - m, depth, factors + m * depth, m == 0 ? source : nullptr, panel,
                            out.from_row(m));
    }
  }
}

/// The same for `width` < 8·V columns of the output.
template <int V, int M>
void narrow_tiles(int64_t rows, int64_t depth, const float* factors, const Rows& source,
                  int64_t width, float* panel, const Output& out) {
  for (int64_t r = 0; r < depth; ++r) {
    float* to = panel + r * V * kBlock;
    std::copy_n(source.data + r * source.step, width, to);
    std::fill_n(to + width, V * kBlock - width, 0.0F);
  }
  for (int64_t m = 0; m < rows; m += M) {
    alignas(64) float sums[M * V * kBlock];
    const int64_t count = std::min<int64_t>(M, rows - m);
    panel_tiles<V, M>(count, depth, factors + m * depth, nullptr, panel, {sums, V * kBlock, false});
    for (int64_t i = 0; i < count; ++i) {
      float* to = out.data + (m + i) * out.row;
      const float* from = sums + i * V * kBlock;
      for (int64_t c = 0; c < width; ++c) to[c] = out.add ? to[c] + from[c] : from[c];
    }
  }
}

/// Factors a(m, r) = dy[m·m_step + r·r_step] in the order of panel_tiles<V, M>.
template <int M>
void pack_factors(int64_t rows, int64_t depth, const float* dy, int64_t m_step, int64_t r_step,
                  float* factors) {
  for (int64_t m = 0; m < rows; m += M) {
    const int64_t count = std::min<int64_t>(M, rows - m);
    for (int64_t i = 0; i < count; ++i) {
      const float* from = dy + (m + i) * m_step;
      for (int64_t r = 0; r < depth; ++r) factors[r * count + i] = from[r * r_step];
    }
    factors += count * depth;
  }
}

/// out[rows][columns] (+)= factors·source, in panels of 8·V columns. What a panel needs is fetched
/// `ahead` columns before it.
template <int V, int M, int64_t kDepth>
void product(int64_t rows, int64_t columns, int64_t depth, const float* factors, const Rows& source,
             int64_t ahead, const Output& out) {
  constexpr int64_t kWidth = V * kBlock;
  alignas(64) float panel[kDepth * kWidth];
  for (int64_t c = 0; c < columns; c += kWidth) {
    const int64_t later = c + ahead;
    const Rows from{source.data + c,
                    later < columns ? source.data + later : source.next + later - columns,
                    source.step};
    const Output to{out.data + c, out.row, out.add};
    if (c + kWidth <= columns) {
      panel_tiles<V, M>(rows, depth, factors, &from, panel, to);
    } else {
      narrow_tiles<V, M>(rows, depth, factors, from, columns - c, panel, to);
    }
  }
}

constexpr int kDataVecs = 4;  // two cache lines, × 3 samples
constexpr int kDataRows = 3;
constexpr int64_t kDataSamples = 64;
constexpr int64_t kDataDepth = 128;                        // of f: a panel takes 16 KiB
constexpr int64_t kDataColumns = 40 * kDataVecs * kBlock;  // of k: about a page of each weight row

void backward_data(int64_t n, int64_t k, int64_t f, int64_t k0, int64_t k1, const float* dy,
                   const float* w, float* dx) {
  alignas(64) float factors[kDataSamples * kDataDepth];
  for (int64_t i = 0; i < n; i += kDataSamples) {
    const int64_t samples = std::min(kDataSamples, n - i);
    for (int64_t c = k0; c < k1; c += kDataColumns) {
      const int64_t columns = std::min(kDataColumns, k1 - c);
      for (int64_t r = 0; r < f; r += kDataDepth) {
        const int64_t depth = std::min(kDataDepth, f - r);
        pack_factors<kDataRows>(samples, depth, dy + i * f + r, f, 1, factors);
        const float* block = w + r * k + c;
        const float* next = r + depth < f ? block + depth * k : w + c + columns;
        product<kDataVecs, kDataRows, kDataDepth>(samples, columns, depth, factors,
                                                  {block, next, k}, 4 * kDataVecs * kBlock,
                                                  {dx + i * k + c, k, r > 0});
      }
    }
  }
}

constexpr int kWeightsVecs = 4;  // two cache lines, × 3 rows
constexpr int kWeightsRows = 3;
constexpr int64_t kWeightsSamples = 64;               // of one panel
constexpr int64_t kWeightsBlock = 32 * kWeightsRows;  // of f

void backward_weights(int64_t n, int64_t k, int64_t f, int64_t f0, int64_t f1, const float* x,
                      const float* dy, float* dw) {
  alignas(64) float factors[kWeightsSamples * kWeightsBlock];
  for (int64_t row = f0; row < f1; row += kWeightsBlock) {
    const int64_t rows = std::min(kWeightsBlock, f1 - row);
    for (int64_t i = 0; i < n; i += kWeightsSamples) {
      const int64_t depth = std::min(kWeightsSamples, n - i);
      pack_factors<kWeightsRows>(rows, depth, dy + i * f + row, 1, f, factors);
      const float* samples = x + i * k;
      product<kWeightsVecs, kWeightsRows, kWeightsSamples>(
          rows, k, depth, factors, {samples, samples, k}, kWeightsVecs * kBlock,
          {dw + row * k, k, i > 0});
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
