#pragma once
// What the tests of the loader share.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/data/loader.hpp"

#include "tests/data/helpers.hpp"

namespace convoy::data {

constexpr int64_t kSize = 37;
constexpr int64_t kValues = 3 * 6 * 6;

/// 37 samples: no batch ends where an epoch does.
inline Source small_source() {
  return open(synthetic({3, 6, 6}, 4, kSize));
}

/// Four grains of three.
inline LoaderOptions small_options(const job::Augment* augment, int threads) {
  LoaderOptions options;
  options.ahead = 2;
  options.batch = 12;
  options.grain = 3;
  options.seed = 5;
  options.threads = threads;
  options.augment = augment;
  return options;
}

/// What the grain must hold, prepared directly.
inline void expect_right(const Grain& grain, const Source& source, const LoaderOptions& options,
                         int64_t step, int64_t number) {
  ASSERT_EQ(grain.count, options.grain);
  ASSERT_EQ(static_cast<int64_t>(grain.inputs.size()), options.grain * kValues);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(grain.inputs.data()) % 64, 0U);
  std::vector<float> expected(kValues);
  for (int64_t k = 0; k < options.grain; ++k) {
    const int64_t position = step * options.batch + number * options.grain + k;
    const StreamSample which = stream_at(position, kSize, options.seed);
    prepare(source, *source.train, which, options.seed, options.augment, expected);
    const auto got = grain.inputs.subspan(static_cast<size_t>(k * kValues), kValues);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin()))
        << "step " << step << ", grain " << number << ", sample " << k;
    EXPECT_EQ(grain.labels[static_cast<size_t>(k)], source.train->label(which.sample));
  }
}

/// Counts how often pixels are asked for, can hold its readers up, and can fail at one sample.
class Probe final : public Dataset {
 public:
  explicit Probe(int64_t broken = -1) : broken_(broken) {}
  int64_t size() const override { return 1000; }
  model::Shape shape() const override { return {1, 2, 2}; }
  int64_t classes() const override { return 2; }
  std::span<const uint8_t> pixels(int64_t index) const override {
    ++arrived_;
    arrived_.notify_all();
    gate_.wait(false);
    if (index == broken_) throw std::runtime_error("this sample is broken");
    ++asked_;
    asked_.notify_all();
    return pixels_;
  }
  int32_t label(int64_t index) const override { return static_cast<int32_t>(index % 2); }

  void hold() { gate_ = false; }
  void let_go() {
    gate_ = true;
    gate_.notify_all();
  }
  /// Samples whose pixels were given.
  int64_t asked() const { return asked_; }
  void wait_for_asked(int64_t count) const { wait_for(asked_, count); }
  /// Until so many readers have come, held up or not.
  void wait_for_readers(int64_t count) const { wait_for(arrived_, count); }

 private:
  static void wait_for(const std::atomic<int64_t>& number, int64_t count) {
    for (int64_t seen = number; seen < count; seen = number) number.wait(seen);
  }

  std::array<uint8_t, 4> pixels_{};
  int64_t broken_;
  mutable std::atomic<bool> gate_{true};
  mutable std::atomic<int64_t> arrived_{0};
  mutable std::atomic<int64_t> asked_{0};
};

inline Source probe_source(const std::shared_ptr<Probe>& probe) {
  return {.train = probe, .test = probe, .mean = {0.0F}, .std = {1.0F}, .fingerprint = 0};
}

}  // namespace convoy::data
