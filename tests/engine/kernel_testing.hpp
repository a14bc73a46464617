#pragma once
// What the tests of the kernels share: aligned arrays, blocked activations filled with numbers
// that can be told apart, and a fixture that runs each test with every table this CPU can run.

#include <cmath>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/base/random.hpp"
#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::engine {

template <class T>
struct Aligned {
  using value_type = T;
  Aligned() = default;
  template <class U>
  explicit Aligned(const Aligned<U>& /*other*/) {}
  T* allocate(size_t n) {
    return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* p, size_t /*n*/) { ::operator delete (p, std::align_val_t{64}); }
  bool operator==(const Aligned& /*other*/) const { return true; }
};

using Floats = std::vector<float, Aligned<float>>;
using Bytes = std::vector<uint8_t, Aligned<uint8_t>>;

inline Floats zeros(int64_t n) {
  return Floats(static_cast<size_t>(n), 0.0F);
}

inline Floats normal(int64_t n, uint64_t seed, double mean = 0, double deviation = 1) {
  Stream stream(seed, Purpose::test);
  Floats v = zeros(n);
  for (float& x : v) x = static_cast<float>(mean + deviation * stream.normal());
  return v;
}

inline size_t at(const Blocked& s, int64_t n, int64_t c, int64_t h, int64_t w) {
  return static_cast<size_t>(n * s.image() + c / kBlock * s.plane() + (h * s.width + w) * kBlock +
                             c % kBlock);
}

/// Calls f(n, c, h, w) for every real value.
template <class F>
void for_values(const Blocked& s, F f) {
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t c = 0; c < s.channels; ++c) {
      for (int64_t h = 0; h < s.height; ++h) {
        for (int64_t w = 0; w < s.width; ++w) f(n, c, h, w);
      }
    }
  }
}

/// Normal values where the channels are real, zero in the padding.
inline Floats activation(const Blocked& s, uint64_t seed, double mean = 0, double deviation = 1) {
  Stream stream(seed, Purpose::test);
  Floats v = zeros(s.size());
  for_values(s, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    v[at(s, n, c, h, w)] = static_cast<float>(mean + deviation * stream.normal());
  });
  return v;
}

/// A per-channel array, zero in the padding.
inline Floats per_channel(const Blocked& s, uint64_t seed) {
  Floats v = normal(s.blocks() * kBlock, seed);
  for (int64_t c = s.channels; c < s.blocks() * kBlock; ++c) v[static_cast<size_t>(c)] = 0;
  return v;
}

/// Numbers a kernel must overwrite.
inline Floats garbage(int64_t n) {
  return Floats(static_cast<size_t>(n), 12345.0F);
}

inline void expect_padding_is_zero(const Blocked& s, const Floats& v) {
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t c = s.channels; c < s.blocks() * kBlock; ++c) {
      for (int64_t h = 0; h < s.height; ++h) {
        for (int64_t w = 0; w < s.width; ++w) ASSERT_EQ(v[at(s, n, c, h, w)], 0.0F);
      }
    }
  }
}

/// |actual − expected| ≤ tolerance·(1 + |expected|), and NaN only for NaN.
inline void expect_close(double actual, double expected, double tolerance,
                         const std::string& where) {
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(actual)) << where;
  } else {
    ASSERT_LE(std::abs(actual - expected), tolerance * (1 + std::abs(expected)))
        << actual << " instead of " << expected << " at " << where;
  }
}

/// Compares every real value with expected(n, c, h, w), and the padding with zero.
inline void expect_activation(
    const Blocked& s, const Floats& actual, double tolerance,
    const std::function<double(int64_t, int64_t, int64_t, int64_t)>& expected) {
  for_values(s, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    expect_close(actual[at(s, n, c, h, w)], expected(n, c, h, w), tolerance,
                 "n, c, h, w = " + std::to_string(n) + ", " + std::to_string(c) + ", " +
                     std::to_string(h) + ", " + std::to_string(w));
  });
  expect_padding_is_zero(s, actual);
}

/// Every mixture of odd and round extents.
inline std::vector<Blocked> shapes() {
  std::vector<Blocked> all;
  for (const int64_t n : {1, 3, 4}) {
    for (const int64_t c : {1, 3, 8, 20, 64}) {
      all.push_back({n, c, 1, 1});
      all.push_back({n, c, 5, 7});
      all.push_back({n, c, 14, 14});
    }
    all.push_back({n, 20, 28, 28});
  }
  return all;
}

class KernelTest : public testing::TestWithParam<const char*> {
 protected:
  const Kernels& kernels() const { return select_kernels(GetParam()); }
};

}  // namespace convoy::engine

#define CONVOY_FOR_EVERY_INSTRUCTION_SET(Fixture)                                          \
  INSTANTIATE_TEST_SUITE_P(, Fixture, testing::ValuesIn(convoy::engine::usable_kernels()), \
                           [](const auto& test) { return std::string(test.param); })
