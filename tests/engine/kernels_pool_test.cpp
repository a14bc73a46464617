#include "tests/engine/kernel_testing.hpp"

namespace convoy::engine {
namespace {

using PoolKernels = KernelTest;
CONVOY_FOR_EVERY_INSTRUCTION_SET(PoolKernels);

/// A square pooling; the output is as large as windows that begin inside the padded input allow
/// (`up`), or as those that fit.
PoolShape pool(const Blocked& in, int64_t kernel, int64_t stride, int64_t pad, bool up = false) {
  PoolShape s{.in = in};
  s.kernel_h = s.kernel_w = kernel;
  s.stride_h = s.stride_w = stride;
  s.pad_h = s.pad_w = pad;
  const auto outputs = [&](int64_t extent) {
    int64_t out = (extent + 2 * pad - kernel + (up ? stride - 1 : 0)) / stride + 1;
    if (up && (out - 1) * stride >= extent + pad) --out;
    return out;
  };
  s.out_height = outputs(in.height);
  s.out_width = outputs(in.width);
  return s;
}

Blocked output(const PoolShape& s) {
  return {s.in.n, s.in.channels, s.out_height, s.out_width};
}

std::vector<PoolShape> poolings() {
  std::vector<PoolShape> all;
  for (const bool up : {false, true}) {
    for (const Blocked& in : {Blocked{2, 3, 5, 7}, Blocked{1, 20, 14, 14}, Blocked{3, 8, 9, 8}}) {
      all.push_back(pool(in, 2, 2, 0, up));
      all.push_back(pool(in, 3, 2, 0, up));
      all.push_back(pool(in, 3, 2, 1, up));
      all.push_back(pool(in, 3, 1, 1, up));
      all.push_back(pool(in, 2, 1, 0, up));
      all.push_back(pool(in, 2, 3, 1, up));
      all.push_back(pool(in, 3, 3, 0, up));
      all.push_back(pool(in, 5, 4, 2, up));
    }
    all.push_back(pool({2, 64, 28, 28}, 3, 2, 1, up));
    all.push_back(pool({2, 64, 28, 28}, 2, 2, 0, up));
    all.push_back(pool({1, 1, 1, 1}, 3, 2, 1, up));
    all.push_back(pool({4, 8, 2, 2}, 3, 2, 1, up));
  }
  PoolShape oblong = pool({2, 3, 9, 11}, 2, 2, 0);
  oblong.kernel_w = 3;
  oblong.stride_w = 1;
  oblong.pad_w = 1;
  oblong.out_width = 11;
  all.push_back(oblong);
  oblong.kernel_h = oblong.stride_h = 4;
  oblong.out_height = 3;
  all.push_back(oblong);
  PoolShape tiles = pool({2, 3, 9, 11}, 2, 2, 0);
  tiles.kernel_w = tiles.stride_w = 5;
  tiles.out_width = 3;
  all.push_back(tiles);
  return all;
}

/// Calls f(ih, iw, position) for the values of a window that lie inside the input.
template <class F>
void for_window(const PoolShape& s, int64_t oh, int64_t ow, F f) {
  for (int64_t i = 0; i < s.kernel_h; ++i) {
    for (int64_t j = 0; j < s.kernel_w; ++j) {
      const int64_t ih = oh * s.stride_h - s.pad_h + i;
      const int64_t iw = ow * s.stride_w - s.pad_w + j;
      if (ih >= 0 && ih < s.in.height && iw >= 0 && iw < s.in.width) {
        f(ih, iw, i * s.kernel_w + j);
      }
    }
  }
}

TEST_P(PoolKernels, MaxPoolFindsTheFirstLargestValueOfEachWindow) {
  for (const PoolShape& s : poolings()) {
    const Blocked out = output(s);
    Floats x = activation(s.in, 1, -1);
    for (float& v : x) v = std::round(v * 2);  // so that there are ties
    Floats y = garbage(out.size());
    Floats alone = garbage(out.size());
    Bytes argmax(y.size());
    kernels().max_pool(s, 0, out.n, x.data(), y.data(), argmax.data());
    kernels().max_pool(s, 0, out.n, x.data(), alone.data(), nullptr);
    EXPECT_EQ(y, alone);
    expect_activation(out, y, 0, [&](int64_t n, int64_t c, int64_t oh, int64_t ow) {
      double best = -1e30;
      int64_t where = -1;
      for_window(s, oh, ow, [&](int64_t ih, int64_t iw, int64_t position) {
        const double v = x[at(s.in, n, c, ih, iw)];
        if (v > best) where = position;
        best = std::max(best, v);
      });
      EXPECT_EQ(argmax[at(out, n, c, oh, ow)], where);
      return best;
    });
  }
}

TEST_P(PoolKernels, MaxPoolDoesNotHideABrokenNumber) {
  for (const int64_t kernel : {2, 3, 4}) {
    const PoolShape s = pool({1, 8, 12, 12}, kernel, kernel, 0);
    Floats x = activation(s.in, 1);
    x[at(s.in, 0, 2, 0, 0)] = std::nanf("");
    x[at(s.in, 0, 3, kernel - 1, kernel - 1)] = std::nanf("");
    Floats y = garbage(output(s).size());
    kernels().max_pool(s, 0, 1, x.data(), y.data(), nullptr);
    EXPECT_FALSE(std::isnan(y[0]));
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_TRUE(std::isnan(y[3]));
  }
}

TEST_P(PoolKernels, MaxPoolGradientGoesToTheLargestValue) {
  for (const PoolShape& s : poolings()) {
    const Blocked out = output(s);
    const Floats x = activation(s.in, 2);
    const Floats dy = activation(out, 3);
    Floats y = garbage(out.size());
    Bytes argmax(y.size());
    kernels().max_pool(s, 0, out.n, x.data(), y.data(), argmax.data());
    for (const bool relu : {false, true}) {
      std::vector<double> expected(x.size());
      for_values(out, [&](int64_t n, int64_t c, int64_t oh, int64_t ow) {
        const size_t o = at(out, n, c, oh, ow);
        if (relu && y[o] <= 0) return;
        for_window(s, oh, ow, [&](int64_t ih, int64_t iw, int64_t position) {
          if (argmax[o] == position) expected[at(s.in, n, c, ih, iw)] += dy[o];
        });
      });
      Floats dx = garbage(s.in.size());
      kernels().max_pool_backward(s, 0, out.n, dy.data(), argmax.data(), relu ? y.data() : nullptr,
                                  dx.data());
      expect_activation(s.in, dx, 1e-6, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
        return expected[at(s.in, n, c, h, w)];
      });
    }
  }
}

double counted(const PoolShape& s, int64_t oh, int64_t ow) {
  if (s.count_padding) {
    const int64_t top = oh * s.stride_h - s.pad_h;
    const int64_t left = ow * s.stride_w - s.pad_w;
    return static_cast<double>((std::min(top + s.kernel_h, s.in.height + s.pad_h) - top) *
                               (std::min(left + s.kernel_w, s.in.width + s.pad_w) - left));
  }
  double count = 0;
  for_window(s, oh, ow, [&](int64_t, int64_t, int64_t) { ++count; });
  return count;
}

TEST_P(PoolKernels, AveragePoolAndItsGradientShareAlike) {
  for (PoolShape s : poolings()) {
    for (const bool count_padding : {false, true}) {
      s.count_padding = count_padding;
      const Blocked out = output(s);
      const Floats x = activation(s.in, 4);
      const Floats dy = activation(out, 5);
      Floats y = garbage(out.size());
      kernels().average_pool(s, 0, out.n, x.data(), y.data());
      std::vector<double> expected(x.size());
      expect_activation(out, y, 2e-6, [&](int64_t n, int64_t c, int64_t oh, int64_t ow) {
        double sum = 0;
        for_window(s, oh, ow, [&](int64_t ih, int64_t iw, int64_t) {
          sum += x[at(s.in, n, c, ih, iw)];
          expected[at(s.in, n, c, ih, iw)] += dy[at(out, n, c, oh, ow)] / counted(s, oh, ow);
        });
        return sum / counted(s, oh, ow);
      });
      Floats dx = garbage(s.in.size());
      kernels().average_pool_backward(s, 0, out.n, dy.data(), dx.data());
      expect_activation(s.in, dx, 2e-6, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
        return expected[at(s.in, n, c, h, w)];
      });
    }
  }
}

TEST_P(PoolKernels, GlobalPoolIsTheMeanOfEachPlane) {
  for (const Blocked& s : shapes()) {
    const Blocked out{s.n, s.channels};
    const double pixels = static_cast<double>(s.height * s.width);
    const Floats x = activation(s, 6, 2);
    const Floats dy = activation(out, 7);
    Floats y = garbage(out.size());
    Floats dx = garbage(s.size());
    kernels().global_pool(s, 0, s.n, x.data(), y.data());
    kernels().global_pool_backward(s, 0, s.n, dy.data(), dx.data());
    expect_activation(out, y, 1e-6, [&](int64_t n, int64_t c, int64_t, int64_t) {
      double sum = 0;
      for (int64_t p = 0; p < s.height * s.width; ++p) sum += x[at(s, n, c, 0, p)];
      return sum / pixels;
    });
    expect_activation(s, dx, 1e-6, [&](int64_t n, int64_t c, int64_t, int64_t) {
      return dy[at(out, n, c, 0, 0)] / pixels;
    });
  }
}

TEST_P(PoolKernels, OnlyTheAskedImagesAreWritten) {
  const PoolShape s = pool({4, 8, 8, 8}, 2, 2, 0);
  const Blocked out = output(s);
  const Floats x = activation(s.in, 1);
  Floats whole = garbage(out.size());
  Floats cut = garbage(out.size());
  kernels().max_pool(s, 0, 4, x.data(), whole.data(), nullptr);
  kernels().max_pool(s, 1, 3, x.data(), cut.data(), nullptr);
  EXPECT_EQ(cut[0], 12345.0F);
  EXPECT_EQ(cut.back(), 12345.0F);
  kernels().max_pool(s, 0, 1, x.data(), cut.data(), nullptr);
  kernels().max_pool(s, 3, 4, x.data(), cut.data(), nullptr);
  EXPECT_EQ(whole, cut);
}

// Beyond some size results are stored around the caches.
TEST_P(PoolKernels, LargeGradientsAreTheSameBitsAsThoseOfSingleImages) {
  for (const PoolShape& s : {pool({9, 8, 180, 181}, 2, 2, 0), pool({9, 8, 180, 181}, 3, 2, 1)}) {
    const Blocked out = output(s);
    const Floats x = activation(s.in, 1);
    Floats y = garbage(out.size());
    Bytes argmax(y.size());
    kernels().max_pool(s, 0, out.n, x.data(), y.data(), argmax.data());
    PoolShape single = s;
    single.in.n = 1;
    Floats whole = garbage(s.in.size());
    Floats apart = garbage(s.in.size());
    kernels().max_pool_backward(s, 0, out.n, y.data(), argmax.data(), nullptr, whole.data());
    for (int64_t n = 0; n < out.n; ++n) {
      kernels().max_pool_backward(single, 0, 1, y.data() + n * out.image(),
                                  argmax.data() + n * out.image(), nullptr,
                                  apart.data() + n * s.in.image());
    }
    EXPECT_EQ(whole, apart);
  }
}

struct Lrn {
  int64_t size;
  double alpha;
  double beta;
  double k;
  double denominator(const Blocked& s, const Floats& x, int64_t n, int64_t c, int64_t h,
                     int64_t w) const {
    double sum = 0;
    for (int64_t j = c - size / 2; j <= c + (size - 1) / 2; ++j) {
      if (j < 0 || j >= s.channels) continue;
      const double v = x[at(s, n, j, h, w)];
      sum += v * v;
    }
    return k + alpha / static_cast<double>(size) * sum;
  }
};

const std::vector<Lrn> kLaws{
    {5, 1e-4, 0.75, 2}, {3, 0.5, 0.75, 1}, {4, 2, 0.3, 1}, {1, 1, 0.5, 1}, {21, 1, 1, 0.5}};

TEST_P(PoolKernels, LrnDividesByThePowerOfTheNeighbours) {
  for (const Blocked& s : shapes()) {
    const Floats x = activation(s, 8, 0, 3);
    for (const Lrn& law : kLaws) {
      Floats y = garbage(s.size());
      kernels().lrn(s, 0, s.n, law.size, static_cast<float>(law.alpha),
                    static_cast<float>(law.beta), static_cast<float>(law.k), x.data(), y.data());
      expect_activation(s, y, 2e-6, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
        return x[at(s, n, c, h, w)] / std::pow(law.denominator(s, x, n, c, h, w), law.beta);
      });
    }
  }
}

TEST_P(PoolKernels, LrnSpreadsABrokenNumberToTheWindowsItIsIn) {
  const Blocked s{1, 8};
  Floats x = activation(s, 8);
  x[3] = std::nanf("");
  Floats y = garbage(8);
  kernels().lrn(s, 0, 1, 3, 1, 0.75F, 1, x.data(), y.data());
  for (size_t c = 0; c < 8; ++c) EXPECT_EQ(std::isnan(y[c]), c >= 2 && c <= 4) << c;
}

TEST_P(PoolKernels, LrnGradientCountsEveryWindowAChannelIsIn) {
  for (const Blocked& s : {Blocked{2, 3, 5, 7}, Blocked{1, 20, 3, 3}, Blocked{1, 64, 14, 14}}) {
    const Floats x = activation(s, 9, 0, 3);
    const Floats dy = activation(s, 10);
    for (const Lrn& law : kLaws) {
      Floats dx = garbage(s.size());
      kernels().lrn_backward(s, 0, s.n, law.size, static_cast<float>(law.alpha),
                             static_cast<float>(law.beta), static_cast<float>(law.k), x.data(),
                             dy.data(), dx.data());
      expect_activation(s, dx, 5e-6, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
        double sum = 0;
        for (int64_t j = 0; j < s.channels; ++j) {
          if (c < j - law.size / 2 || c > j + (law.size - 1) / 2) continue;
          const size_t i = at(s, n, j, h, w);
          sum += double{dy[i]} * x[i] * std::pow(law.denominator(s, x, n, j, h, w), -law.beta - 1);
        }
        const size_t i = at(s, n, c, h, w);
        return dy[i] * std::pow(law.denominator(s, x, n, c, h, w), -law.beta) -
               2 * law.alpha * law.beta / static_cast<double>(law.size) * x[i] * sum;
      });
    }
  }
}

}  // namespace
}  // namespace convoy::engine
