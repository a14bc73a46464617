// Direct: every rank sends every other one its strip, all at once, and the owner adds them in the
// order of the ranks. Then every owner sends its strip to all others.
//
//   N = 3      part-reduce                          part-broadcast
//   rank 0     1 → rank 1, 2 → rank 2; sums 0       0 → rank 1, 0 → rank 2
//   rank 1     0 → rank 0, 2 → rank 2; sums 1       1 → rank 0, 1 → rank 2
//   rank 2     0 → rank 0, 1 → rank 1; sums 2       2 → rank 0, 2 → rank 1
//
// The least bytes in the fewest steps, but N − 1 messages a step, and memory for N − 1 strips.

#include <algorithm>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/comm/collectives.hpp"

namespace convoy::comm {
namespace {

/// Values summed at a time: they stay in the first-level cache.
constexpr int64_t kPiece = 2048;

/// own = the sum of all ranks' values, in the order of the ranks; arrived[rank] is empty.
void add_in_order(std::span<float> own, const std::vector<AlignedBuffer>& arrived, int rank) {
  alignas(64) float sums[kPiece];
  const auto ranks = static_cast<int>(arrived.size());
  for (int64_t begin = 0; begin < static_cast<int64_t>(own.size()); begin += kPiece) {
    const Strip piece{begin, std::min(begin + kPiece, static_cast<int64_t>(own.size()))};
    const std::span<float> sum = std::span(sums).first(static_cast<size_t>(piece.size()));
    for (int r = 0; r < ranks; ++r) {
      const float* from =
          (r == rank ? own.data() : arrived[static_cast<size_t>(r)].floats().data()) + begin;
      if (r == 0) {
        std::copy_n(from, sum.size(), sums);
      } else {
        add_to({from, sum.size()}, sum);
      }
    }
    std::copy_n(sums, sum.size(), own.data() + begin);
  }
}

}  // namespace

Strips direct_strips(int64_t count, int ranks, Edges edges) {
  return even_strips(count, ranks, edges);
}

Task direct_part_reduce(Communicator& c, std::span<float> values, Strips strips, int tag) {
  const int n = c.size();
  const std::span<float> own = at(values, strips[static_cast<size_t>(c.rank())]);
  std::vector<AlignedBuffer> arrived(static_cast<size_t>(n));
  Requests all;
  for (int step = 1; step < n && !own.empty(); ++step) {
    const int from = (c.rank() + n - step) % n;
    AlignedBuffer& buffer = arrived[static_cast<size_t>(from)];
    buffer = AlignedBuffer::of_floats(static_cast<int64_t>(own.size()));
    all.add(c.receive(from, tag * kTags, bytes_of(buffer.floats())));
  }
  for (int step = 1; step < n; ++step) {
    const int to = (c.rank() + step) % n;  // not all to the same at once
    const std::span<float> theirs = at(values, strips[static_cast<size_t>(to)]);
    if (!theirs.empty()) all.add(c.send(to, tag * kTags, bytes_of(theirs)));
  }
  co_await std::move(all);
  if (n > 1) add_in_order(own, arrived, c.rank());
}

Task direct_part_broadcast(Communicator& c, std::span<float> values, Strips strips, int tag) {
  const int n = c.size();
  const std::span<float> own = at(values, strips[static_cast<size_t>(c.rank())]);
  Requests all;
  for (int step = 1; step < n; ++step) {
    const int from = (c.rank() + n - step) % n;
    const std::span<float> theirs = at(values, strips[static_cast<size_t>(from)]);
    if (!theirs.empty()) all.add(c.receive(from, tag * kTags, bytes_of(theirs)));
  }
  for (int step = 1; step < n && !own.empty(); ++step) {
    all.add(c.send((c.rank() + step) % n, tag * kTags, bytes_of(own)));
  }
  co_await std::move(all);
}

Task direct_allreduce(Communicator& c, std::span<float> values, int tag) {
  const Strips strips = direct_strips(static_cast<int64_t>(values.size()), c.size());
  co_await direct_part_reduce(c, values, strips, tag);
  co_await direct_part_broadcast(c, values, strips, tag);
}

Traffic direct_traffic(Form form, int rank, const Strips& strips) {
  Traffic t;
  const auto ranks = static_cast<int>(strips.size());
  const int64_t own = strips[static_cast<size_t>(rank)].size();
  for (int to = 0; to < ranks; ++to) {
    const int64_t theirs = strips[static_cast<size_t>(to)].size();
    if (to == rank) continue;
    if (form != Form::part_broadcast && theirs > 0) t += {1, Bytes{4 * theirs}};
    if (form != Form::part_reduce && own > 0) t += {1, Bytes{4 * own}};
  }
  return t;
}

Seconds direct_time(Form form, int ranks, int64_t count, const LinkSpeed& link) {
  if (ranks < 2) return {0};
  const double strip = 4.0 * static_cast<double>(count) / ranks;
  const double moved = strip * (ranks - 1);
  const double step =
      link.latency.value + (ranks - 2) * link.per_message.value + link.transfer(moved, strip).value;
  const double adding = moved * link.add_per_byte.value;
  if (form == Form::part_broadcast) return {step};
  return {form == Form::part_reduce ? step + adding : 2 * step + adding};
}

}  // namespace convoy::comm
