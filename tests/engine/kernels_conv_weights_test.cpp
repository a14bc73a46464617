#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/base/random.hpp"
#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::engine {

namespace {

std::string describe(const ConvShape& s) {
  std::ostringstream out;
  out << s.n << "x" << s.ic << "x" << s.ih << "x" << s.iw << " -> " << s.oc << ", kernel " << s.kh
      << "x" << s.kw << ", stride " << s.stride_h << "x" << s.stride_w << ", pad " << s.pad_h << "x"
      << s.pad_w << ", dilation " << s.dilation_h << "x" << s.dilation_w << ", groups " << s.groups
      << (s.plain_input ? ", plain" : "");
  return out.str();
}

constexpr float kUnset = std::numeric_limits<float>::quiet_NaN();

ConvShape shape(int64_t n, int64_t ic, int64_t oc, int64_t h, int64_t w, int64_t kernel,
                int64_t stride, int64_t pad, int64_t dilation = 1, int64_t groups = 1) {
  ConvShape s;
  s.n = n;
  s.ic = ic;
  s.oc = oc;
  s.ih = h;
  s.iw = w;
  s.kh = s.kw = kernel;
  s.stride_h = s.stride_w = stride;
  s.pad_h = s.pad_w = pad;
  s.dilation_h = s.dilation_w = dilation;
  s.groups = groups;
  return s;
}

ConvShape sized(ConvShape s) {
  s.oh = (s.ih + 2 * s.pad_h - (s.kh - 1) * s.dilation_h - 1) / s.stride_h + 1;
  s.ow = (s.iw + 2 * s.pad_w - (s.kw - 1) * s.dilation_w - 1) / s.stride_w + 1;
  return s;
}

ConvShape plain(ConvShape s) {
  s.plain_input = true;
  return s;
}

std::vector<ConvShape> shapes() {
  ConvShape oblong = shape(2, 16, 24, 9, 13, 3, 1, 1);
  oblong.kw = 5;
  oblong.stride_w = 2;
  oblong.pad_w = 3;
  oblong.dilation_h = 2;
  ConvShape oblong_plain = plain(oblong);
  oblong_plain.ic = 3;
  std::vector<ConvShape> all = {
      shape(3, 8, 8, 5, 5, 1, 1, 0),
      shape(2, 64, 64, 7, 7, 1, 1, 0),
      shape(2, 24, 40, 9, 9, 1, 2, 0),
      shape(1, 16, 16, 20, 17, 1, 2, 1),
      shape(5, 16, 16, 8, 8, 3, 1, 1),
      shape(4, 32, 56, 7, 7, 3, 1, 1),
      shape(2, 16, 32, 15, 14, 3, 2, 1),
      shape(1, 8, 24, 30, 31, 3, 1, 1),
      shape(1, 8, 8, 3, 450, 3, 1, 1),
      shape(2, 20, 50, 12, 12, 5, 1, 0),
      shape(2, 3, 20, 12, 11, 5, 1, 2),
      shape(1, 1, 1, 9, 9, 3, 1, 1),
      shape(2, 12, 10, 10, 9, 3, 1, 2, 2),
      shape(2, 50, 20, 6, 6, 3, 2, 5, 2),
      shape(1, 16, 8, 13, 13, 7, 2, 3),
      shape(1, 8, 16, 23, 23, 11, 4, 2),
      shape(2, 8, 8, 2, 2, 5, 1, 4),
      shape(2, 600, 16, 4, 4, 1, 1, 0),
      shape(3, 400, 32, 14, 14, 1, 1, 0),
      shape(2, 200, 40, 29, 29, 3, 2, 1),
      shape(3, 16, 48, 6, 7, 3, 1, 1, 1, 2),
      shape(2, 64, 32, 9, 9, 3, 2, 1, 1, 4),
      shape(2, 24, 24, 9, 8, 3, 1, 1, 1, 24),
      shape(2, 20, 20, 11, 9, 5, 2, 2, 2, 20),
      plain(shape(2, 3, 64, 16, 15, 3, 1, 1)),
      plain(shape(3, 1, 20, 28, 28, 5, 1, 0)),
      plain(shape(2, 3, 24, 31, 29, 7, 2, 3)),
      plain(shape(2, 3, 72, 39, 47, 11, 4, 2)),
      plain(shape(1, 3, 40, 9, 9, 3, 1, 2, 2)),
      plain(shape(2, 2, 8, 7, 250, 5, 1, 4)),
      plain(shape(2, 4, 16, 3, 3, 1, 2, 0)),
      oblong,
      oblong_plain,
  };
  for (ConvShape& s : all) s = sized(s);
  return all;
}

bool depthwise(const ConvShape& s) {
  return s.groups > 1 && s.groups == s.ic;
}
int64_t blocks(int64_t channels) {
  return (channels + kBlock - 1) / kBlock;
}

int64_t x_index(const ConvShape& s, int64_t n, int64_t c, int64_t h, int64_t w) {
  if (s.plain_input) return ((n * s.ic + c) * s.ih + h) * s.iw + w;
  return (((n * blocks(s.ic) + c / 8) * s.ih + h) * s.iw + w) * 8 + c % 8;
}
int64_t dy_index(const ConvShape& s, int64_t n, int64_t c, int64_t h, int64_t w) {
  return (((n * blocks(s.oc) + c / 8) * s.oh + h) * s.ow + w) * 8 + c % 8;
}
/// `i` counts within the group, `o` over all groups.
int64_t dw_index(const ConvShape& s, int64_t o, int64_t i, int64_t kh, int64_t kw) {
  if (depthwise(s)) return ((o / 8 * s.kh + kh) * s.kw + kw) * 8 + o % 8;
  if (s.plain_input) return (((o / 8 * s.kh + kh) * s.kw + kw) * s.ic + i) * 8 + o % 8;
  const int64_t in_blocks = blocks(s.ic / s.groups);
  return (((((o / 8) * in_blocks + i / 8) * s.kh + kh) * s.kw + kw) * 8 + i % 8) * 8 + o % 8;
}
int64_t dw_size(const ConvShape& s) {
  const int64_t inputs =
      depthwise(s) ? 1 : (s.plain_input ? s.ic : blocks(s.ic / s.groups) * kBlock);
  return blocks(s.oc) * kBlock * inputs * s.kh * s.kw;
}

struct Problem {
  ConvShape shape;
  std::vector<float> x, dy;

  explicit Problem(const ConvShape& s) : shape(s) {
    Stream stream(3, Purpose::test);
    x.resize(s.plain_input ? s.n * s.ic * s.ih * s.iw : s.n * blocks(s.ic) * 8 * s.ih * s.iw);
    dy.resize(s.n * blocks(s.oc) * 8 * s.oh * s.ow);
    for (int64_t n = 0; n < s.n; ++n) {
      for (int64_t c = 0; c < s.ic; ++c) {
        for (int64_t p = 0; p < s.ih * s.iw; ++p) {
          x[x_index(s, n, c, p / s.iw, p % s.iw)] = stream.uniform() * 2 - 1;
        }
      }
      for (int64_t c = 0; c < s.oc; ++c) {
        for (int64_t p = 0; p < s.oh * s.ow; ++p) {
          dy[dy_index(s, n, c, p / s.ow, p % s.ow)] = stream.uniform() * 2 - 1;
        }
      }
    }
  }

  double element(int64_t o, int64_t i, int64_t kh, int64_t kw) const {
    const ConvShape& s = shape;
    const int64_t c = o / (s.oc / s.groups) * (s.ic / s.groups) + i;
    double sum = 0;
    for (int64_t n = 0; n < s.n; ++n) {
      for (int64_t oh = 0; oh < s.oh; ++oh) {
        const int64_t h = oh * s.stride_h - s.pad_h + kh * s.dilation_h;
        if (h < 0 || h >= s.ih) continue;
        for (int64_t ow = 0; ow < s.ow; ++ow) {
          const int64_t w = ow * s.stride_w - s.pad_w + kw * s.dilation_w;
          if (w < 0 || w >= s.iw) continue;
          sum += static_cast<double>(x[x_index(s, n, c, h, w)]) * dy[dy_index(s, n, o, oh, ow)];
        }
      }
    }
    return sum;
  }

  std::vector<float> run(const Kernels& kernels, const std::vector<int64_t>& cuts) const {
    std::vector<float> dw(dw_size(shape), kUnset);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      std::vector<float> scratch(kernels.conv_backward_weights_scratch(shape), kUnset);
      kernels.conv_backward_weights(shape, cuts[i], cuts[i + 1], x.data(), dy.data(), dw.data(),
                                    scratch.data());
    }
    return dw;
  }
};

class ConvWeights : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { kernels_ = &select_kernels(GetParam()); }
  const Kernels* kernels_ = nullptr;
};

TEST_P(ConvWeights, GradientIsTheSumOverAllPositions) {
  for (const ConvShape& s : shapes()) {
    SCOPED_TRACE(describe(s));
    ASSERT_TRUE(kernels_->conv_backward_weights_supported(s));
    const Problem problem(s);
    const auto dw = problem.run(*kernels_, {0, blocks(s.oc)});
    std::vector<double> expected(dw.size(), 0.0);  // padding channels have no gradient
    for (int64_t o = 0; o < s.oc; ++o) {
      for (int64_t i = 0; i < s.ic / s.groups; ++i) {
        for (int64_t t = 0; t < s.kh * s.kw; ++t) {
          expected[dw_index(s, o, i, t / s.kw, t % s.kw)] =
              problem.element(o, i, t / s.kw, t % s.kw);
        }
      }
    }
    const double tolerance = 1e-6 * static_cast<double>(s.n * s.oh * s.ow) + 1e-6;
    for (size_t i = 0; i < dw.size(); ++i) ASSERT_NEAR(dw[i], expected[i], tolerance) << i;
  }
}

TEST_P(ConvWeights, BitsDoNotDependOnHowTheBlocksAreCut) {
  for (const ConvShape& s : shapes()) {
    SCOPED_TRACE(describe(s));
    const Problem problem(s);
    const int64_t all = blocks(s.oc);
    const auto whole = problem.run(*kernels_, {0, all});
    for (int64_t cut = 1; cut < all; ++cut) {
      ASSERT_EQ(problem.run(*kernels_, {0, cut, all}), whole) << "cut at block " << cut;
    }
  }
}

TEST_P(ConvWeights, ShapesWithoutAMatchingLayoutAreDeclined) {
  EXPECT_FALSE(
      kernels_->conv_backward_weights_supported(sized(shape(1, 24, 24, 9, 9, 3, 1, 1, 1, 2))));
  EXPECT_FALSE(kernels_->conv_backward_weights_supported(
      sized(plain(shape(1, 16, 16, 9, 9, 3, 1, 1, 1, 2)))));
  EXPECT_FALSE(kernels_->conv_backward_weights_supported(sized(shape(1, 8, 8, 99, 99, 77, 1, 1))));
}

TEST_P(ConvWeights, TransposingBlocksSwapsTheInnerTwoDimensions) {
  std::vector<float> from(3 * 64), to(3 * 64, kUnset);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  kernels_->transpose_blocks(3, from.data(), to.data());
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t i = 0; i < 8; ++i) {
      for (int64_t o = 0; o < 8; ++o) {
        EXPECT_EQ(to[b * 64 + o * 8 + i], from[b * 64 + i * 8 + o]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, ConvWeights, testing::ValuesIn(usable_kernels()),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace convoy::engine
