// The papers' formulas, against their own tables and by hand.

#include "convoy/plan/lemmas.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace convoy::plan {
namespace {

/// In percent, as the paper rounds it.
double percent(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(100 * value * scale) / scale;
}

TEST(Lemmas, AllowTheOverheadOfZousTable) {
  EXPECT_DOUBLE_EQ(percent(allowed_overhead(0.75, 2), 1), 50);
  EXPECT_DOUBLE_EQ(percent(allowed_overhead(0.75, 4), 1), 12.5);
  EXPECT_DOUBLE_EQ(percent(allowed_overhead(0.75, 8), 1), 5.0);
  EXPECT_DOUBLE_EQ(percent(allowed_overhead(0.75, 16), 2), 2.27);
  EXPECT_DOUBLE_EQ(percent(allowed_overhead(0.8, 2), 1), 33.3);
  EXPECT_DOUBLE_EQ(percent(allowed_overhead(0.8, 4), 2), 9.09);
  EXPECT_DOUBLE_EQ(percent(allowed_overhead(0.8, 8), 2), 3.70);
  EXPECT_DOUBLE_EQ(percent(allowed_overhead(0.8, 16), 2), 1.69);
  EXPECT_DOUBLE_EQ(percent(allowed_overhead(0.9, 2), 1), 12.5);
  EXPECT_DOUBLE_EQ(percent(allowed_overhead(0.9, 4), 2), 3.85);
  EXPECT_DOUBLE_EQ(percent(allowed_overhead(0.9, 8), 2), 1.61);
  EXPECT_DOUBLE_EQ(percent(allowed_overhead(0.9, 16), 2), 0.75);
  EXPECT_TRUE(std::isinf(allowed_overhead(0.5, 2)));
}

TEST(Lemmas, AgreeWithEachOtherAboutWorkers) {
  for (const double alpha : {0.6, 0.75, 0.9}) {
    for (const int workers : {2, 3, 8, 64}) {
      const double overhead = allowed_overhead(alpha, workers);
      EXPECT_NEAR(efficiency(overhead, workers), alpha, 1e-12);
      EXPECT_EQ(most_workers(overhead, alpha), workers);
    }
  }
  EXPECT_DOUBLE_EQ(efficiency(0.3, 1), 1);
  EXPECT_EQ(most_workers(5, 0.99), 1);
}

TEST(Lemmas, SayHowManyServersHideTheTraffic) {
  EXPECT_EQ(servers_needed(Bytes{100'000'000}, 4, 125e6, Seconds{2}), 2);
  EXPECT_EQ(servers_needed(Bytes{100'000'000}, 4, 125e6, Seconds{1}), 4);
  EXPECT_EQ(servers_needed(Bytes{1000}, 1, 1e9, Seconds{1}), 1);
}

/// FC 4096², 64 workers, batch 256: model-parallel moves 8.4 MB where data-parallel moves 134 MB.
TEST(Lemmas, CountDas16sBytes) {
  const LayerSize fc{.inputs = 4096, .outputs = 4096};
  EXPECT_NEAR(data_parallel_bytes(fc, 0), 134.2e6, 0.1e6);
  EXPECT_NEAR(model_parallel_bytes(fc, 256), 8.4e6, 0.1e6);
  EXPECT_NEAR(hybrid_bytes(fc, 256, 64, 2, 0), 8.4e6, 0.1e6);
  EXPECT_DOUBLE_EQ(hybrid_bytes(fc, 256, 64, 1, 0), model_parallel_bytes(fc, 256));
  EXPECT_DOUBLE_EQ(hybrid_bytes(fc, 256, 64, 64, 0), data_parallel_bytes(fc, 0));
  EXPECT_LE(best_copies(fc, 256, 64, 0), 2);
  EXPECT_NEAR(ideal_copies(fc, 256, 64, 0), 2, 1e-12);
  // A convolution has few weights and large images.
  const LayerSize conv{.inputs = 64, .outputs = 64, .kernel = 3, .side = 56};
  EXPECT_EQ(best_copies(conv, 256, 64, 0), 64);
}

/// By trying, the least bytes are where the formula has them.
TEST(Lemmas, FindTheBestNumberOfCopies) {
  const LayerSize fc{.inputs = 4096, .outputs = 1000};
  for (const int workers : {4, 16, 96}) {
    for (const int64_t batch : {16, 256, 4096}) {
      const int best = best_copies(fc, batch, workers, 0.5);
      for (int copies = 1; copies <= workers; ++copies) {
        if (workers % copies != 0) continue;
        EXPECT_LE(hybrid_bytes(fc, batch, workers, best, 0.5),
                  hybrid_bytes(fc, batch, workers, copies, 0.5));
      }
    }
  }
}

TEST(Lemmas, SaturateTheMergedClassifier) {
  const GroupTimes times{Seconds{8}, Seconds{0.01}, Seconds{1}};
  EXPECT_DOUBLE_EQ(group_step(times, 8).value, 1);
  EXPECT_DOUBLE_EQ(group_step({Seconds{8}, Seconds{1}, Seconds{0}}, 8).value, 8);
  // One group of 8: 1 + 1 s. Two groups of 4: (2 + 1)/2. Then the classifier is all there is.
  EXPECT_DOUBLE_EQ(update_time(times, 8, 1).value, 2);
  EXPECT_DOUBLE_EQ(update_time(times, 8, 2).value, 1.5);
  EXPECT_DOUBLE_EQ(update_time(times, 8, 8).value, 9.0 / 8);
  EXPECT_DOUBLE_EQ(update_time(times, 32, 32).value, 1);
}

}  // namespace
}  // namespace convoy::plan
