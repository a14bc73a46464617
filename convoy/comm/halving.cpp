// Recursive halving and doubling. With N a power of two: in each step a rank exchanges half of what
// it still sums with a partner twice as far away, until it has the sum of one Nth; then the parts
// come back the same way.
//
//   N = 4     halving              doubling
//   step 0    0↔2, 1↔3: half       step 0    0↔1, 2↔3: quarter
//   step 1    0↔1, 2↔3: quarter    step 1    0↔2, 1↔3: half
//
// Otherwise the first 2·(N − P) ranks, P the largest power of two, pair up: the odd one gives all
// its values to the even one and gets the result at the end.

#include <algorithm>
#include <bit>

#include "convoy/base/memory.hpp"
#include "convoy/comm/collectives.hpp"

namespace convoy::comm {
namespace {

/// A rank's part in the power of two, or none (−1), and the way back to ranks.
struct Fold {
  int power, extra;
  explicit Fold(int ranks)
      : power(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        extra(ranks - power) {}
  int place(int rank) const {
    if (rank >= 2 * extra) return rank - extra;
    return rank % 2 == 0 ? rank / 2 : -1;
  }
  int rank(int place) const { return place < extra ? 2 * place : place + extra; }
};

/// The range of values that a place still sums after the steps down to distance `distance`.
Strip range_of(int64_t count, int place, int power, int distance) {
  const int first = place / distance * distance;
  return {strip_of(count, first, power).begin, strip_of(count, first + distance - 1, power).end};
}

std::span<float> at(std::span<float> values, const Strip& s) {
  return values.subspan(static_cast<size_t>(s.begin), static_cast<size_t>(s.size()));
}

}  // namespace

Task halving_allreduce(Communicator& c, std::span<float> values, int tag) {
  const Fold fold(c.size());
  const int place = fold.place(c.rank());
  const auto count = static_cast<int64_t>(values.size());
  if (place < 0) {
    co_await c.send(c.rank() - 1, tag * kTags, bytes_of(values));
    co_await c.receive(c.rank() - 1, tag * kTags, bytes_of(values));
    co_return;
  }
  const bool folded = c.rank() < 2 * fold.extra;
  AlignedBuffer scratch = AlignedBuffer::of_floats(
      folded ? count
             : (fold.power > 1 ? range_of(count, place, fold.power, fold.power / 2).size() : 0));
  if (folded) {
    const std::span<float> arrived = scratch.floats().first(values.size());
    co_await c.receive(c.rank() + 1, tag * kTags, bytes_of(arrived));
    add_to(arrived, values);
  }
  for (int distance = fold.power / 2; distance >= 1; distance /= 2) {
    const int partner = place ^ distance;
    const std::span<float> keep = at(values, range_of(count, place, fold.power, distance));
    const std::span<float> give = at(values, range_of(count, partner, fold.power, distance));
    const std::span<float> arrived = scratch.floats().first(keep.size());
    Requests both;
    both.add(c.receive(fold.rank(partner), tag * kTags, bytes_of(arrived)));
    both.add(c.send(fold.rank(partner), tag * kTags, bytes_of(give)));
    co_await std::move(both);
    add_to(arrived, keep);
  }
  for (int distance = 1; distance < fold.power; distance *= 2) {
    const int partner = place ^ distance;
    Requests both;
    both.add(c.receive(fold.rank(partner), tag * kTags,
                       bytes_of(at(values, range_of(count, partner, fold.power, distance)))));
    both.add(c.send(fold.rank(partner), tag * kTags,
                    bytes_of(at(values, range_of(count, place, fold.power, distance)))));
    co_await std::move(both);
  }
  if (folded) co_await c.send(c.rank() + 1, tag * kTags, bytes_of(values));
}

Traffic halving_traffic(int rank, int ranks, int64_t count) {
  const Fold fold(ranks);
  const int place = fold.place(rank);
  Traffic t;
  const auto send = [&](int64_t values) {
    ++t.messages;
    t.bytes += Bytes{4 * values};
  };
  if (place < 0 || rank < 2 * fold.extra) send(count);
  if (place < 0) return t;
  for (int distance = fold.power / 2; distance >= 1; distance /= 2) {
    send(range_of(count, place ^ distance, fold.power, distance).size());
    send(range_of(count, place, fold.power, distance).size());
  }
  return t;
}

Seconds halving_time(int ranks, int64_t count, const LinkSpeed& link) {
  const Fold fold(ranks);
  const double bytes = 4.0 * static_cast<double>(count);
  const double steps = std::bit_width(static_cast<unsigned>(fold.power)) - 1;
  const double moved = bytes * (1.0 - 1.0 / fold.power);
  double time =
      2 * steps * link.latency.value + moved * (2 * link.per_byte.value + link.add_per_byte.value);
  if (fold.extra > 0) {
    time += 2 * link.latency.value + bytes * (2 * link.per_byte.value + link.add_per_byte.value);
  }
  return {time};
}

}  // namespace convoy::comm
