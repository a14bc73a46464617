// The size of buckets is found in few steps, and the same by all who are told the same.

#include "convoy/sync/bucket_tuner.hpp"

#include <functional>
#include <vector>

#include <gtest/gtest.h>

namespace convoy::sync {
namespace {

const std::vector<Bytes> kSizes = {{1}, {4}, {16}, {64}, {256}};

struct Found {
  int64_t size = 0;
  std::vector<int64_t> tried;
  int steps = 0;
};

/// With steps that take so long.
Found find(std::vector<Bytes> sizes, const std::function<double(int64_t)>& time) {
  BucketTuner tuner(std::move(sizes));
  Found found;
  // What is told is a step behind.
  int64_t last = tuner.size().value;
  while (!tuner.done() && found.steps < 1000) {
    const int64_t size = tuner.size().value;
    tuner.took({time(last)});
    last = size;
    ++found.steps;
  }
  found.size = tuner.size().value;
  for (const BucketTuner::Tried& t : tuner.tried()) {
    found.tried.push_back(t.size.value);
    EXPECT_EQ(t.step.value, time(t.size.value));
  }
  return found;
}

constexpr int kEach = static_cast<int>(BucketTuner::kSettling + BucketTuner::kCounting);

TEST(BucketTuner, KeepsTheMiddleIfItIsBest) {
  const Found found = find(kSizes, [](int64_t size) { return size == 16 ? 1.0 : 2.0; });
  EXPECT_EQ(found.size, 16);
  EXPECT_EQ(found.tried, (std::vector<int64_t>{16, 4, 64}));
  EXPECT_EQ(found.steps, 3 * kEach);
}

TEST(BucketTuner, GoesDownForAsLongAsItHelps) {
  EXPECT_EQ(find(kSizes, [](int64_t size) { return double(size); }).tried,
            (std::vector<int64_t>{16, 4, 1}));
  const Found found = find(kSizes, [](int64_t size) { return size == 4 ? 1.0 : 2.0; });
  EXPECT_EQ(found.size, 4);
  EXPECT_EQ(found.tried, (std::vector<int64_t>{16, 4, 1})) << "no look at larger ones";
}

TEST(BucketTuner, GoesUpWhereSmallerOnesDoNotHelp) {
  const Found found = find(kSizes, [](int64_t size) { return 1.0 / double(size); });
  EXPECT_EQ(found.size, 256);
  EXPECT_EQ(found.tried, (std::vector<int64_t>{16, 4, 64, 256}));
}

TEST(BucketTuner, StaysWhereTheDifferenceIsNoise) {
  EXPECT_EQ(find(kSizes, [](int64_t size) { return size == 16 ? 1.0 : 0.99; }).size, 16);
}

TEST(BucketTuner, IsDoneAtOnceWithoutAChoice) {
  const Found found = find({{8}}, [](int64_t) { return 1.0; });
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.steps, 0);
}

TEST(BucketTuner, ChoosesBetweenTwo) {
  EXPECT_EQ(find({{1}, {4}}, [](int64_t size) { return double(size); }).size, 1);
  EXPECT_EQ(find({{1}, {4}}, [](int64_t size) { return 1.0 / double(size); }).size, 4);
}

TEST(BucketTuner, ForgetsSlowStepsAmongFastOnes) {
  int step = 0;
  BucketTuner tuner(kSizes);
  // An evaluation now and then.
  while (!tuner.done()) {
    tuner.took({(++step % 3 == 0 ? 50.0 : 0.0) + (tuner.size().value == 4 ? 1.0 : 2.0)});
  }
  EXPECT_EQ(tuner.size().value, 4);
}

}  // namespace
}  // namespace convoy::sync
