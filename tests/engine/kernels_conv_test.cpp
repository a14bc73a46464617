#include "tests/engine/kernel_testing.hpp"

namespace convoy::engine {
namespace {

class ConvKernelTest : public KernelTest {};

ConvShape square(int64_t n, int64_t ic, int64_t size, int64_t oc, int64_t kernel, int64_t stride,
                 int64_t pad, int64_t dilation = 1) {
  ConvShape s;
  s.n = n;
  s.ic = ic, s.ih = size, s.iw = size + 1;  // not quite square, to tell rows from columns
  s.oc = oc;
  s.kh = s.kw = kernel;
  s.stride_h = s.stride_w = stride;
  s.pad_h = s.pad_w = pad;
  s.dilation_h = s.dilation_w = dilation;
  const int64_t extent = (kernel - 1) * dilation + 1;
  s.oh = (s.ih + 2 * pad - extent) / stride + 1;
  s.ow = (s.iw + 2 * pad - extent) / stride + 1;
  return s;
}

Blocked output(const ConvShape& s) {
  return {s.n, s.oc, s.oh, s.ow};
}
Blocked input(const ConvShape& s) {
  return {s.n, s.ic, s.ih, s.iw};
}

/// Calls f(output row, output column, tap row, tap column) for all taps that read (y, x).
template <class F>
void for_taps(const ConvShape& s, F f) {
  for (int64_t oy = 0; oy < s.oh; ++oy) {
    for (int64_t ox = 0; ox < s.ow; ++ox) {
      for (int64_t kh = 0; kh < s.kh; ++kh) {
        for (int64_t kw = 0; kw < s.kw; ++kw) {
          const int64_t y = oy * s.stride_h - s.pad_h + kh * s.dilation_h;
          const int64_t x = ox * s.stride_w - s.pad_w + kw * s.dilation_w;
          if (y >= 0 && y < s.ih && x >= 0 && x < s.iw) f(oy, ox, kh, kw, y, x);
        }
      }
    }
  }
}

/// Ohwi8o of oc × ic × kh × kw, padding zero.
Floats input_weights(const ConvShape& s, uint64_t seed) {
  Stream random(seed, Purpose::test);
  Floats w = zeros(round_up(s.oc, kBlock) * s.kh * s.kw * s.ic);
  for (int64_t o = 0; o < s.oc; ++o) {
    for (int64_t t = 0; t < s.kh * s.kw * s.ic; ++t) {
      w[static_cast<size_t>((o / kBlock * s.kh * s.kw * s.ic + t) * kBlock + o % kBlock)] =
          random.normal();
    }
  }
  return w;
}

TEST_P(ConvKernelTest, ForwardOfPlainInputMatchesTheDefinition) {
  for (const ConvShape& s : {square(2, 3, 35, 16, 11, 4, 2), square(1, 1, 12, 20, 5, 1, 0),
                             square(2, 3, 9, 24, 3, 1, 1), square(1, 4, 17, 8, 7, 2, 3),
                             square(2, 2, 8, 3, 3, 1, 4, 2), square(1, 3, 3, 8, 5, 1, 2)}) {
    for (const bool relu : {false, true}) {
      const Floats x = normal(s.n * s.ic * s.ih * s.iw, 1);
      const Floats w = input_weights(s, 2);
      const Floats bias = per_channel(output(s), 3);
      Floats y = garbage(output(s).size());
      kernels().conv_forward_plain(s, 0, s.n, x.data(), w.data(), bias.data(), relu, y.data());
      std::vector<double> sums(static_cast<size_t>(output(s).size()), 0.0);
      for (int64_t n = 0; n < s.n; ++n) {
        for (int64_t o = 0; o < s.oc; ++o) {
          for_taps(s, [&](int64_t oy, int64_t ox, int64_t kh, int64_t kw, int64_t iy, int64_t ix) {
            for (int64_t i = 0; i < s.ic; ++i) {
              const int64_t tap = ((o / kBlock * s.kh + kh) * s.kw + kw) * s.ic + i;
              sums[at(output(s), n, o, oy, ox)] +=
                  static_cast<double>(
                      x[static_cast<size_t>(((n * s.ic + i) * s.ih + iy) * s.iw + ix)]) *
                  w[static_cast<size_t>(tap * kBlock + o % kBlock)];
            }
          });
        }
      }
      expect_activation(output(s), y, 2e-5, [&](int64_t n, int64_t c, int64_t h, int64_t v) {
        const double sum = sums[at(output(s), n, c, h, v)] + bias[static_cast<size_t>(c)];
        return relu && sum < 0 ? 0.0 : sum;
      });
    }
  }
}

TEST_P(ConvKernelTest, BackwardDataMatchesTheDefinition) {
  for (const ConvShape& s : {square(2, 20, 12, 50, 5, 1, 0), square(1, 8, 6, 16, 4, 1, 0),
                             square(3, 3, 5, 8, 3, 1, 0), square(1, 16, 9, 10, 7, 1, 0)}) {
    ASSERT_TRUE(kernels().conv_backward_data_supported(s));
    const int64_t in_blocks = round_up(s.ic, kBlock) / kBlock;
    const auto weight_at = [&](int64_t o, int64_t i, int64_t kh, int64_t kw) {
      const int64_t block = (o / kBlock * in_blocks + i / kBlock) * s.kh + kh;
      return static_cast<size_t>(((block * s.kw + kw) * kBlock + o % kBlock) * kBlock + i % kBlock);
    };
    Floats w = zeros(round_up(s.oc, kBlock) * in_blocks * kBlock * s.kh * s.kw);
    Stream random(5, Purpose::test);
    for (int64_t o = 0; o < s.oc; ++o) {
      for (int64_t i = 0; i < s.ic; ++i) {
        for (int64_t t = 0; t < s.kh * s.kw; ++t) {
          w[weight_at(o, i, t / s.kw, t % s.kw)] = random.normal();
        }
      }
    }
    const Floats dy = activation(output(s), 6);
    Floats dx = garbage(input(s).size());
    kernels().conv_backward_data(s, 0, s.n, dy.data(), w.data(), dx.data());
    std::vector<double> sums(static_cast<size_t>(input(s).size()), 0.0);
    for (int64_t n = 0; n < s.n; ++n) {
      for_taps(s, [&](int64_t oy, int64_t ox, int64_t kh, int64_t kw, int64_t y, int64_t x) {
        for (int64_t o = 0; o < s.oc; ++o) {
          for (int64_t i = 0; i < s.ic; ++i) {
            sums[at(input(s), n, i, y, x)] +=
                static_cast<double>(dy[at(output(s), n, o, oy, ox)]) * w[weight_at(o, i, kh, kw)];
          }
        }
      });
    }
    expect_activation(input(s), dx, 2e-5, [&](int64_t n, int64_t c, int64_t h, int64_t v) {
      return sums[at(input(s), n, c, h, v)];
    });
  }
}

ConvShape depthwise(int64_t n, int64_t channels, int64_t size, int64_t kernel, int64_t stride,
                    int64_t pad, int64_t dilation = 1) {
  ConvShape s = square(n, channels, size, channels, kernel, stride, pad, dilation);
  s.groups = channels;
  return s;
}

std::vector<ConvShape> depthwise_shapes() {
  ConvShape oblong = depthwise(2, 8, 11, 3, 2, 1);
  oblong.kw = 5, oblong.stride_w = 3;
  oblong.ow = (oblong.iw + 2 - 5) / 3 + 1;
  return {
      depthwise(2, 12, 28, 3, 1, 1), depthwise(2, 16, 14, 3, 2, 1),  depthwise(1, 8, 7, 3, 1, 1),
      depthwise(1, 24, 7, 3, 2, 1),  depthwise(1, 9, 13, 5, 2, 2),   depthwise(2, 8, 10, 5, 1, 0),
      depthwise(1, 8, 6, 7, 1, 3),   depthwise(1, 8, 9, 3, 1, 2, 2), depthwise(1, 8, 8, 1, 2, 0),
      depthwise(1, 8, 2, 3, 1, 2),   depthwise(1, 8, 9, 2, 3, 1),    oblong};
}

/// Goihw8g, padding zero.
Floats depthwise_weights(const ConvShape& s, uint64_t seed) {
  return activation({1, s.oc, s.kh, s.kw}, seed);
}

TEST_P(ConvKernelTest, DepthwiseBackwardDataMatchesTheDefinition) {
  for (const ConvShape& s : depthwise_shapes()) {
    ASSERT_TRUE(kernels().conv_backward_data_supported(s));
    const Floats dy = activation(output(s), 4);
    const Floats w = depthwise_weights(s, 5);
    std::vector<double> sums(static_cast<size_t>(input(s).size()), 0.0);
    for (int64_t n = 0; n < s.n; ++n) {
      for (int64_t c = 0; c < s.oc; ++c) {
        for_taps(s, [&](int64_t oy, int64_t ox, int64_t kh, int64_t kw, int64_t iy, int64_t ix) {
          sums[at(input(s), n, c, iy, ix)] += static_cast<double>(dy[at(output(s), n, c, oy, ox)]) *
                                              w[at({1, s.oc, s.kh, s.kw}, 0, c, kh, kw)];
        });
      }
    }
    Floats dx = garbage(input(s).size());
    kernels().conv_backward_data(s, 0, s.n, dy.data(), w.data(), dx.data());
    expect_activation(input(s), dx, 1e-5, [&](int64_t n, int64_t c, int64_t h, int64_t v) {
      return sums[at(input(s), n, c, h, v)];
    });
  }
}

TEST_P(ConvKernelTest, DepthwiseWithDilationAndStrideIsLeftToOthers) {
  EXPECT_FALSE(kernels().conv_backward_data_supported(depthwise(1, 8, 9, 3, 2, 2, 2)));
}

CONVOY_FOR_EVERY_INSTRUCTION_SET(ConvKernelTest);

}  // namespace
}  // namespace convoy::engine
