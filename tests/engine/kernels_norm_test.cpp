#include "tests/engine/kernel_testing.hpp"

namespace convoy::engine {
namespace {

using NormKernels = KernelTest;
CONVOY_FOR_EVERY_INSTRUCTION_SET(NormKernels);

struct Moments {
  double mean = 0;
  double variance = 0;
};

Moments moments(const Blocked& s, const Floats& x, int64_t c) {
  Moments m;
  const double count = static_cast<double>(s.n * s.height * s.width);
  const auto each = [&](auto f) {
    for (int64_t n = 0; n < s.n; ++n) {
      for (int64_t p = 0; p < s.height * s.width; ++p) {
        f(static_cast<double>(x[at(s, n, c, 0, p)]));
      }
    }
  };
  each([&](double v) { m.mean += v / count; });
  each([&](double v) { m.variance += (v - m.mean) * (v - m.mean) / count; });
  return m;
}

TEST_P(NormKernels, StatisticsAreMeanAndBiasedVarianceOfEachChannel) {
  for (const Blocked& s : shapes()) {
    const Floats x = activation(s, 1, 0.5, 2);
    Floats mean = garbage(s.blocks() * kBlock);
    Floats variance = garbage(s.blocks() * kBlock);
    kernels().bn_statistics(s, 0, s.blocks(), x.data(), mean.data(), variance.data());
    for (int64_t c = 0; c < s.blocks() * kBlock; ++c) {
      const Moments m = moments(s, x, c);
      expect_close(mean[static_cast<size_t>(c)], m.mean, 1e-6, "mean");
      expect_close(variance[static_cast<size_t>(c)], m.variance, 2e-6, "variance");
    }
  }
}

TEST_P(NormKernels, StatisticsStayAccurateWhenTheMeanIsFarFromZero) {
  const Blocked s{4, 20, 28, 28};
  const Floats x = activation(s, 2, 3000, 0.5);
  Floats mean = garbage(24);
  Floats variance = garbage(24);
  kernels().bn_statistics(s, 0, s.blocks(), x.data(), mean.data(), variance.data());
  for (int64_t c = 0; c < s.channels; ++c) {
    const Moments m = moments(s, x, c);
    EXPECT_NEAR(mean[static_cast<size_t>(c)], m.mean, 3e-4);
    EXPECT_NEAR(variance[static_cast<size_t>(c)] / m.variance, 1.0, 1e-5);
  }
}

TEST_P(NormKernels, AConstantChannelHasNoVarianceAndABrokenOneIsSeen) {
  const Blocked s{2, 8, 5, 7};
  Floats x(static_cast<size_t>(s.size()), 0.1F);
  x[at(s, 1, 3, 2, 2)] = std::nanf("");
  Floats mean = zeros(8);
  Floats variance = zeros(8);
  kernels().bn_statistics(s, 0, 1, x.data(), mean.data(), variance.data());
  EXPECT_EQ(mean[0], 0.1F);
  EXPECT_EQ(variance[0], 0.0F);
  EXPECT_TRUE(std::isnan(mean[3]));
  EXPECT_TRUE(std::isnan(variance[3]));
}

TEST_P(NormKernels, ForwardScalesShiftsAddsAndCuts) {
  for (const Blocked& s : shapes()) {
    const Floats x = activation(s, 3);
    const Floats residual = activation(s, 4);
    const Floats scale = per_channel(s, 5);
    const Floats shift = per_channel(s, 6);
    for (const bool relu : {false, true}) {
      for (const bool add : {false, true}) {
        Floats y = garbage(s.size());
        kernels().bn_forward(s, 0, s.blocks(), x.data(), scale.data(), shift.data(),
                             add ? residual.data() : nullptr, relu, y.data());
        expect_activation(s, y, 1e-6, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
          const size_t i = at(s, n, c, h, w);
          const auto k = static_cast<size_t>(c);
          const double z = double{scale[k]} * x[i] + shift[k] + (add ? residual[i] : 0.0F);
          return relu ? std::max(z, 0.0) : z;
        });
        Floats in_place = x;
        kernels().bn_forward(s, 0, s.blocks(), in_place.data(), scale.data(), shift.data(),
                             add ? residual.data() : nullptr, relu, in_place.data());
        EXPECT_EQ(in_place, y);
      }
    }
  }
}

struct Backward {
  Blocked s;
  Floats x, y, dy, scale, shift, mean, inv_std;
  explicit Backward(const Blocked& shape)
      : s(shape),
        x(activation(s, 7, 1, 2)),
        y(activation(s, 8)),
        dy(activation(s, 9)),
        scale(per_channel(s, 10)),
        shift(per_channel(s, 11)),
        mean(per_channel(s, 12)),
        inv_std(per_channel(s, 13)) {}
  double dz(Mask mask, size_t i, int64_t c) const {
    const auto k = static_cast<size_t>(c);
    const bool zero = (mask == Mask::output && y[i] <= 0) ||
                      (mask == Mask::recompute && double{scale[k]} * x[i] + shift[k] <= 0);
    return zero ? 0.0 : dy[i];
  }
};

TEST_P(NormKernels, BackwardSumsAreTheGradientsOfShiftAndScale) {
  for (const Blocked& s : shapes()) {
    const Backward b(s);
    for (const Mask mask : {Mask::none, Mask::recompute, Mask::output}) {
      Floats dy = b.dy;
      Floats d_scale = garbage(s.blocks() * kBlock);
      Floats d_shift = garbage(s.blocks() * kBlock);
      kernels().bn_backward_sums(s, 0, s.blocks(), b.x.data(), b.mean.data(), b.inv_std.data(),
                                 b.scale.data(), b.shift.data(), mask,
                                 mask == Mask::output ? b.y.data() : nullptr, dy.data(),
                                 d_scale.data(), d_shift.data());
      std::vector<double> scale_sum(d_scale.size());
      std::vector<double> shift_sum(d_scale.size());
      for_values(s, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
        const size_t i = at(s, n, c, h, w);
        const auto k = static_cast<size_t>(c);
        const double dz = b.dz(mask, i, c);
        shift_sum[k] += dz;
        scale_sum[k] += dz * (double{b.x[i]} - b.mean[k]) * b.inv_std[k];
        ASSERT_EQ(dy[i], mask == Mask::output ? static_cast<float>(dz) : b.dy[i]);
      });
      for (size_t c = 0; c < d_scale.size(); ++c) {
        expect_close(d_shift[c], shift_sum[c], 2e-5, "d_shift");
        expect_close(d_scale[c], scale_sum[c], 2e-4, "d_scale");
      }
    }
  }
}

TEST_P(NormKernels, BackwardCombinesGradientAndInput) {
  for (const Blocked& s : shapes()) {
    const Backward b(s);
    const Floats of_dz = per_channel(s, 14);
    const Floats of_x = per_channel(s, 15);
    const Floats constant = per_channel(s, 16);
    for (const Mask mask : {Mask::none, Mask::recompute}) {
      Floats dx = garbage(s.size());
      kernels().bn_backward(s, 0, s.blocks(), b.x.data(), b.dy.data(), mask, b.scale.data(),
                            b.shift.data(), of_dz.data(), of_x.data(), constant.data(), dx.data());
      expect_activation(s, dx, 3e-6, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
        const size_t i = at(s, n, c, h, w);
        const auto k = static_cast<size_t>(c);
        return of_dz[k] * b.dz(mask, i, c) + double{of_x[k]} * b.x[i] + constant[k];
      });
      Floats in_place = b.dy;
      kernels().bn_backward(s, 0, s.blocks(), b.x.data(), in_place.data(), mask, b.scale.data(),
                            b.shift.data(), of_dz.data(), of_x.data(), constant.data(),
                            in_place.data());
      EXPECT_EQ(in_place, dx);
    }
  }
}

// Beyond some size results are stored around the caches, unless in place.
TEST_P(NormKernels, LargeResultsAreTheSameBits) {
  const Backward b(Blocked{1, 8, 512, 520});
  for (const bool relu : {false, true}) {
    Floats y = garbage(b.s.size());
    Floats in_place = b.x;
    for (Floats* to : {&y, &in_place}) {
      const float* from = to == &y ? b.x.data() : to->data();
      kernels().bn_forward(b.s, 0, 1, from, b.scale.data(), b.shift.data(),
                           relu ? nullptr : b.dy.data(), relu, to->data());
    }
    EXPECT_EQ(y, in_place);
  }
  for (const Mask mask : {Mask::none, Mask::recompute}) {
    Floats dx = garbage(b.s.size());
    Floats in_place = b.dy;
    for (Floats* to : {&dx, &in_place}) {
      const float* from = to == &dx ? b.dy.data() : to->data();
      kernels().bn_backward(b.s, 0, 1, b.x.data(), from, mask, b.scale.data(), b.shift.data(),
                            b.mean.data(), b.inv_std.data(), b.shift.data(), to->data());
    }
    EXPECT_EQ(dx, in_place);
  }
}

TEST_P(NormKernels, CuttingTheChannelsDoesNotChangeTheBits) {
  const Backward b(Blocked{4, 64, 14, 14});
  Floats whole = garbage(64 * 4);
  Floats cut = garbage(64 * 4);
  Floats dy = b.dy;
  const auto run = [&](int64_t b0, int64_t b1, float* out) {
    kernels().bn_statistics(b.s, b0, b1, b.x.data(), out, out + 64);
    kernels().bn_backward_sums(b.s, b0, b1, b.x.data(), b.mean.data(), b.inv_std.data(),
                               b.scale.data(), b.shift.data(), Mask::recompute, nullptr, dy.data(),
                               out + 128, out + 192);
  };
  run(0, 8, whole.data());
  run(0, 3, cut.data());
  run(3, 4, cut.data());
  run(4, 8, cut.data());
  EXPECT_EQ(whole, cut);
}

}  // namespace
}  // namespace convoy::engine
