#include "convoy/sync/staleness.hpp"

#include <algorithm>
#include <numeric>

#include "convoy/base/error.hpp"

namespace convoy::sync {

void Staleness::record(int64_t updates) {
  check(updates >= 0, "weights come before the gradient that is computed from them");
  ++counts_[std::min(static_cast<size_t>(updates), kBins - 1)];
  sum_ += updates;
  most_ = std::max(most_, updates);
}

Staleness& Staleness::operator+=(const Staleness& other) {
  for (size_t i = 0; i < kBins; ++i) counts_[i] += other.counts_[i];
  sum_ += other.sum_;
  most_ = std::max(most_, other.most_);
  return *this;
}

int64_t Staleness::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
}

double Staleness::mean() const {
  return total() > 0 ? static_cast<double>(sum_) / static_cast<double>(total()) : 0;
}

}  // namespace convoy::sync
