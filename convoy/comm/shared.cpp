#include "convoy/comm/shared.hpp"

#include <algorithm>
#include <atomic>

#include "convoy/base/error.hpp"

namespace convoy::comm {
namespace {

/// In front of each rank's values, on a cache line of its own.
struct alignas(64) Header {
  std::atomic<uint64_t> turns;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "it works between processes");

/// Values summed at a time: they stay in the first-level cache until they are written.
constexpr int64_t kPiece = 2048;

Header& header(const SharedMemory& memory, int rank) {
  return *reinterpret_cast<Header*>(memory.part(rank).data());
}

}  // namespace

SharedSum::SharedSum(Communicator& node, int64_t count)
    : rank_(node.rank()),
      ranks_(node.size()),
      count_(count),
      memory_(node.share(Bytes{static_cast<int64_t>(sizeof(Header)) + 4 * count})) {}

std::span<float> SharedSum::values(int rank) const {
  const std::span<std::byte> part = memory_->part(rank);
  return {reinterpret_cast<float*>(part.data() + sizeof(Header)), static_cast<size_t>(count_)};
}

Task SharedSum::barrier() {
  ++turns_;
  header(*memory_, rank_).turns.store(turns_, std::memory_order_release);
  for (int r = 0; r < ranks_; ++r) {
    const std::atomic<uint64_t>& other = header(*memory_, r).turns;
    co_await Until(
        [&other, turn = turns_] { return other.load(std::memory_order_acquire) >= turn; },
        fmt::format("waiting for rank {} of this node", r));
  }
}

void SharedSum::sum_strip() {
  const Strip strip = strip_of(count_, rank_, ranks_);
  alignas(64) float sums[kPiece];
  for (int64_t at = strip.begin; at < strip.end; at += kPiece) {
    const int64_t length = std::min(kPiece, strip.end - at);
    std::copy_n(values(0).data() + at, length, sums);
    for (int r = 1; r < ranks_; ++r) {
      add_to(values(r).subspan(static_cast<size_t>(at), static_cast<size_t>(length)),
             {sums, static_cast<size_t>(length)});
    }
    for (int r = 0; r < ranks_; ++r) std::copy_n(sums, length, values(r).data() + at);
  }
}

Task SharedSum::allreduce() {
  co_await barrier();
  sum_strip();
  co_await barrier();
}

Bytes SharedSum::moved(int ranks, int64_t count) {
  return {2 * ranks * 4 * ((count + ranks - 1) / ranks)};
}

Seconds SharedSum::time(int ranks, int64_t count, Seconds per_byte) {
  return {static_cast<double>(moved(ranks, count).value) * per_byte.value};
}

}  // namespace convoy::comm
