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

int around(int rank, int ranks) {
  return ((rank % ranks) + ranks) % ranks;
}

const Strip& strip_before(const Strips& strips, int rank, int steps) {
  return strips[static_cast<size_t>(around(rank - steps, static_cast<int>(strips.size())))];
}

}  // namespace

Strips ring_strips(int64_t count, int ranks, Edges edges) {
  return even_strips(count, ranks, edges);
}

Task ring_part_reduce(Communicator& c, std::span<float> values, Strips strips, int tag) {
  const int n = c.size();
  int64_t largest = 0;
  for (const Strip& s : strips) largest = std::max(largest, s.size());
  AlignedBuffer scratch = AlignedBuffer::of_floats(largest);
  for (int step = 1; step < n; ++step) {
    const std::span<float> mine = at(values, strip_before(strips, c.rank(), step));
    const std::span<float> sum = at(values, strip_before(strips, c.rank(), step + 1));
    const std::span<float> arrived = scratch.floats().first(sum.size());
    Requests both;
    both.add(c.receive(around(c.rank() - 1, n), tag * kTags, bytes_of(arrived)));
    both.add(c.send(around(c.rank() + 1, n), tag * kTags, bytes_of(mine)));
    co_await std::move(both);
    add_to(arrived, sum);
  }
}

Task ring_part_broadcast(Communicator& c, std::span<float> values, Strips strips, int tag) {
  const int n = c.size();
  for (int step = 0; step < n - 1; ++step) {
    const std::span<float> mine = at(values, strip_before(strips, c.rank(), step));
    const std::span<float> theirs = at(values, strip_before(strips, c.rank(), step + 1));
    Requests both;
    both.add(c.receive(around(c.rank() - 1, n), tag * kTags, bytes_of(theirs)));
    both.add(c.send(around(c.rank() + 1, n), tag * kTags, bytes_of(mine)));
    co_await std::move(both);
  }
}

Task ring_allreduce(Communicator& c, std::span<float> values, int tag) {
  const Strips strips = ring_strips(static_cast<int64_t>(values.size()), c.size());
  co_await ring_part_reduce(c, values, strips, tag);
  co_await ring_part_broadcast(c, values, strips, tag);
}

Traffic ring_traffic(Form form, int rank, const Strips& strips) {
  Traffic t;
  const auto steps = static_cast<int>(strips.size()) - 1;
  for (int step = 0; step < steps; ++step) {
    if (form != Form::part_broadcast) {
      t += {1, Bytes{4 * strip_before(strips, rank, step + 1).size()}};
    }
    if (form != Form::part_reduce) t += {1, Bytes{4 * strip_before(strips, rank, step).size()}};
  }
  return t;
}

Seconds ring_time(Form form, int ranks, int64_t count, const LinkSpeed& link) {
  const double steps = ranks - 1;
  const double bytes = 4.0 * static_cast<double>(count) / ranks;
  const double round = steps * (link.latency.value + link.transfer_to_one(bytes, bytes).value);
  const double adding = steps * bytes * link.add_per_byte.value;
  if (form == Form::part_broadcast) return {round};
  return {form == Form::part_reduce ? round + adding : 2 * round + adding};
}

}  // namespace convoy::comm
