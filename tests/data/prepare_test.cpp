#include "convoy/data/prepare.hpp"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/data/readers.hpp"

#include "tests/data/helpers.hpp"

namespace convoy::data {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::Ge;
using testing::Le;

// With mean 0 and std 1/255 a normalised pixel is the pixel itself, give or take rounding.
Source plain(size_t channels) {
  Source source;
  source.mean.assign(channels, 0.0F);
  source.std.assign(channels, 1.0F / 255);
  return source;
}

std::vector<int> transformed(model::Shape shape, const std::vector<uint8_t>& pixels,
                             const Choices& choices) {
  std::vector<float> out(pixels.size(), -1);
  transform(Normaliser(plain(static_cast<size_t>(shape.channels))), shape, pixels, choices, out);
  std::vector<int> rounded;
  for (const float value : out) rounded.push_back(static_cast<int>(std::lround(value)));
  return rounded;
}

constexpr model::Shape kSmall{1, 3, 4};
const std::vector<uint8_t> kPicture{1, 2,  3,  4,  //
                                    5, 6,  7,  8,  //
                                    9, 10, 11, 12};

TEST(Transform, WithoutChoicesShowsTheImage) {
  EXPECT_THAT(transformed(kSmall, kPicture, {}), ElementsAreArray(kPicture));
}

TEST(Transform, MirrorsLeftRight) {
  EXPECT_THAT(transformed(kSmall, kPicture, {.mirror = true}), ElementsAre(4, 3, 2, 1,  //
                                                                           8, 7, 6, 5,  //
                                                                           12, 11, 10, 9));
}

TEST(Transform, CropsWithBlackOutside) {
  EXPECT_THAT(transformed(kSmall, kPicture, {.down = 1, .right = -2}), ElementsAre(0, 0, 5, 6,   //
                                                                                   0, 0, 9, 10,  //
                                                                                   0, 0, 0, 0));
  EXPECT_THAT(transformed(kSmall, kPicture, {.down = -2, .right = 1}), ElementsAre(0, 0, 0, 0,  //
                                                                                   0, 0, 0, 0,  //
                                                                                   2, 3, 4, 0));
}

TEST(Transform, CropsFirstThenMirrors) {
  EXPECT_THAT(transformed(kSmall, kPicture, {.mirror = true, .down = 1, .right = -1}),
              ElementsAre(7, 6, 5, 0,    //
                          11, 10, 9, 0,  //
                          0, 0, 0, 0));
}

TEST(Transform, ACropBeyondTheImageIsAllBlack) {
  for (const bool mirror : {false, true}) {
    for (const int64_t far : {-9, -4, 4, 9}) {
      EXPECT_THAT(transformed(kSmall, kPicture, {.mirror = mirror, .down = 0, .right = far}),
                  Each(0));
      EXPECT_THAT(transformed(kSmall, kPicture, {.mirror = mirror, .down = far, .right = 0}),
                  Each(0));
    }
  }
}

TEST(Transform, CutsASquareClippedAtTheBorder) {
  EXPECT_THAT(transformed(kSmall, kPicture, {.cut = 2, .cut_y = 1, .cut_x = 2}),
              ElementsAre(1, 0, 0, 4,  //
                          5, 0, 0, 8,  //
                          9, 10, 11, 12));
  EXPECT_THAT(transformed(kSmall, kPicture, {.cut = 3, .cut_y = 2, .cut_x = 0}),
              ElementsAre(1, 2, 3, 4,  //
                          0, 0, 7, 8,  //
                          0, 0, 11, 12));
}

TEST(Transform, TreatsEveryChannelAlike) {
  const model::Shape shape{2, 2, 2};
  EXPECT_THAT(transformed(shape, {1, 2, 3, 4, 5, 6, 7, 8}, {.mirror = true, .down = 1}),
              ElementsAre(4, 3, 0, 0,  //
                          8, 7, 0, 0));
}

TEST(Transform, NormalisesPaddingAsBlackAndTheCutAsTheMean) {
  Source source;
  source.mean = {0.5F};
  source.std = {0.25F};
  const std::vector<uint8_t> pixels{0, 51, 102, 255};
  std::vector<float> out(4);
  transform(Normaliser(source), {1, 1, 4}, pixels, {}, out);
  EXPECT_THAT(out, ElementsAre(-2.0F, testing::FloatEq(-1.2F), testing::FloatEq(-0.4F), 2.0F));
  transform(Normaliser(source), {1, 1, 4}, pixels, {.right = -2, .cut = 1, .cut_y = 0, .cut_x = 3},
            out);
  EXPECT_THAT(out, ElementsAre(-2.0F, -2.0F, -2.0F, 0.0F));
}

TEST(Choose, DependsOnSeedEpochAndSampleOnly) {
  const job::Augment augment{.flip = true, .pad_crop = 4, .cutout = 8};
  const model::Shape shape{3, 32, 32};
  const auto key = [&](int64_t sample, int64_t epoch, uint64_t seed) {
    const Choices c = choose(augment, shape, {.sample = sample, .epoch = epoch}, seed);
    return std::vector<int64_t>{c.mirror ? 1 : 0, c.down, c.right, c.cut_y, c.cut_x};
  };
  EXPECT_EQ(key(7, 3, 1), key(7, 3, 1));
  EXPECT_NE(key(7, 3, 1), key(8, 3, 1));
  EXPECT_NE(key(7, 3, 1), key(7, 4, 1));
  EXPECT_NE(key(7, 3, 1), key(7, 3, 2));
}

TEST(Choose, UsesTheWholeRangeEvenly) {
  const job::Augment augment{.flip = true, .pad_crop = 2, .cutout = 3};
  constexpr int kDraws = 6000;
  int mirrored = 0;
  std::vector<int> down(5);
  std::vector<int> right(5);
  std::vector<int> cut_y(6);
  std::vector<int> cut_x(4);
  for (int64_t i = 0; i < kDraws; ++i) {
    const Choices c = choose(augment, {1, 6, 4}, {.sample = i, .epoch = 0}, 1);
    mirrored += c.mirror ? 1 : 0;
    EXPECT_EQ(c.cut, 3);
    ++down.at(static_cast<size_t>(c.down + 2));
    ++right.at(static_cast<size_t>(c.right + 2));
    ++cut_y.at(static_cast<size_t>(c.cut_y));
    ++cut_x.at(static_cast<size_t>(c.cut_x));
  }
  const auto evenly = [](size_t ways) {
    const int share = kDraws / static_cast<int>(ways);
    return Each(AllOf(Ge(share - 200), Le(share + 200)));
  };
  EXPECT_NEAR(mirrored, kDraws / 2, 200);
  EXPECT_THAT(down, evenly(5));
  EXPECT_THAT(right, evenly(5));
  EXPECT_THAT(cut_y, evenly(6));
  EXPECT_THAT(cut_x, evenly(4));
}

TEST(Prepare, IsTransformWithTheChosenChoices) {
  const Source source = open(synthetic({3, 8, 8}, 4, 16));
  const job::Augment augment{.flip = true, .pad_crop = 2, .cutout = 3};
  std::vector<float> prepared(192);
  std::vector<float> expected(192);
  for (int64_t i = 0; i < 16; ++i) {
    const StreamSample which{.sample = i, .epoch = 5};
    prepare(source, *source.train, which, 9, &augment, prepared);
    transform(Normaliser(source), {3, 8, 8}, source.train->pixels(i),
              choose(augment, {3, 8, 8}, which, 9), expected);
    EXPECT_EQ(prepared, expected);
    prepare(source, *source.train, which, 9, nullptr, prepared);
    transform(Normaliser(source), {3, 8, 8}, source.train->pixels(i), {}, expected);
    EXPECT_EQ(prepared, expected);
  }
}

TEST(Prepare, GivesTheTrainingSetMeanZeroAndDeviationOne) {
  const Source source = open(synthetic({2, 6, 6}, 4, 64));
  std::vector<float> out(72);
  std::vector<double> sum(2);
  std::vector<double> squares(2);
  for (int64_t i = 0; i < 64; ++i) {
    prepare(source, *source.train, {.sample = i, .epoch = 0}, 1, nullptr, out);
    for (size_t k = 0; k < 72; ++k) {
      sum[k / 36] += out[k];
      squares[k / 36] += out[k] * out[k];
    }
  }
  for (size_t c = 0; c < 2; ++c) {
    EXPECT_NEAR(sum[c] / (64 * 36), 0, 1e-5);
    EXPECT_NEAR(squares[c] / (64 * 36), 1, 1e-5);
  }
}

TEST(StreamAt, VisitsEverySampleOnceInEachEpoch) {
  constexpr int64_t kSize = 103;
  std::vector<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < kSize; ++i) {
      const StreamSample at = stream_at(epoch * kSize + i, kSize, 1);
      EXPECT_EQ(at.epoch, epoch);
      order.push_back(at.sample);
    }
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 103U);
    EXPECT_THAT(order, Each(AllOf(Ge(0), Le(kSize - 1))));
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
  EXPECT_NE(stream_at(0, kSize, 1), stream_at(0, kSize, 2));
}

}  // namespace
}  // namespace convoy::data
