#pragma once
// How old the weights were that gradients were computed from: for each gradient, the updates that
// were made to a shard between the pull of its weights and the update by it.

#include <array>
#include <cstddef>
#include <cstdint>

namespace convoy::sync {

/// Plain bytes, so that workers can send it to each other.
class Staleness {
 public:
  static constexpr size_t kBins = 64;

  void record(int64_t updates);
  Staleness& operator+=(const Staleness& other);

  /// Gradients by staleness; the last bin has those that were that stale or more.
  const std::array<int64_t, kBins>& counts() const { return counts_; }
  int64_t total() const;
  double mean() const;
  int64_t most() const { return most_; }

 private:
  std::array<int64_t, kBins> counts_{};
  int64_t sum_ = 0;
  int64_t most_ = 0;
};

}  // namespace convoy::sync
