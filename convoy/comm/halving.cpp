// Recursive halving and doubling. With N a power of two: in each step a rank exchanges half of what
// it still sums with a partner twice as far away, until it has the sum of one Nth; then the parts
// come back the same way.
//
//   N = 4     halving              doubling
//   step 0    0↔2, 1↔3: half       step 0    0↔1, 2↔3: quarter
//   step 1    0↔1, 2↔3: quarter    step 1    0↔2, 1↔3: half
//
// Otherwise the first 2·(N − P) ranks, P the largest power of two, pair up: the odd one gives all
// its values to the even one, owns nothing, and gets the result at the end.

#include <algorithm>
#include <bit>

#include "convoy/base/error.hpp"
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

/// The values that the strips of `distance` places, of which `place` is one, cover together.
Strip range_of(const Strips& strips, const Fold& fold, int place, int distance) {
  const int first = place / distance * distance;
  return {strips[static_cast<size_t>(fold.rank(first))].begin,
          strips[static_cast<size_t>(fold.rank(first + distance - 1))].end};
}

}  // namespace

Strips halving_strips(int64_t count, int ranks, Edges edges) {
  const Fold fold(ranks);
  const Strips parts = even_strips(count, fold.power, edges);
  Strips strips;
  for (int rank = 0; rank < ranks; ++rank) {
    const int place = fold.place(rank);
    const int64_t end = rank == 0 ? 0 : strips.back().end;
    strips.push_back(place < 0 ? Strip{end, end} : parts[static_cast<size_t>(place)]);
  }
  return strips;
}

Task halving_part_reduce(Communicator& c, std::span<float> values, Strips strips, int tag) {
  const Fold fold(c.size());
  const int place = fold.place(c.rank());
  if (place < 0) {
    check(strips[static_cast<size_t>(c.rank())].size() == 0, "a surplus rank owns nothing");
    co_await c.send(c.rank() - 1, tag * kTags, bytes_of(values));
    co_return;
  }
  const bool folded = c.rank() < 2 * fold.extra;
  AlignedBuffer scratch = AlignedBuffer::of_floats(static_cast<int64_t>(values.size()));
  if (folded) {
    co_await c.receive(c.rank() + 1, tag * kTags, bytes_of(scratch.floats()));
    add_to(scratch.floats(), values);
  }
  for (int distance = fold.power / 2; distance >= 1; distance /= 2) {
    const int partner = place ^ distance;
    const std::span<float> keep = at(values, range_of(strips, fold, place, distance));
    const std::span<float> give = at(values, range_of(strips, fold, partner, distance));
    const std::span<float> arrived = scratch.floats().first(keep.size());
    Requests both;
    both.add(c.receive(fold.rank(partner), tag * kTags, bytes_of(arrived)));
    both.add(c.send(fold.rank(partner), tag * kTags, bytes_of(give)));
    co_await std::move(both);
    add_to(arrived, keep);
  }
}

Task halving_part_broadcast(Communicator& c, std::span<float> values, Strips strips, int tag) {
  const Fold fold(c.size());
  const int place = fold.place(c.rank());
  if (place < 0) {
    co_await c.receive(c.rank() - 1, tag * kTags, bytes_of(values));
    co_return;
  }
  for (int distance = 1; distance < fold.power; distance *= 2) {
    const int partner = place ^ distance;
    const std::span<float> theirs = at(values, range_of(strips, fold, partner, distance));
    const std::span<float> mine = at(values, range_of(strips, fold, place, distance));
    Requests both;
    both.add(c.receive(fold.rank(partner), tag * kTags, bytes_of(theirs)));
    both.add(c.send(fold.rank(partner), tag * kTags, bytes_of(mine)));
    co_await std::move(both);
  }
  if (c.rank() < 2 * fold.extra) co_await c.send(c.rank() + 1, tag * kTags, bytes_of(values));
}

Task halving_allreduce(Communicator& c, std::span<float> values, int tag) {
  const Strips strips = halving_strips(static_cast<int64_t>(values.size()), c.size());
  co_await halving_part_reduce(c, values, strips, tag);
  co_await halving_part_broadcast(c, values, strips, tag);
}

Traffic halving_traffic(Form form, int rank, const Strips& strips) {
  const Fold fold(static_cast<int>(strips.size()));
  const int place = fold.place(rank);
  Traffic t;
  if (place < 0) {
    if (form != Form::part_broadcast) t += {1, Bytes{4 * count_of(strips)}};
    return t;
  }
  for (int distance = fold.power / 2; distance >= 1; distance /= 2) {
    if (form != Form::part_broadcast) {
      t += {1, Bytes{4 * range_of(strips, fold, place ^ distance, distance).size()}};
    }
    if (form != Form::part_reduce) {
      t += {1, Bytes{4 * range_of(strips, fold, place, distance).size()}};
    }
  }
  if (rank < 2 * fold.extra && form != Form::part_reduce) t += {1, Bytes{4 * count_of(strips)}};
  return t;
}

Seconds halving_time(Form form, int ranks, int64_t count, const LinkSpeed& link) {
  const Fold fold(ranks);
  const double bytes = 4.0 * static_cast<double>(count);
  double round = 0;
  double moved = 0;
  const auto step = [&](double message) {
    round += link.latency.value + link.transfer_to_one(message, message).value;
    moved += message;
  };
  for (int distance = fold.power / 2; distance >= 1; distance /= 2) {
    step(bytes * distance / fold.power);
  }
  if (fold.extra > 0) step(bytes);
  const double adding = moved * link.add_per_byte.value;
  if (form == Form::part_broadcast) return {round};
  return {form == Form::part_reduce ? round + adding : 2 * round + adding};
}

}  // namespace convoy::comm
