#include "convoy/base/random.hpp"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "convoy/base/philox.hpp"

namespace convoy {
namespace {

TEST(Philox, MatchesThePublishedKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Stream, DependsOnEveryPartOfItsKey) {
  std::set<uint32_t> first;
  first.insert(Stream(1, Purpose::init, 2, 3).next_u32());
  first.insert(Stream(2, Purpose::init, 2, 3).next_u32());
  first.insert(Stream(1, Purpose::augment, 2, 3).next_u32());
  first.insert(Stream(1, Purpose::init, 3, 3).next_u32());
  first.insert(Stream(1, Purpose::init, 2, 4).next_u32());
  EXPECT_EQ(first.size(), 5U);
  EXPECT_EQ(Stream(1, Purpose::init, 2, 3).next_u32(), Stream(1, Purpose::init, 2, 3).next_u32());
}

TEST(Stream, UniformBelowAndNormalHaveTheirMoments) {
  Stream stream(7, Purpose::test);
  constexpr int kDraws = 100000;
  double uniform = 0;
  double normal = 0;
  double square = 0;
  std::array<int, 5> counts{};
  for (int i = 0; i < kDraws; ++i) {
    uniform += stream.uniform();
    const double z = stream.normal();
    normal += z;
    square += z * z;
    ++counts.at(stream.below(5));
  }
  EXPECT_NEAR(uniform / kDraws, 0.5, 0.005);
  EXPECT_NEAR(normal / kDraws, 0.0, 0.02);
  EXPECT_NEAR(square / kDraws, 1.0, 0.03);
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 5, 600);
}

TEST(Permuted, IsABijectionForAnySizeAndDiffersByEpoch) {
  for (const uint64_t size : {1, 2, 3, 10, 255, 256, 257, 5000}) {
    std::set<uint64_t> seen;
    uint64_t moved = 0;
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t p = permuted(i, size, 1, 0);
      ASSERT_LT(p, size);
      seen.insert(p);
      moved += permuted(i, size, 1, 1) != p ? 1 : 0;
    }
    EXPECT_EQ(seen.size(), size);
    if (size > 100) {
      EXPECT_GT(moved, size * 9 / 10);
    }
  }
}

}  // namespace
}  // namespace convoy
