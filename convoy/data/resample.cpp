#include "convoy/data/resample.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "convoy/base/error.hpp"

// Inlined into each variant, so that it is compiled for that variant's instruction set.
#define CONVOY_BODY [[gnu::always_inline]] inline

// "avx2" does not bring FMA along, and that is meant: both variants give the same bits.
#define CONVOY_AVX2 [[gnu::target("avx2")]]

namespace convoy::data {
namespace {

using Vec = float __attribute__((vector_size(32)));
using Quad = float __attribute__((vector_size(16)));
constexpr int64_t kLanes = 8;

CONVOY_BODY Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
CONVOY_BODY void store(float* p, Vec v) {
  std::memcpy(p, &v, sizeof v);
}
CONVOY_BODY Quad load_quad(const float* p) {
  Quad v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
CONVOY_BODY void store_quad(float* p, Quad v) {
  std::memcpy(p, &v, sizeof v);
}

constexpr int64_t padded(int64_t count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

/// One input row scaled across. Output pixel i is the sum of `taps` input pixels from first[i] on.
struct AcrossArgs {
  const uint8_t* bytes;
  int64_t values;  // bytes to read: columns × channels
  float* row;      // room for them as floats and one quad more
  const int32_t* first;
  const float* weights;
  int64_t taps;
  int64_t outputs;  // a multiple of kLanes
  int64_t channels;
  float* out;  // channels × outputs
};

// Three channels side by side are three of four lanes, so a pixel is one load however the pixels
// wanted are spaced; the fourth lane is the next pixel's and is dropped. Four results are turned
// into four values for each plane.
template <int64_t kTaps>
CONVOY_BODY void across_colours(const AcrossArgs& a) {
  const float* const row = a.row;
  const int64_t taps = kTaps > 0 ? kTaps : a.taps;
  for (int64_t i = 0; i < a.outputs; i += 4) {
    const float* const p0 = row + int64_t{3} * a.first[i];
    const float* const p1 = row + int64_t{3} * a.first[i + 1];
    const float* const p2 = row + int64_t{3} * a.first[i + 2];
    const float* const p3 = row + int64_t{3} * a.first[i + 3];
    const float* const w = a.weights + i * taps;
    Quad s0{};
    Quad s1{};
    Quad s2{};
    Quad s3{};
    for (int64_t t = 0; t < taps; ++t) {
      s0 += w[t] * load_quad(p0 + 3 * t);
      s1 += w[t + taps] * load_quad(p1 + 3 * t);
      s2 += w[t + 2 * taps] * load_quad(p2 + 3 * t);
      s3 += w[t + 3 * taps] * load_quad(p3 + 3 * t);
    }
    const Quad rg01 = __builtin_shufflevector(s0, s1, 0, 4, 1, 5);
    const Quad rg23 = __builtin_shufflevector(s2, s3, 0, 4, 1, 5);
    const Quad bx01 = __builtin_shufflevector(s0, s1, 2, 6, 3, 7);
    const Quad bx23 = __builtin_shufflevector(s2, s3, 2, 6, 3, 7);
    store_quad(a.out + i, __builtin_shufflevector(rg01, rg23, 0, 1, 4, 5));
    store_quad(a.out + i + a.outputs, __builtin_shufflevector(rg01, rg23, 2, 3, 6, 7));
    store_quad(a.out + i + 2 * a.outputs, __builtin_shufflevector(bx01, bx23, 0, 1, 4, 5));
  }
}

CONVOY_BODY void across_gray(const AcrossArgs& a) {
  for (int64_t i = 0; i < a.outputs; ++i) {
    const float* const from = a.row + a.first[i];
    const float* const w = a.weights + i * a.taps;
    float sum = 0;
    for (int64_t t = 0; t < a.taps; ++t) sum += w[t] * from[t];
    a.out[i] = sum;
  }
}

CONVOY_BODY void across_body(const AcrossArgs& given) {
  const AcrossArgs a = given;  // a copy: what is stored below cannot change it
  for (int64_t k = 0; k < a.values; ++k) a.row[k] = static_cast<float>(a.bytes[k]);
  if (a.channels == 1) {
    across_gray(a);
  } else if (a.taps == 2) {
    across_colours<2>(a);
  } else if (a.taps == 3) {
    across_colours<3>(a);
  } else if (a.taps == 4) {
    across_colours<4>(a);
  } else {
    across_colours<0>(a);
  }
}

/// One row of one output plane from `taps` rows scaled across.
struct DownArgs {
  const float* const* rows;
  int64_t offset;  // of the plane in each row
  const float* weights;
  int64_t taps;
  float scale;
  float shift;
  int64_t width;
  float* out;
};

template <int64_t kTaps>
CONVOY_BODY Vec mix(const DownArgs& a, int64_t x) {
  const int64_t taps = kTaps > 0 ? kTaps : a.taps;
  Vec sum{};
  for (int64_t t = 0; t < taps; ++t) sum += a.weights[t] * load(a.rows[t] + a.offset + x);
  return sum * a.scale + a.shift;
}

template <int64_t kTaps>
CONVOY_BODY void down_rows(const DownArgs& given) {
  const DownArgs a = given;  // a copy: what is stored below cannot change it
  int64_t x = 0;
  for (; x + kLanes <= a.width; x += kLanes) store(a.out + x, mix<kTaps>(a, x));
  if (x < a.width) {
    const Vec rest = mix<kTaps>(a, x);  // rows are padded
    std::memcpy(a.out + x, &rest, static_cast<size_t>(a.width - x) * sizeof(float));
  }
}

// Two rows are what enlarging takes, and most of a random-resized-crop enlarges.
CONVOY_BODY void down_body(const DownArgs& a) {
  if (a.taps == 2) {
    down_rows<2>(a);
  } else {
    down_rows<0>(a);
  }
}

CONVOY_BODY Vec clamped(Vec v) {
  const Vec black{};
  const Vec white = black + 255.0F;
  v = v < black ? black : v;
  return v > white ? white : v;
}

CONVOY_BODY Vec grey_of(const std::array<Vec, 3>& v) {
  return v[0] * 0.299F + v[1] * 0.587F + v[2] * 0.114F;
}

/// Planes of one image.
struct JitterArgs {
  Jitter jitter;
  Affine affine;
  int64_t plane;
  float* values;
};

// Eight pixels of all planes, or, at the end, those that are left and black.
template <size_t kChannels, bool kWhole>
CONVOY_BODY std::array<Vec, 3> load_pixels(const JitterArgs& a, int64_t at) {
  std::array<Vec, 3> v{};
  for (size_t c = 0; c < kChannels; ++c) {
    const float* const from = a.values + static_cast<int64_t>(c) * a.plane + at;
    if (kWhole) {
      v[c] = load(from);
    } else {
      std::memcpy(&v[c], from, static_cast<size_t>(a.plane - at) * sizeof(float));
    }
  }
  if (kChannels == 1) v[1] = v[2] = v[0];
  for (Vec& colour : v) colour = clamped(colour * a.jitter.brightness);
  return v;
}

// In pieces of which each lane adds few, then in double: exact enough for any size of image.
template <size_t kChannels>
CONVOY_BODY double grey_sum(const JitterArgs& a) {
  constexpr int64_t kPiece = 128 * kLanes;
  double sum = 0;
  for (int64_t begin = 0; begin < a.plane; begin += kPiece) {
    Vec part{};
    const int64_t end = std::min(a.plane, begin + kPiece);
    int64_t at = begin;
    for (; at + kLanes <= end; at += kLanes) part += grey_of(load_pixels<kChannels, true>(a, at));
    if (at < end) part += grey_of(load_pixels<kChannels, false>(a, at));
    for (int64_t lane = 0; lane < kLanes; ++lane) sum += static_cast<double>(part[lane]);
  }
  return sum;
}

template <size_t kChannels, bool kWhole>
CONVOY_BODY void jitter_pixels(const JitterArgs& a, float base, int64_t at) {
  const float saturation = a.jitter.saturation;
  std::array<Vec, 3> v = load_pixels<kChannels, kWhole>(a, at);
  for (Vec& colour : v) colour = clamped(colour * a.jitter.contrast + base);
  const Vec grey = grey_of(v) * (1 - saturation);
  for (size_t c = 0; c < kChannels; ++c) {
    const Vec changed = clamped(v[c] * saturation + grey);
    const Vec result = changed * a.affine.scale[c] + a.affine.shift[c];
    float* const to = a.values + static_cast<int64_t>(c) * a.plane + at;
    if (kWhole) {
      store(to, result);
    } else {
      std::memcpy(to, &result, static_cast<size_t>(a.plane - at) * sizeof(float));
    }
  }
}

template <size_t kChannels>
CONVOY_BODY void jitter_body(const JitterArgs& given) {
  const JitterArgs a = given;  // a copy: what is stored below cannot change it
  const float contrast = a.jitter.contrast;
  const float mean =
      contrast == 1 ? 0 : static_cast<float>(grey_sum<kChannels>(a) / static_cast<double>(a.plane));
  const float base = (1 - contrast) * mean;
  int64_t at = 0;
  for (; at + kLanes <= a.plane; at += kLanes) jitter_pixels<kChannels, true>(a, base, at);
  if (at < a.plane) jitter_pixels<kChannels, false>(a, base, at);
}

// NOLINTBEGIN(bugprone-macro-parentheses): `attribute` is one
#define CONVOY_VARIANT(name, attribute)                                             \
  struct name {                                                                     \
    attribute static void across(const AcrossArgs& a) { across_body(a); }           \
    attribute static void down(const DownArgs& a) { down_body(a); }                 \
    attribute static void jitter_gray(const JitterArgs& a) { jitter_body<1>(a); }   \
    attribute static void jitter_colour(const JitterArgs& a) { jitter_body<3>(a); } \
    static Loops loops() { return {across, down, jitter_gray, jitter_colour}; }     \
  }
// NOLINTEND(bugprone-macro-parentheses)

struct Loops {
  void (*across)(const AcrossArgs&);
  void (*down)(const DownArgs&);
  void (*jitter_gray)(const JitterArgs&);
  void (*jitter_colour)(const JitterArgs&);
};

CONVOY_VARIANT(Baseline, );
CONVOY_VARIANT(Avx2, CONVOY_AVX2);

Loops best_loops() {
  return __builtin_cpu_supports("avx2") != 0 ? Avx2::loops() : Baseline::loops();
}

void grow(std::vector<float>& room, int64_t size) {
  if (room.size() < static_cast<size_t>(size)) room.resize(static_cast<size_t>(size));
}

}  // namespace

void Resampler::compute(double origin, double extent, int32_t input, int32_t output, Taps& taps) {
  const double step = extent / output;
  const double support = std::max(1.0, step);
  const auto low = static_cast<int32_t>(std::max(0.0, std::floor(origin)));
  const auto high = static_cast<int32_t>(std::min<double>(input, std::ceil(origin + extent)));
  check(low < high && output > 0, "a region that is resampled has pixels");
  const auto range = [&](int32_t i) {
    const double centre = origin + (i + 0.5) * step;
    return std::pair{std::max(low, static_cast<int32_t>(std::floor(centre - support + 0.5))),
                     std::min(high, static_cast<int32_t>(std::ceil(centre + support - 0.5)))};
  };
  taps.low = low;
  taps.high = high;
  taps.count = 1;
  for (int32_t i = 0; i < output; ++i) {
    const auto [begin, end] = range(i);
    taps.count = std::max(taps.count, end - begin);
  }
  const auto outputs = static_cast<size_t>(padded(output));
  const auto count = static_cast<size_t>(taps.count);
  taps.first.assign(outputs, 0);
  taps.weights.assign(outputs * count, 0);
  for (int32_t i = 0; i < output; ++i) {
    const auto [begin, end] = range(i);
    const double centre = origin + (i + 0.5) * step;
    double sum = 0;
    for (int32_t k = begin; k < end; ++k) {
      sum += std::max(0.0, 1 - std::abs(k + 0.5 - centre) / support);
    }
    // All `count` taps must lie within the region, also those of weight 0.
    const int32_t first = std::min(begin, high - taps.count);
    taps.first[static_cast<size_t>(i)] = first - low;
    for (int32_t k = begin; k < end; ++k) {
      const double weight = std::max(0.0, 1 - std::abs(k + 0.5 - centre) / support) / sum;
      taps.weights[static_cast<size_t>(i) * count + static_cast<size_t>(k - first)] =
          static_cast<float>(weight);
    }
  }
}

void Resampler::reverse(int32_t output, Taps& taps) {
  const auto count = static_cast<ptrdiff_t>(taps.count);
  std::reverse(taps.first.begin(), taps.first.begin() + output);
  for (ptrdiff_t i = 0, j = output - 1; i < j; ++i, --j) {
    std::swap_ranges(taps.weights.begin() + i * count, taps.weights.begin() + (i + 1) * count,
                     taps.weights.begin() + j * count);
  }
}

void Resampler::resample(const Decoded& decoded, Size size, bool mirror, const Affine& affine,
                         std::span<float> out) {
  const Pixels& pixels = decoded.pixels;
  const int64_t channels = pixels.channels;
  check(static_cast<int64_t>(out.size()) == channels * size.height * size.width,
        "an image is resampled to room of its size");
  compute(decoded.left, decoded.across, pixels.width, size.width, across_);
  if (mirror) reverse(size.width, across_);
  compute(decoded.top, decoded.down, pixels.height, size.height, down_);
  const Loops run = vectors_ ? best_loops() : Baseline::loops();
  const int64_t outputs = padded(size.width);
  const int64_t values = (across_.high - across_.low) * channels;
  const int64_t taps = down_.count;
  grow(row_, values + 4);
  grow(ring_, taps * channels * outputs);
  rows_.resize(static_cast<size_t>(taps));
  const auto slot = [&](int64_t row) { return ring_.data() + row % taps * channels * outputs; };

  int64_t ready = 0;  // input rows of the region scaled across so far
  for (int64_t y = 0; y < size.height; ++y) {
    const int64_t first = down_.first[static_cast<size_t>(y)];
    for (; ready < first + taps; ++ready) {
      run.across({.bytes = pixels.row(down_.low + ready) + across_.low * channels,
                  .values = values,
                  .row = row_.data(),
                  .first = across_.first.data(),
                  .weights = across_.weights.data(),
                  .taps = across_.count,
                  .outputs = outputs,
                  .channels = channels,
                  .out = slot(ready)});
    }
    for (int64_t t = 0; t < taps; ++t) rows_[static_cast<size_t>(t)] = slot(first + t);
    for (int64_t c = 0; c < channels; ++c) {
      run.down({.rows = rows_.data(),
                .offset = c * outputs,
                .weights = down_.weights.data() + y * taps,
                .taps = taps,
                .scale = affine.scale[static_cast<size_t>(c)],
                .shift = affine.shift[static_cast<size_t>(c)],
                .width = size.width,
                .out = out.data() + (c * size.height + y) * size.width});
    }
  }
}

void apply(const Jitter& jitter, const Affine& affine, int channels, std::span<float> planes) {
  check((channels == 1 || channels == 3) && planes.size() % static_cast<size_t>(channels) == 0,
        "there are one or three planes of equal size");
  const JitterArgs args{.jitter = jitter,
                        .affine = affine,
                        .plane = static_cast<int64_t>(planes.size()) / channels,
                        .values = planes.data()};
  const Loops run = best_loops();
  (channels == 1 ? run.jitter_gray : run.jitter_colour)(args);
}

}  // namespace convoy::data
