// Winograd's kernels against the definition of convolution in double precision.

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

ConvShape shape_of(int64_t n, int64_t ic, int64_t oc, int64_t height, int64_t width, int64_t pad) {
  ConvShape s;
  s.n = n, s.ic = ic, s.ih = height, s.iw = width;
  s.oc = oc, s.oh = height + 2 * pad - 2, s.ow = width + 2 * pad - 2;
  s.kh = s.kw = 3;
  s.pad_h = s.pad_w = pad;
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
  Kernel(int64_t ic, int64_t oc, uint64_t seed)
      : in_blocks_((ic + 7) / 8),
        out_blocks_((oc + 7) / 8),
        buffer_(AlignedBuffer::of_floats(in_blocks_ * out_blocks_ * 9 * 64)) {
    Stream random(seed, Purpose::test, 1, 0);
    for (int64_t o = 0; o < oc; ++o) {
      for (int64_t i = 0; i < ic; ++i) {
        for (int64_t k = 0; k < 9; ++k) at(o, i, k / 3, k % 3) = random.normal();
      }
    }
  }
  float& at(int64_t o, int64_t i, int64_t r, int64_t c) {
    return data()[(((o / 8 * in_blocks_ + i / 8) * 9 + r * 3 + c) * 8 + i % 8) * 8 + o % 8];
  }
  float* data() { return buffer_.floats().data(); }

 private:
  int64_t in_blocks_, out_blocks_;
  AlignedBuffer buffer_;
};

struct Case {
  std::string isa;
  int tile;
  ConvShape shape;

  friend void PrintTo(const Case& c, std::ostream* out) {  // NOLINT: gtest's name
    *out << c.isa << ", tile " << c.tile;
  }
};

class WinogradTest : public testing::TestWithParam<Case> {
 protected:
  static const Winograd& kernels() {
    const Kernels& all = select_kernels(GetParam().isa.c_str());
    return GetParam().tile == 2 ? all.winograd2 : all.winograd4;
  }
  const ConvShape& s() const { return GetParam().shape; }
  /// Rounding grows with the root of the terms added and with the transforms' size.
  double tolerance(double terms) const {
    return (GetParam().tile == 2 ? 4e-6 : 6e-5) * std::sqrt(terms);
  }

  Map x_{{s().n, s().ic, s().ih, s().iw}, 1};
  Map y_{{s().n, s().oc, s().oh, s().ow}, 2};
  Kernel w_{s().ic, s().oc, 3};
};

TEST_P(WinogradTest, ForwardIsConvolution) {
  const Winograd& k = kernels();
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
            for (int64_t t = 0; t < 9; ++t) {
              sum += x_.around(n, i, oy + t / 3 - s().pad_h, ox + t % 3 - s().pad_w) *
                     w_.at(o, i, t / 3, t % 3);
            }
          }
          worst = std::max(worst, std::abs(std::max(sum, 0.0) - y_.at(n, o, oy, ox)));
        }
      }
    }
  }
  EXPECT_LT(worst, tolerance(9.0 * static_cast<double>(s().ic)));
}

TEST_P(WinogradTest, BackwardDataIsItsTranspose) {
  const Winograd& k = kernels();
  const ConvShape t = backward_shape(s());
  ASSERT_TRUE(k.supported(t));
  AlignedBuffer u = AlignedBuffer::of_floats(k.kernel_size(t));
  AlignedBuffer scratch = AlignedBuffer::of_floats(k.forward_scratch(t));
  k.kernel(s(), true, 0, (s().ic + 7) / 8, w_.data(), u.floats().data());
  k.forward(t, 0, k.tiles(t), y_.data(), u.floats().data(), nullptr, false, x_.data(),
            scratch.floats().data());
  double worst = 0;
  for (int64_t n = 0; n < s().n; ++n) {
    for (int64_t i = 0; i < s().ic; ++i) {
      for (int64_t iy = 0; iy < s().ih; ++iy) {
        for (int64_t ix = 0; ix < s().iw; ++ix) {
          double sum = 0;
          for (int64_t o = 0; o < s().oc; ++o) {
            for (int64_t tap = 0; tap < 9; ++tap) {
              sum += y_.around(n, o, iy - tap / 3 + s().pad_h, ix - tap % 3 + s().pad_w) *
                     w_.at(o, i, tap / 3, tap % 3);
            }
          }
          worst = std::max(worst, std::abs(sum - x_.at(n, i, iy, ix)));
        }
      }
    }
  }
  EXPECT_LT(worst, tolerance(9.0 * static_cast<double>(s().oc)));
}

TEST_P(WinogradTest, BackwardWeightsIsTheGradient) {
  const Winograd& k = kernels();
  const int64_t blocks = (s().oc + 7) / 8;
  Kernel dw(s().ic, s().oc, 4);
  for (const auto& [b0, b1] : {std::pair{int64_t{0}, blocks / 2}, {blocks / 2, blocks}}) {
    if (b0 == b1) continue;
    AlignedBuffer scratch = AlignedBuffer::of_floats(k.backward_weights_scratch(s(), b1 - b0));
    k.backward_weights(s(), b0, b1, x_.data(), y_.data(), dw.data(), scratch.floats().data());
  }
  double worst = 0;
  for (int64_t o = 0; o < s().oc; ++o) {
    for (int64_t i = 0; i < s().ic; ++i) {
      for (int64_t tap = 0; tap < 9; ++tap) {
        double sum = 0;
        for (int64_t n = 0; n < s().n; ++n) {
          for (int64_t oy = 0; oy < s().oh; ++oy) {
            for (int64_t ox = 0; ox < s().ow; ++ox) {
              sum += x_.around(n, i, oy + tap / 3 - s().pad_h, ox + tap % 3 - s().pad_w) *
                     y_.at(n, o, oy, ox);
            }
          }
        }
        worst = std::max(worst, std::abs(sum - dw.at(o, i, tap / 3, tap % 3)));
      }
    }
  }
  EXPECT_LT(worst, tolerance(static_cast<double>(s().n * s().oh * s().ow)));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* isa : {"generic", "avx2"}) {
    if (std::string(isa) == "avx2" && std::string(select_kernels().isa) != "avx2") continue;
    for (const int tile : {2, 4}) {
      for (const ConvShape& s :
           {shape_of(2, 8, 8, 4, 4, 1), shape_of(3, 16, 24, 8, 8, 1), shape_of(2, 8, 16, 7, 9, 1),
            shape_of(1, 11, 21, 5, 6, 1), shape_of(2, 16, 8, 9, 7, 0), shape_of(1, 8, 40, 6, 6, 2),
            shape_of(1, 8, 8, 3, 3, 0), shape_of(1, 8, 8, 1, 1, 1),
            shape_of(5, 40, 32, 28, 28, 1)}) {
        all.push_back({isa, tile, s});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, WinogradTest, testing::ValuesIn(cases()), [](const auto& tested) {
  const Case& c = tested.param;
  return c.isa + "_tile" + std::to_string(c.tile) + "_n" + std::to_string(c.shape.n) + "_" +
         std::to_string(c.shape.ic) + "to" + std::to_string(c.shape.oc) + "_" +
         std::to_string(c.shape.ih) + "by" + std::to_string(c.shape.iw) + "_pad" +
         std::to_string(c.shape.pad_h);
});

}  // namespace
}  // namespace convoy::engine
