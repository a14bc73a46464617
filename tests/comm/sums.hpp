#pragma once
// Values whose sums are exact whatever the order, for comparing collectives with a plain sum.

#include <cstdint>
#include <vector>

namespace convoy::comm {

/// Small whole numbers.
inline float value_of(int rank, int64_t i) {
  return static_cast<float>((rank + 1) * 7 + i % 13);
}

inline std::vector<float> values_of(int rank, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = value_of(rank, i);
  return values;
}

/// What the sum over `ranks` ranks is.
inline std::vector<float> sum_of(int ranks, int64_t count) {
  std::vector<float> sum(static_cast<size_t>(count), 0.0F);
  for (int r = 0; r < ranks; ++r) {
    for (int64_t i = 0; i < count; ++i) sum[static_cast<size_t>(i)] += value_of(r, i);
  }
  return sum;
}

}  // namespace convoy::comm
