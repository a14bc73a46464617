#include "convoy/base/philox.hpp"

#include "tests/engine/kernel_testing.hpp"

namespace convoy::engine {
namespace {

using PointwiseKernels = KernelTest;
CONVOY_FOR_EVERY_INSTRUCTION_SET(PointwiseKernels);

// The last is large enough to be stored around the caches.
const std::vector<int64_t> kCounts{8, 24, 32, 40, 1000, (2 << 20) + 8};

TEST_P(PointwiseKernels, ReluCutsBelowZeroAndItsGradientFollowsTheOutput) {
  for (const int64_t n : kCounts) {
    const Floats x = normal(n, 1);
    const Floats dy = normal(n, 2);
    Floats y = garbage(n);
    Floats dx = dy;
    Floats apart = garbage(n);
    kernels().relu(n, x.data(), y.data());
    kernels().relu_backward(n, y.data(), dx.data(), dx.data());
    kernels().relu_backward(n, y.data(), dy.data(), apart.data());
    EXPECT_EQ(dx, apart);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(y[i], std::max(x[i], 0.0F));
      ASSERT_EQ(dx[i], x[i] > 0 ? dy[i] : 0.0F);
    }
  }
}

TEST_P(PointwiseKernels, ReluDoesNotHideABrokenNumber) {
  Floats x = normal(8, 1);
  x[5] = std::nanf("");
  kernels().relu(8, x.data(), x.data());
  EXPECT_TRUE(std::isnan(x[5]));
  EXPECT_FALSE(std::isnan(x[4]));
}

TEST_P(PointwiseKernels, AddsAndAccumulates) {
  for (const int64_t n : kCounts) {
    const Floats a = normal(n, 1);
    const Floats b = normal(n, 2);
    Floats sum = a;
    Floats cut = b;
    Floats total = b;
    Floats apart = garbage(n);
    kernels().add(n, a.data(), b.data(), false, apart.data());
    kernels().add(n, sum.data(), b.data(), false, sum.data());
    kernels().add(n, a.data(), cut.data(), true, cut.data());
    kernels().accumulate(n, a.data(), total.data());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(sum[i], a[i] + b[i]);
      ASSERT_EQ(apart[i], a[i] + b[i]);
      ASSERT_EQ(cut[i], std::max(a[i] + b[i], 0.0F));
      ASSERT_EQ(total[i], a[i] + b[i]);
    }
  }
}

TEST_P(PointwiseKernels, DropoutDrawsTheWordsOfThePhiloxBlocks) {
  const uint64_t key = 0x123456789ABCDEF0;
  for (const int64_t image : {8, 16, 24, 40, 1000}) {
    for (const float rate : {0.0F, 0.1F, 0.5F, 1e-9F}) {
      const int64_t first = (int64_t{5} << 32) + 7;
      const Floats x = normal(3 * image, 3);
      Floats y = garbage(3 * image);
      kernels().dropout(3, image, first, key, rate, x.data(), y.data());
      for (int64_t i = 0; i < 3 * image; ++i) {
        const auto e = static_cast<uint64_t>(i % image);
        const auto sample = static_cast<uint64_t>(first + i / image);
        const auto words =
            philox4x32({static_cast<uint32_t>(e / 4), 0, static_cast<uint32_t>(sample),
                        static_cast<uint32_t>(sample >> 32)},
                       {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
        const bool kept = static_cast<double>(words[e % 4]) >= double{rate} * 4294967296.0;
        const auto k = static_cast<size_t>(i);
        ASSERT_FLOAT_EQ(y[k], kept ? x[k] / (1 - rate) : 0.0F) << image << " " << i;
      }
    }
  }
}

TEST_P(PointwiseKernels, DropoutOfASampleDoesNotDependOnTheRange) {
  const Floats x = normal(4 * 24, 4);
  Floats whole = garbage(4 * 24);
  Floats cut = garbage(4 * 24);
  kernels().dropout(4, 24, 10, 99, 0.4F, x.data(), whole.data());
  kernels().dropout(1, 24, 10, 99, 0.4F, x.data(), cut.data());
  kernels().dropout(3, 24, 11, 99, 0.4F, x.data() + 24, cut.data() + 24);
  EXPECT_EQ(whole, cut);
}

TEST_P(PointwiseKernels, BiasGradientSumsTheMaskedGradient) {
  for (const Blocked& s : shapes()) {
    const Floats y = activation(s, 5);
    const Floats dy = activation(s, 6);
    for (const bool masked : {false, true}) {
      Floats dz = dy;
      Floats d_bias = garbage(s.blocks() * kBlock);
      kernels().bias_backward(s, 0, s.blocks(), masked ? y.data() : nullptr, dz.data(),
                              d_bias.data());
      std::vector<double> sums(d_bias.size());
      for_values(s, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
        const size_t i = at(s, n, c, h, w);
        const float expected = masked && y[i] <= 0 ? 0.0F : dy[i];
        ASSERT_EQ(dz[i], expected);
        sums[static_cast<size_t>(c)] += expected;
      });
      for (size_t c = 0; c < sums.size(); ++c) expect_close(d_bias[c], sums[c], 1e-5, "d_bias");
    }
  }
}

TEST_P(PointwiseKernels, CopiesAnyRangeOfChannelsAndNothingElse) {
  const Blocked sx{3, 20, 3, 5};
  const Blocked sy{3, 37, 3, 5};
  const Floats x = activation(sx, 7);
  const Floats before = activation(sy, 8);
  for (const int64_t from : {0, 3, 8, 13}) {
    for (const int64_t to : {0, 5, 8, 16, 27}) {
      for (const int64_t count : {1, 7, 8, 10, 20}) {
        if (from + count > sx.channels || to + count > sy.channels) continue;
        for (const bool accumulate : {false, true}) {
          Floats y = before;
          kernels().copy_channels(sx, x.data(), from, sy, y.data(), to, count, 1, 3, accumulate);
          expect_activation(sy, y, 0, [&](int64_t n, int64_t c, int64_t h, int64_t w) -> double {
            const float old = before[at(sy, n, c, h, w)];
            if (n < 1 || c < to || c >= to + count) return old;
            const float copied = x[at(sx, n, c - to + from, h, w)];
            return accumulate ? old + copied : copied;
          });
        }
      }
    }
  }
}

TEST_P(PointwiseKernels, BlocksAndUnblocksPlainImages) {
  for (const Blocked& s : shapes()) {
    const Floats plain = normal(s.n * s.channels * s.height * s.width, 9);
    Floats blocked = garbage(s.size());
    kernels().block(s, 0, s.n, plain.data(), blocked.data());
    expect_activation(s, blocked, 0, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
      return plain[static_cast<size_t>(((n * s.channels + c) * s.height + h) * s.width + w)];
    });
    Floats back = garbage(static_cast<int64_t>(plain.size()));
    kernels().unblock(s, 0, s.n, blocked.data(), back.data());
    EXPECT_EQ(back, plain);
  }
}

}  // namespace
}  // namespace convoy::engine
