#include "convoy/data/resample.hpp"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/images.hpp"

namespace convoy::data {
namespace {

using testing::Each;
using testing::FloatNear;

Decoded whole(const Picture& p) {
  return {.pixels = p.pixels(),
          .left = 0,
          .top = 0,
          .across = static_cast<double>(p.width),
          .down = static_cast<double>(p.height)};
}

// The definition in the header, pixel by pixel.
std::vector<double> weights(double origin, double extent, int32_t input, int32_t size, int32_t i) {
  const double s = extent / size;
  const double centre = origin + (i + 0.5) * s;
  std::vector<double> w(static_cast<size_t>(input));
  double sum = 0;
  for (int32_t k = 0; k < input; ++k) {
    if (k + 1 <= origin || k >= origin + extent) continue;
    w[static_cast<size_t>(k)] = std::max(0.0, 1 - std::abs(k + 0.5 - centre) / std::max(1.0, s));
    sum += w[static_cast<size_t>(k)];
  }
  for (double& one : w) one /= sum;
  return w;
}

double defined(const Decoded& d, Size size, int32_t y, int32_t x, int32_t c) {
  const auto down = weights(d.top, d.down, d.pixels.height, size.height, y);
  const auto across = weights(d.left, d.across, d.pixels.width, size.width, x);
  double sum = 0;
  for (int32_t i = 0; i < d.pixels.height; ++i) {
    for (int32_t k = 0; k < d.pixels.width; ++k) {
      sum += down[static_cast<size_t>(i)] * across[static_cast<size_t>(k)] *
             d.pixels.row(i)[k * d.pixels.channels + c];
    }
  }
  return sum;
}

struct Case {
  int32_t width, height;
  double left, top, across, down;
  Size size;
};
size_t floats(int32_t channels, Size size) {
  return static_cast<size_t>(channels) * static_cast<size_t>(size.height) *
         static_cast<size_t>(size.width);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {16, 16, 0, 0, 16, 16, {16, 16}},
      {10, 7, 0, 0, 10, 7, {13, 29}},
      {40, 33, 0, 0, 40, 33, {9, 7}},
      {40, 33, 3.5, 2.25, 30.125, 20, {8, 17}},
      {40, 33, 39, 32, 1, 1, {5, 6}},
      {1, 1, 0, 0, 1, 1, {4, 4}},
      {23, 50, 1.125, 0.875, 20, 48, {1, 1}},
      {64, 3, 0.5, 0, 63.5, 3, {2, 100}},
      {30, 30, 10.75, 11.25, 2.5, 3.75, {24, 24}},
  };
  return all;
}

TEST(Resample, FollowsItsDefinition) {
  Resampler resampler;  // one for all: nothing is left over from earlier images
  for (const Case& k : cases()) {
    for (const int32_t channels : {1, 3}) {
      const Picture p = picture(k.width, k.height, channels);
      const Decoded d{p.pixels(), k.left, k.top, k.across, k.down};
      const Affine affine{.scale = {0.5F, -2.0F, 3.0F}, .shift = {1.0F, 2.0F, -3.0F}};
      for (const bool mirror : {false, true}) {
        std::vector<float> out(floats(channels, k.size));
        resampler.resample(d, k.size, mirror, affine, out);
        for (int32_t c = 0; c < channels; ++c) {
          for (int32_t y = 0; y < k.size.height; ++y) {
            for (int32_t x = 0; x < k.size.width; ++x) {
              const int32_t from = mirror ? k.size.width - 1 - x : x;
              const auto a = static_cast<size_t>(c);
              const double expected =
                  defined(d, k.size, y, from, c) * affine.scale[a] + affine.shift[a];
              const float found =
                  out[static_cast<size_t>((int64_t{c} * k.size.height + y) * k.size.width + x)];
              ASSERT_NEAR(found, expected, 1e-3)
                  << k.width << "×" << k.height << " to " << k.size.width << "×" << k.size.height
                  << " at (" << y << ", " << x << "), channel " << c;
            }
          }
        }
      }
    }
  }
}

TEST(Resample, SameSizeChangesNothing) {
  const Picture p = picture(31, 17, 3);
  std::vector<float> out(p.bytes.size());
  Resampler().resample(whole(p), {17, 31}, false, {}, out);
  for (int32_t i = 0; i < 17 * 31 * 3; ++i) {
    const int32_t c = i / (17 * 31);
    EXPECT_EQ(out[static_cast<size_t>(i)], p.at(i / 31 % 17, i % 31, c));
  }
}

TEST(Resample, NeverLooksBeyondItsRegion) {
  Picture p = picture(40, 40, 3);
  for (int32_t y = 0; y < 40; ++y) {
    for (int32_t x = 0; x < 40; ++x) {
      const bool inside = x >= 10 && x < 30 && y >= 15 && y < 25;
      for (int32_t c = 0; c < 3; ++c) {
        p.bytes[static_cast<size_t>((int64_t{y} * 40 + x) * 3 + c)] = inside ? 100 : 255;
      }
    }
  }
  for (const Size size : {Size{30, 50}, Size{3, 4}}) {
    std::vector<float> out(floats(3, size));
    Resampler().resample({p.pixels(), 10, 15, 20, 10}, size, false, {}, out);
    EXPECT_THAT(out, Each(FloatNear(100, 1e-3F)));
  }
}

TEST(Resample, HasTheSameBitsWithAndWithoutVectors) {
  for (const Case& k : cases()) {
    for (const int32_t channels : {1, 3}) {
      const Picture p = picture(k.width, k.height, channels, 5);
      const Decoded d{p.pixels(), k.left, k.top, k.across, k.down};
      const Affine affine{.scale = {0.017F, 0.018F, 0.019F}, .shift = {-2.1F, -2.0F, -1.8F}};
      std::vector<float> plain(floats(channels, k.size));
      std::vector<float> vectors(plain.size());
      Resampler(false).resample(d, k.size, true, affine, plain);
      Resampler(true).resample(d, k.size, true, affine, vectors);
      EXPECT_EQ(plain, vectors);
    }
  }
}

// ---- jitter -------------------------------------------------------------------------------------

double clamp255(double v) {
  return std::clamp(v, 0.0, 255.0);
}

TEST(Jitter, FollowsItsDefinition) {
  for (const size_t channels : {size_t{1}, size_t{3}}) {
    for (const size_t plane : {size_t{5}, size_t{64}, size_t{1029}}) {
      const Picture p = picture(static_cast<int32_t>(plane), static_cast<int32_t>(channels), 1);
      for (const Jitter& j : {Jitter{}, Jitter{1.4F, 1, 1}, Jitter{1, 0.6F, 1}, Jitter{1, 1, 1.5F},
                              Jitter{0.7F, 1.4F, 0.3F}, Jitter{1.9F, 1.9F, 1.9F}}) {
        std::vector<float> values(p.bytes.begin(), p.bytes.end());
        const Affine affine{.scale = {0.5F, 2.0F, 1.0F}, .shift = {1.0F, 0.0F, -7.0F}};
        std::vector<std::vector<double>> v(3, std::vector<double>(plane));
        double mean = 0;
        for (size_t i = 0; i < plane; ++i) {
          for (size_t c = 0; c < 3; ++c) {
            v[c][i] = clamp255(double{j.brightness} * values[c % channels * plane + i]);
          }
          mean +=
              (0.299 * v[0][i] + 0.587 * v[1][i] + 0.114 * v[2][i]) / static_cast<double>(plane);
        }
        apply(j, affine, static_cast<int>(channels), values);
        for (size_t i = 0; i < plane; ++i) {
          for (size_t c = 0; c < 3; ++c) {
            v[c][i] = clamp255(double{j.contrast} * v[c][i] + (1 - double{j.contrast}) * mean);
          }
          const double grey = 0.299 * v[0][i] + 0.587 * v[1][i] + 0.114 * v[2][i];
          for (size_t c = 0; c < channels; ++c) {
            const double changed =
                clamp255(double{j.saturation} * v[c][i] + (1 - double{j.saturation}) * grey);
            ASSERT_NEAR(values[c * plane + i], changed * affine.scale[c] + affine.shift[c], 2e-3);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace convoy::data
