// Every algorithm, every direction, on shapes that touch its edges: within its bound of the
// definition in double precision.

#include "convoy/engine/conv_trial.hpp"

#include <gtest/gtest.h>

#include "convoy/base/error.hpp"

namespace convoy::engine {
namespace {

ConvShape shape(int64_t n, int64_t ic, int64_t pixels, int64_t oc, int64_t kernel, int64_t stride,
                int64_t pad) {
  ConvShape s;
  s.n = n, s.ic = ic, s.oc = oc;
  s.ih = pixels, s.iw = pixels + 1;
  s.kh = s.kw = kernel;
  s.stride_h = s.stride_w = stride;
  s.pad_h = s.pad_w = pad;
  s.oh = (s.ih + 2 * pad - kernel) / stride + 1;
  s.ow = (s.iw + 2 * pad - kernel) / stride + 1;
  return s;
}

/// Largest error over largest value that an algorithm may have; docs/algorithms.md has what is
/// measured.
double bound(Algorithm algorithm) {
  return algorithm == Algorithm::winograd4 ? 2e-5 : 2e-6;
}

std::vector<ConvShape> shapes() {
  std::vector<ConvShape> all = {
      shape(2, 8, 6, 8, 3, 1, 1),    shape(3, 20, 9, 13, 3, 1, 1), shape(2, 16, 11, 40, 3, 1, 0),
      shape(1, 64, 14, 64, 3, 1, 1), shape(2, 8, 12, 16, 5, 1, 2), shape(2, 12, 13, 24, 3, 2, 1),
      shape(1, 16, 7, 8, 1, 1, 0),   shape(1, 8, 19, 16, 7, 1, 3), shape(2, 3, 15, 16, 5, 2, 2)};
  all.back().plain_input = true;
  for (const int64_t kernel : {3, 5}) {
    all.push_back(shape(2, 48, 9, 16, kernel, 1, 1));  // two groups of whole blocks
    all.back().groups = 2;
  }
  for (const int64_t stride : {1, 2}) {
    all.push_back(shape(2, 20, 9, 20, 3, stride, 1));  // depthwise
    all.back().groups = 20;
  }
  return all;
}

TEST(ConvTrial, GivesTheConvolutionByEveryAlgorithm) {
  for (const ConvShape& s : shapes()) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (const Direction direction : kDirections) {
        if (s.plain_input && direction == Direction::backward_data) continue;
        if (!obstacle(select_kernels(), s, algorithm, direction).empty()) continue;
        ConvAlgorithms algorithms;
        algorithms.of(direction) = algorithm;
        for (const int threads : {1, 2}) {
          ConvTrial trial(s, algorithms, threads);
          trial.fill(3);
          trial.run(direction);
          EXPECT_LT(trial.error(direction).largest, bound(algorithm))
              << to_string(algorithm) << " " << to_string(direction) << ", " << s.ic << "x" << s.ih
              << " to " << s.oc << ", kernel " << s.kh;
        }
      }
    }
  }
}

TEST(ConvTrial, LowersAnyNumberOfImagesTogether) {
  const ConvShape s = shape(5, 12, 9, 20, 3, 1, 1);
  ConvAlgorithms lowering;
  lowering.forward = Algorithm::lowering;
  std::vector<float> expected;
  for (const int64_t together : {1, 2, 5, 9}) {
    ConvTrial trial(s, lowering, 1, together);
    trial.fill(3);
    trial.run(Direction::forward);
    EXPECT_LT(trial.error(Direction::forward).largest, 2e-6);
    const std::vector<float> y = trial.plain(ConvTrial::Operand::y);
    if (expected.empty()) expected = y;
    EXPECT_EQ(y, expected) << together;
  }
}

TEST(ConvTrial, RefusesWhatAnAlgorithmCannotDo) {
  ConvAlgorithms winograd;
  winograd.forward = Algorithm::winograd4;
  EXPECT_THROW(ConvTrial(shape(1, 8, 8, 8, 5, 1, 2), winograd), InputError);
  EXPECT_THROW(ConvTrial(shape(1, 8, 8, 8, 3, 2, 1), winograd), InputError);
}

TEST(ConvTrial, SaysWhyAnAlgorithmCannot) {
  const auto why = [](const ConvShape& s, Algorithm algorithm) {
    return obstacle(select_kernels(), s, algorithm, Direction::forward);
  };
  EXPECT_EQ(why(shape(1, 8, 8, 8, 5, 1, 2), Algorithm::fft), "");
  EXPECT_EQ(why(shape(1, 8, 8, 8, 5, 2, 2), Algorithm::fft), "its stride is not 1");
  EXPECT_EQ(why(shape(1, 8, 8, 8, 1, 1, 0), Algorithm::fft),
            "its kernel is 1×1, too small to gain");
  EXPECT_EQ(why(shape(1, 8, 16, 8, 13, 1, 2), Algorithm::fft),
            "its kernel is 13×13, larger than a tile allows");
  EXPECT_EQ(why(shape(1, 8, 16, 8, 5, 1, 5), Algorithm::fft),
            "its padding is as large as its kernel");
}

TEST(Algorithms, HaveNamesThatAreReadBack) {
  for (const Algorithm algorithm : kAlgorithms) {
    EXPECT_EQ(parse_algorithm(to_string(algorithm)), algorithm);
  }
  EXPECT_THROW(parse_algorithm("magic"), InputError);
}

}  // namespace
}  // namespace convoy::engine
