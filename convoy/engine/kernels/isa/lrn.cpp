// Local response normalisation across channels. A few pixels at a time are gathered with all their
// channels side by side, zeros before the first and after the last; the sum over neighbouring
// channels is then a sum of unaligned vectors.

#include "convoy/engine/kernels/isa/loops.hpp"
#include "convoy/engine/kernels/isa/math.hpp"
#include "convoy/engine/kernels/isa/parts.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

// Floats of one gathering: 12 KiB, so that both of the backward pass stay in the first-level cache.
// Where a single pixel takes more, it gets what it needs, up to the capacity: channels + size may
// be as large as 16000.
constexpr int64_t kGathered = 3072;
constexpr int64_t kCapacity = 16384;

/// How the channels of a pixel lie in the gathering. The window of channel c is
/// [c − before, c + after].
struct Rows {
  int64_t before;
  int64_t after;
  int64_t margin;  ///< zeros on each side
  int64_t row;     ///< floats per pixel
  int64_t pixels;  ///< pixels per gathering

  Rows(const Blocked& s, int64_t size)
      : before(size / 2),
        after((size - 1) / 2),
        margin(round_up(larger(before, after), kBlock)),
        row(s.blocks() * kBlock + 2 * margin),
        pixels(larger(1, kGathered / row)) {}
};

struct Law {
  Vec k;
  Vec alpha;  ///< divided by the window's size
  Vec beta;
};

[[gnu::always_inline]] inline Vec sum_window(const float* from, int64_t count) {
  if (count == 5) {  // what nearly every network uses
    return (load(from) + load(from + 1)) + (load(from + 2) + load(from + 3)) + load(from + 4);
  }
  Vec sum = load(from);
  for (int64_t j = 1; j < count; ++j) sum += load(from + j);
  return sum;
}

void clear_margins(const Rows& r, float* gathered) {
  for (int64_t p = 0; p < r.pixels; ++p) {
    float* row = gathered + p * r.row;
    std::memset(row, 0, static_cast<size_t>(r.margin) * sizeof(float));
    std::memset(row + r.row - r.margin, 0, static_cast<size_t>(r.margin) * sizeof(float));
  }
}

/// Calls f(p, b, at) for the pixels and channel blocks of a gathering; `at` is its place there.
template <class F>
[[gnu::always_inline]] inline void for_gathered(const Blocked& s, const Rows& r, int64_t pixels,
                                                F f) {
  for (int64_t b = 0; b < s.blocks(); ++b) {
    for (int64_t p = 0; p < pixels; ++p) {
      f(b * s.plane() + p * kBlock, p * r.row + r.margin + b * kBlock);
    }
  }
}

/// Calls f(offset, pixels) for the gatherings of images [n0, n1).
template <class F>
[[gnu::always_inline]] inline void for_gatherings(const Blocked& s, const Rows& r, int64_t n0,
                                                  int64_t n1, F f) {
  const int64_t pixels = s.height * s.width;
  for (int64_t n = n0; n < n1; ++n) {
    for (int64_t p = 0; p < pixels; p += r.pixels) {
      f(n * s.image() + p * kBlock, smaller(r.pixels, pixels - p));
    }
  }
}

Vec denominator(const Law& law, const Rows& r, const float* squares, int64_t at) {
  return law.k + law.alpha * sum_window(squares + at - r.before, r.before + 1 + r.after);
}

// Zero stays zero also where k = 0 makes the quotient 0/0: padding channels must.
Vec zero_where_zero(Vec x, Vec value) {
  return keep(x != zero(), value);
}

void lrn(const Blocked& s, int64_t n0, int64_t n1, int64_t size, float alpha, float beta, float k,
         const float* x, float* y) {
  const Rows r(s, size);
  const Law law{splat(k), splat(alpha / static_cast<float>(size)), splat(beta)};
  alignas(64) float squares[kCapacity];
  clear_margins(r, squares);
  for_gatherings(s, r, n0, n1, [&](int64_t offset, int64_t pixels) {
    for_gathered(s, r, pixels, [&](int64_t i, int64_t at) {
      const Vec v = load(x + offset + i);
      store(squares + at, v * v);
    });
    for_gathered(s, r, pixels, [&](int64_t i, int64_t at) {
      const Vec v = load(x + offset + i);
      const Vec scale = exp(-law.beta * log(denominator(law, r, squares, at)));
      store(y + offset + i, zero_where_zero(v, v * scale));
    });
  });
}

// dx_i = dy_i·d_i^−β − 2αβ/size·x_i·Σ_j dy_j·x_j·d_j^(−β−1) over the j whose window holds i, which
// are [i − after, i + before].
void lrn_backward(const Blocked& s, int64_t n0, int64_t n1, int64_t size, float alpha, float beta,
                  float k, const float* x, const float* dy, float* dx) {
  const Rows r(s, size);
  const Law law{splat(k), splat(alpha / static_cast<float>(size)), splat(beta)};
  const Vec factor = splat(2.0F) * law.alpha * law.beta;
  alignas(64) float squares[kCapacity];
  alignas(64) float terms[kCapacity];
  clear_margins(r, squares);
  clear_margins(r, terms);
  for_gatherings(s, r, n0, n1, [&](int64_t offset, int64_t pixels) {
    for_gathered(s, r, pixels, [&](int64_t i, int64_t at) {
      const Vec v = load(x + offset + i);
      store(squares + at, v * v);
    });
    for_gathered(s, r, pixels, [&](int64_t i, int64_t at) {
      const Vec v = load(x + offset + i);
      const Vec d = denominator(law, r, squares, at);
      const Vec g = load(dy + offset + i) * exp(-law.beta * log(d));
      store(terms + at, zero_where_zero(v, g * v / d));
      store(dx + offset + i, g);
    });
    for_gathered(s, r, pixels, [&](int64_t i, int64_t at) {
      const Vec sum = sum_window(terms + at - r.after, r.before + 1 + r.after);
      const Vec v = load(x + offset + i);
      store(dx + offset + i, load(dx + offset + i) - factor * v * sum);
    });
  });
}

}  // namespace

void fill_lrn(Kernels& kernels) {
  kernels.lrn = lrn;
  kernels.lrn_backward = lrn_backward;
}

}  // namespace convoy::engine::CONVOY_ISA
