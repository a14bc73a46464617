#include "convoy/comm/shared.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "convoy/base/error.hpp"

namespace convoy::comm {
namespace {

/// In front of each rank's values, on a cache line of its own.
struct alignas(64) Header {
  std::atomic<uint64_t> turns;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "it works between processes");

Header& header(const SharedMemory& memory, int rank) {
  return *reinterpret_cast<Header*>(memory.part(rank).data());
}

/// to[…][i] = the sum of all from[…][i]. Two cache lines at a time, in registers, so that every
/// value is read and written just once. Streaming stores were slower: the lines that they would
/// spare from being read have been read anyway.
void sum_pass(std::span<float* const> from, std::span<float* const> to, int64_t count) {
  constexpr int64_t kBlock = 32;
  using Floats = float __attribute__((vector_size(32)));
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    Floats sums[kBlock / 8];
    std::memcpy(sums, from[0] + i, sizeof sums);
    for (size_t r = 1; r < from.size(); ++r) {
      Floats more[kBlock / 8];
      std::memcpy(more, from[r] + i, sizeof more);
      for (int64_t v = 0; v < kBlock / 8; ++v) sums[v] += more[v];
    }
    for (float* target : to) std::memcpy(target + i, sums, sizeof sums);
  }
  for (; i < count; ++i) {
    float sum = from[0][i];
    for (size_t r = 1; r < from.size(); ++r) sum += from[r][i];
    for (float* target : to) target[i] = sum;
  }
}

}  // namespace

SharedSum::SharedSum(Communicator& node, int64_t count)
    : rank_(node.rank()),
      ranks_(node.size()),
      count_(count),
      everybody_(static_cast<size_t>(node.size())),
      memory_(node.share(Bytes{static_cast<int64_t>(sizeof(Header)) + 4 * count})) {
  std::iota(everybody_.begin(), everybody_.end(), 0);
}

std::span<float> SharedSum::values(int rank) const {
  const std::span<std::byte> part = memory_->part(rank);
  return {reinterpret_cast<float*>(part.data() + sizeof(Header)), static_cast<size_t>(count_)};
}

Task SharedSum::barrier() {
  ++turns_;
  header(*memory_, rank_).turns.store(turns_, std::memory_order_release);
  for (int r = 0; r < ranks_; ++r) {
    const std::atomic<uint64_t>& other = header(*memory_, r).turns;
    const auto came = [&other, turn = turns_] {
      return other.load(std::memory_order_acquire) >= turn;
    };
    if (!came()) co_await Until(came, fmt::format("waiting for rank {} of this node", r));
  }
}

void SharedSum::sum(const Strip& strip, std::span<const int> to) const {
  std::vector<float*> from, targets;
  for (int r = 0; r < ranks_; ++r) from.push_back(values(r).data() + strip.begin);
  for (const int r : to) targets.push_back(values(r).data() + strip.begin);
  sum_pass(from, targets, strip.size());
}

Task SharedSum::allreduce() {
  co_await barrier();
  sum(strip_of(count_, rank_, ranks_), everybody_);
  co_await barrier();
}

Bytes SharedSum::moved(int ranks, int64_t count) {
  return {2 * ranks * 4 * ((count + ranks - 1) / ranks)};
}

Seconds SharedSum::time(int ranks, int64_t count, Seconds per_byte) {
  return {static_cast<double>(moved(ranks, count).value) * per_byte.value};
}

}  // namespace convoy::comm
