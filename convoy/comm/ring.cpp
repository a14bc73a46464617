// Ring: in step s, rank r sends the strip that it has just summed to r + 1 and takes the one before
// from r − 1. After N − 1 steps every rank has the whole sum of one strip; the strips then go round
// once more.
//
//   part-reduce, N = 3     step 0         step 1                rank r ends with strip r
//   rank 0                 2 → rank 1     1 → rank 1
//   rank 1                 0 → rank 2     2 → rank 2
//   rank 2                 1 → rank 0     0 → rank 0

#include <algorithm>

#include "convoy/base/memory.hpp"
#include "convoy/comm/collectives.hpp"

namespace convoy::comm {
namespace {

std::span<float> piece(std::span<float> values, int part, int parts) {
  const Strip s = strip_of(static_cast<int64_t>(values.size()), part, parts);
  return values.subspan(static_cast<size_t>(s.begin), static_cast<size_t>(s.size()));
}

int around(int rank, int ranks) {
  return ((rank % ranks) + ranks) % ranks;
}

int64_t largest_strip(int64_t count, int ranks) {
  int64_t most = 0;
  for (int r = 0; r < ranks; ++r) most = std::max(most, strip_of(count, r, ranks).size());
  return most;
}

}  // namespace

Task ring_part_reduce(Communicator& c, std::span<float> values, int tag) {
  const int n = c.size();
  const int next = around(c.rank() + 1, n);
  const int before = around(c.rank() - 1, n);
  AlignedBuffer scratch =
      AlignedBuffer::of_floats(largest_strip(static_cast<int64_t>(values.size()), n));
  for (int step = 0; step < n - 1; ++step) {
    const std::span<float> mine = piece(values, around(c.rank() - 1 - step, n), n);
    const std::span<float> sum = piece(values, around(c.rank() - 2 - step, n), n);
    const std::span<float> arrived = scratch.floats().first(sum.size());
    Requests both;
    both.add(c.receive(before, tag * kTags, bytes_of(arrived)));
    both.add(c.send(next, tag * kTags, bytes_of(mine)));
    co_await std::move(both);
    add_to(arrived, sum);
  }
}

Task ring_part_broadcast(Communicator& c, std::span<float> values, int tag) {
  const int n = c.size();
  const int next = around(c.rank() + 1, n);
  const int before = around(c.rank() - 1, n);
  for (int step = 0; step < n - 1; ++step) {
    Requests both;
    both.add(
        c.receive(before, tag * kTags, bytes_of(piece(values, around(c.rank() - 1 - step, n), n))));
    both.add(c.send(next, tag * kTags, bytes_of(piece(values, around(c.rank() - step, n), n))));
    co_await std::move(both);
  }
}

Task ring_allreduce(Communicator& c, std::span<float> values, int tag) {
  co_await ring_part_reduce(c, values, tag);
  co_await ring_part_broadcast(c, values, tag);
}

Traffic ring_traffic(int rank, int ranks, int64_t count) {
  Traffic t;
  for (int step = 0; step < ranks - 1; ++step) {
    t.messages += 2;
    t.bytes += Bytes{4 * strip_of(count, around(rank - 1 - step, ranks), ranks).size()};
    t.bytes += Bytes{4 * strip_of(count, around(rank - step, ranks), ranks).size()};
  }
  return t;
}

Seconds ring_time(int ranks, int64_t count, const LinkSpeed& link) {
  const double steps = ranks - 1;
  const double bytes = 4.0 * static_cast<double>(largest_strip(count, ranks));
  return {steps *
          (2 * link.latency.value + bytes * (2 * link.per_byte.value + link.add_per_byte.value))};
}

}  // namespace convoy::comm
