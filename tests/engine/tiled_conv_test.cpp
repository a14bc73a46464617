// Convolution in transformed spaces (Winograd, Fourier) against the definition in double precision.

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/base/memory.hpp"
#include "convoy/base/random.hpp"
#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::engine {
namespace {

struct Extent {
  int64_t height, width;
};

ConvShape shape_of(int64_t n, int64_t ic, int64_t oc, const Extent& image, int64_t pad,
                   const Extent& kernel = {3, 3}) {
  ConvShape s;
  s.n = n, s.ic = ic, s.ih = image.height, s.iw = image.width;
  s.kh = kernel.height, s.kw = kernel.width;
  s.pad_h = s.pad_w = pad;
  s.oc = oc, s.oh = s.ih + 2 * pad - s.kh + 1, s.ow = s.iw + 2 * pad - s.kw + 1;
  return s;
}

/// Blocked floats with random values, zero in the padding channels.
class Map {
 public:
  Map(const Blocked& s, uint64_t seed) : shape(s), buffer_(AlignedBuffer::of_floats(s.size())) {
    Stream random(seed, Purpose::test, 0, 0);
    for (int64_t n = 0; n < s.n; ++n) {
      for (int64_t c = 0; c < s.channels; ++c) {
        for (int64_t y = 0; y < s.height; ++y) {
          for (int64_t x = 0; x < s.width; ++x) at(n, c, y, x) = random.normal();
        }
      }
    }
  }
  float& at(int64_t n, int64_t c, int64_t y, int64_t x) {
    return data()[((n * shape.blocks() + c / kBlock) * shape.height * shape.width +
                   y * shape.width + x) *
                      kBlock +
                  c % kBlock];
  }
  /// Zero outside the image.
  double around(int64_t n, int64_t c, int64_t y, int64_t x) {
    const bool inside = y >= 0 && x >= 0 && y < shape.height && x < shape.width;
    return inside ? at(n, c, y, x) : 0.0;
  }
  float* data() { return buffer_.floats().data(); }

  Blocked shape;

 private:
  AlignedBuffer buffer_;
};

/// OIhw8i8o.
class Kernel {
 public:
  Kernel(const ConvShape& s, uint64_t seed)
      : in_blocks_((s.ic + 7) / 8),
        width_(s.kw),
        taps_(s.kh * s.kw),
        buffer_(AlignedBuffer::of_floats(in_blocks_ * ((s.oc + 7) / 8) * taps_ * 64)) {
    Stream random(seed, Purpose::test, 1, 0);
    for (int64_t o = 0; o < s.oc; ++o) {
      for (int64_t i = 0; i < s.ic; ++i) {
        for (int64_t k = 0; k < taps_; ++k) at(o, i, k) = random.normal();
      }
    }
  }
  float& at(int64_t o, int64_t i, int64_t tap) {
    return data()[(((o / 8 * in_blocks_ + i / 8) * taps_ + tap) * 8 + i % 8) * 8 + o % 8];
  }
  int64_t taps() const { return taps_; }
  int64_t row(int64_t tap) const { return tap / width_; }
  int64_t column(int64_t tap) const { return tap % width_; }
  float* data() { return buffer_.floats().data(); }

 private:
  int64_t in_blocks_, width_, taps_;
  AlignedBuffer buffer_;
};

struct Case {
  std::string isa;
  std::string algorithm;
  ConvShape shape;

  friend void PrintTo(const Case& c, std::ostream* out) {  // NOLINT: gtest's name
    *out << c.isa << ", " << c.algorithm;
  }
};

class TiledConvTest : public testing::TestWithParam<Case> {
 protected:
  static const TiledConv& kernels() {
    const Kernels& all = select_kernels(GetParam().isa.c_str());
    if (GetParam().algorithm == "fft") return all.fft;
    return GetParam().algorithm == "winograd2" ? all.winograd2 : all.winograd4;
  }
  const ConvShape& s() const { return GetParam().shape; }
  /// Rounding grows with the root of the terms added and with the transforms' size.
  double tolerance(double terms) const {
    return (GetParam().algorithm == "winograd4" ? 6e-5 : 4e-6) * std::sqrt(terms);
  }

  Map x_{{s().n, s().ic, s().ih, s().iw}, 1};
  Map y_{{s().n, s().oc, s().oh, s().ow}, 2};
  Kernel w_{s(), 3};
};

TEST_P(TiledConvTest, ForwardIsConvolution) {
  const TiledConv& k = kernels();
  ASSERT_TRUE(k.supported(s()));
  AlignedBuffer u = AlignedBuffer::of_floats(k.kernel_size(s()));
  AlignedBuffer scratch = AlignedBuffer::of_floats(k.forward_scratch(s()));
  AlignedBuffer bias = AlignedBuffer::of_floats(round_up(s().oc, 8));
  for (int64_t o = 0; o < s().oc; ++o)
    bias.floats()[static_cast<size_t>(o)] = 0.1F * static_cast<float>(o);
  const int64_t blocks = (s().oc + 7) / 8;
  k.kernel(s(), false, 0, blocks / 2, w_.data(), u.floats().data());
  k.kernel(s(), false, blocks / 2, blocks, w_.data(), u.floats().data());
  const int64_t cut = k.tiles(s()) / 3;
  for (const auto& [t0, t1] : {std::pair{int64_t{0}, cut}, {cut, k.tiles(s())}}) {
    k.forward(s(), t0, t1, x_.data(), u.floats().data(), bias.floats().data(), true, y_.data(),
              scratch.floats().data());
  }
  double worst = 0;
  for (int64_t n = 0; n < s().n; ++n) {
    for (int64_t o = 0; o < round_up(s().oc, 8); ++o) {
      for (int64_t oy = 0; oy < s().oh; ++oy) {
        for (int64_t ox = 0; ox < s().ow; ++ox) {
          if (o >= s().oc) {
            ASSERT_EQ(y_.at(n, o, oy, ox), 0) << "padding channels stay zero";
            continue;
          }
          double sum = 0.1F * static_cast<float>(o);
          for (int64_t i = 0; i < s().ic; ++i) {
            for (int64_t t = 0; t < w_.taps(); ++t) {
              sum += x_.around(n, i, oy + w_.row(t) - s().pad_h, ox + w_.column(t) - s().pad_w) *
                     w_.at(o, i, t);
            }
          }
          worst = std::max(worst, std::abs(std::max(sum, 0.0) - y_.at(n, o, oy, ox)));
        }
      }
    }
  }
  EXPECT_LT(worst, tolerance(static_cast<double>(w_.taps() * s().ic)));
}

TEST_P(TiledConvTest, BackwardDataIsItsTranspose) {
  const TiledConv& k = kernels();
  const ConvShape turned = backward_shape(s());
  ASSERT_TRUE(k.supported(turned));
  AlignedBuffer u = AlignedBuffer::of_floats(k.kernel_size(turned));
  AlignedBuffer scratch = AlignedBuffer::of_floats(k.forward_scratch(turned));
  k.kernel(s(), true, 0, (s().ic + 7) / 8, w_.data(), u.floats().data());
  k.forward(turned, 0, k.tiles(turned), y_.data(), u.floats().data(), nullptr, false, x_.data(),
            scratch.floats().data());
  double worst = 0;
  for (int64_t n = 0; n < s().n; ++n) {
    for (int64_t i = 0; i < s().ic; ++i) {
      for (int64_t iy = 0; iy < s().ih; ++iy) {
        for (int64_t ix = 0; ix < s().iw; ++ix) {
          double sum = 0;
          for (int64_t o = 0; o < s().oc; ++o) {
            for (int64_t t = 0; t < w_.taps(); ++t) {
              sum += y_.around(n, o, iy - w_.row(t) + s().pad_h, ix - w_.column(t) + s().pad_w) *
                     w_.at(o, i, t);
            }
          }
          worst = std::max(worst, std::abs(sum - x_.at(n, i, iy, ix)));
        }
      }
    }
  }
  EXPECT_LT(worst, tolerance(static_cast<double>(w_.taps() * s().oc)));
}

TEST_P(TiledConvTest, BackwardWeightsIsTheGradient) {
  const TiledConv& k = kernels();
  const int64_t blocks = (s().oc + 7) / 8;
  Kernel dw(s(), 4);
  for (const auto& [b0, b1] : {std::pair{int64_t{0}, blocks / 2}, {blocks / 2, blocks}}) {
    if (b0 == b1) continue;
    AlignedBuffer scratch = AlignedBuffer::of_floats(k.backward_weights_scratch(s(), b1 - b0));
    k.backward_weights(s(), b0, b1, x_.data(), y_.data(), dw.data(), scratch.floats().data());
  }
  double worst = 0;
  for (int64_t o = 0; o < s().oc; ++o) {
    for (int64_t i = 0; i < s().ic; ++i) {
      for (int64_t t = 0; t < w_.taps(); ++t) {
        double sum = 0;
        for (int64_t n = 0; n < s().n; ++n) {
          for (int64_t oy = 0; oy < s().oh; ++oy) {
            for (int64_t ox = 0; ox < s().ow; ++ox) {
              sum += x_.around(n, i, oy + w_.row(t) - s().pad_h, ox + w_.column(t) - s().pad_w) *
                     y_.at(n, o, oy, ox);
            }
          }
        }
        worst = std::max(worst, std::abs(sum - dw.at(o, i, t)));
      }
    }
  }
  EXPECT_LT(worst, tolerance(static_cast<double>(s().n * s().oh * s().ow)));
}

std::vector<Case> cases() {
  const std::vector<ConvShape> three = {
      shape_of(2, 8, 8, {4, 4}, 1),    shape_of(3, 16, 24, {8, 8}, 1),
      shape_of(2, 8, 16, {7, 9}, 1),   shape_of(1, 11, 21, {5, 6}, 1),
      shape_of(2, 16, 8, {9, 7}, 0),   shape_of(1, 8, 40, {6, 6}, 2),
      shape_of(1, 8, 8, {3, 3}, 0),    shape_of(1, 8, 8, {1, 1}, 1),
      shape_of(5, 40, 32, {28, 28}, 1)};
  const std::vector<ConvShape> larger = {
      shape_of(2, 8, 16, {9, 11}, 2, {5, 5}),   shape_of(3, 13, 9, {27, 27}, 2, {5, 5}),
      shape_of(1, 16, 24, {31, 17}, 3, {7, 7}), shape_of(2, 8, 8, {20, 20}, 0, {11, 11}),
      shape_of(1, 24, 8, {12, 30}, 2, {3, 6}),  shape_of(1, 8, 8, {5, 5}, 4, {5, 5}),
      shape_of(70, 8, 16, {6, 6}, 2, {5, 5})};
  std::vector<Case> all;
  for (const char* isa : usable_kernels()) {
    for (const char* algorithm : {"winograd2", "winograd4", "fft"}) {
      for (const ConvShape& s : three) all.push_back({isa, algorithm, s});
    }
    for (const ConvShape& s : larger) all.push_back({isa, "fft", s});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, TiledConvTest, testing::ValuesIn(cases()), [](const auto& tested) {
  const Case& c = tested.param;
  const ConvShape& s = c.shape;
  return c.isa + "_" + c.algorithm + "_n" + std::to_string(s.n) + "_" + std::to_string(s.ic) +
         "to" + std::to_string(s.oc) + "_" + std::to_string(s.ih) + "by" + std::to_string(s.iw) +
         "_kernel" + std::to_string(s.kh) + "by" + std::to_string(s.kw) + "_pad" +
         std::to_string(s.pad_h);
});

}  // namespace
}  // namespace convoy::engine
