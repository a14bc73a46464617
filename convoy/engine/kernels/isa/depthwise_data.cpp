// Gradient of a depthwise convolution's input: one filter per channel, so a vector holds eight
// channels and nothing is summed over channels. A strip of neighbouring pixels is kept in registers
// while the taps go by.
//
// With stride s, every s-th input pixel takes the same taps, every s-th of the kernel, and the
// pixels of one such phase are a convolution of dy with stride 1.

#include "convoy/engine/kernels/isa/depthwise.hpp"
#include "convoy/engine/kernels/isa/tile.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

/// Most outputs of a strip.
constexpr int kStrip = 8;
/// Half of a usual second-level cache.
constexpr int64_t kCachedFloats = 64 * 1024;

/// A strip of outputs; all distances in floats.
struct Strip {
  const float* x;  ///< the first output's first tap
  int64_t x_step;  ///< from output to output
  int64_t x_row, x_column;
  const float* w;
  int64_t w_row, w_column;
  int64_t rows, columns;  ///< of taps
  float* y;
  int64_t y_step;
};

/// STEP: x_step, where it is known when compiling, else 0.
template <int T, int STEP>
void compute(const Strip& s) {
  const int64_t step = STEP > 0 ? STEP : s.x_step;
  Vec sums[T];
  unroll<T>([&](auto t) __attribute__((always_inline)) { sums[t] = zero(); });
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* x = s.x + r * s.x_row;
    const float* w = s.w + r * s.w_row;
    for (int64_t c = 0; c < s.columns; ++c, x += s.x_column, w += s.w_column) {
      const Vec weight = load(w);
      unroll<T>([&](auto t) __attribute__((always_inline)) {
        sums[t] = multiply_add(load(x + t * step), weight, sums[t]);
      });
    }
  }
  unroll<T>([&](auto t) __attribute__((always_inline)) { store(s.y + t * s.y_step, sums[t]); });
}

template <int STEP>
void compute_line(Strip s, int64_t outputs) {
  for (; outputs >= kStrip; outputs -= kStrip) {
    compute<kStrip, STEP>(s);
    s.x += kStrip * s.x_step;
    s.y += kStrip * s.y_step;
  }
  unroll<kStrip>([&](auto t) {
    if (t > 0 && outputs == t) compute<t == 0 ? 1 : t, STEP>(s);
  });
}

void compute_line(const Strip& s, int64_t outputs) {
  if (s.x_step == kBlock) {
    compute_line<kBlock>(s, outputs);
  } else {
    compute_line<0>(s, outputs);
  }
}

/// Both axes of a convolution of planes, and the widths of the kernel as it is stored and of y.
struct Planes {
  Axis rows, columns;
  int64_t kernel_width, out_width;
  std::vector<Stretch> row_stretches = stretches(rows);
  std::vector<Stretch> column_stretches = stretches(columns);
};

void compute_plane(const Planes& p, const float* x, const float* w, float* y) {
  const int64_t width = p.columns.inputs * kBlock;
  Strip s{};
  s.x_row = p.rows.tap_step * width;
  s.x_column = p.columns.tap_step * kBlock;
  s.w_row = p.rows.weight_step * p.kernel_width * kBlock;
  s.w_column = p.columns.weight_step * kBlock;
  for (const Stretch& row : p.row_stretches) {
    for (const Stretch& column : p.column_stretches) {
      s.rows = row.taps.size();
      s.columns = column.taps.size();
      s.w = w + row.taps.begin * s.w_row + column.taps.begin * s.w_column +
            (p.rows.weight * p.kernel_width + p.columns.weight) * kBlock;
      // Strips go along the longer side: a border is one pixel wide.
      const bool along = column.outputs.size() >= row.outputs.size();
      s.x_step = along ? p.columns.step * kBlock : p.rows.step * width;
      s.y_step = along ? p.columns.to_step * kBlock : p.rows.to_step * p.out_width * kBlock;
      const Range lines = along ? row.outputs : column.outputs;
      for (int64_t line = lines.begin; line < lines.end; ++line) {
        const int64_t r = along ? line : row.outputs.begin;
        const int64_t c = along ? column.outputs.begin : line;
        s.x = x + p.rows.input(r, row.taps.begin) * width +
              p.columns.input(c, column.taps.begin) * kBlock;
        s.y = y + ((p.rows.to + r * p.rows.to_step) * p.out_width + p.columns.to +
                   c * p.columns.to_step) *
                      kBlock;
        compute_line(s, along ? column.outputs.size() : row.outputs.size());
      }
    }
  }
}

/// The input pixels i ≡ `phase` − pad (mod stride): they take taps phase, phase + stride, … of dy.
Axis backward_axis(const AxisShape& s, int64_t phase) {
  Axis axis;
  axis.to = (phase - s.pad % s.stride + s.stride) % s.stride;
  axis.to_step = s.stride;
  axis.outputs = std::max<int64_t>(0, ceil_div(s.in - axis.to, s.stride));
  axis.inputs = s.out;
  axis.first = (axis.to + s.pad - phase) / s.stride;
  axis.taps = ceil_div(std::max<int64_t>(0, s.taps - phase), s.stride);
  axis.tap_step = -s.dilation;
  axis.weight = phase;
  axis.weight_step = s.stride;
  return axis;
}

}  // namespace

bool depthwise_data_supported(const ConvShape& s) {
  const bool strided = s.stride_h > 1 || s.stride_w > 1;
  const bool dilated = s.dilation_h > 1 || s.dilation_w > 1;
  if (!is_depthwise(s) || s.plain_input || (dilated && strided)) return false;
  // The phases of a stride write to the same cache lines one after the other.
  return !strided || s.ih * s.iw * kBlock <= kCachedFloats;
}

void depthwise_data(const ConvShape& s, int64_t n0, int64_t n1, const float* dy, const float* w,
                    float* dx) {
  const int64_t blocks = ceil_div(s.oc, kBlock);
  std::vector<Planes> phases;
  for (int64_t r = 0; r < s.stride_h; ++r) {
    for (int64_t c = 0; c < s.stride_w; ++c) {
      phases.push_back({backward_axis(rows_of(s), r), backward_axis(columns_of(s), c), s.kw, s.iw});
    }
  }
  for (int64_t plane = n0 * blocks; plane < n1 * blocks; ++plane) {
    for (const Planes& phase : phases) {
      compute_plane(phase, dy + plane * s.oh * s.ow * kBlock,
                    w + plane % blocks * s.kh * s.kw * kBlock, dx + plane * s.ih * s.iw * kBlock);
    }
  }
}

}  // namespace convoy::engine::CONVOY_ISA
