// What ModelServers send: the messages of docs/schemes.md, counted.

#include "convoy/sync/model_servers.hpp"

namespace convoy::sync {
namespace {

constexpr comm::Traffic kCall{1, {sizeof(Call)}};
constexpr comm::Traffic kAnswer{1, {sizeof(Answer)}};
static_assert(sizeof(Call) == 48 && sizeof(Answer) == 16, "docs/schemes.md says so");

comm::Traffic in_pieces(Bytes bytes, Bytes piece) {
  return {(bytes.value + piece.value - 1) / piece.value, bytes};
}

comm::Traffic shard(const ServerLayout& layout, int rank) {
  return in_pieces({4 * layout.shards[static_cast<size_t>(rank)].size()}, layout.piece);
}

comm::Traffic times(int64_t n, const comm::Traffic& each) {
  return {n * each.messages, n * each.bytes};
}

/// Calls to the coordinator for one batch, and answers to them.
struct Coordination {
  int64_t calls = 0;
  int64_t answers = 0;
};
Coordination coordination(Scheme scheme) {
  switch (scheme) {
    case Scheme::stale:
      return {3, 2};  // ticket, start, finished
    case Scheme::asynchronous:
      return {1, 1};  // ticket
    case Scheme::backup:
      return {2, 2};  // ticket, report
  }
  return {};
}

}  // namespace

comm::Traffic ModelServers::traffic(const ServerLayout& layout, int from, int worker) {
  comm::Traffic sent;
  if (from == worker) {
    if (from != 0) sent += times(coordination(layout.scheme).calls, kCall);
    for (int to = 0; to < static_cast<int>(layout.shards.size()); ++to) {
      if (to == from) continue;
      sent += times(2, kCall);  // pull, push
      sent += in_pieces({static_cast<int64_t>(sizeof(double) * layout.norms)}, layout.piece);
      sent += shard(layout, to);
    }
    return sent;
  }
  if (from == 0) sent += times(coordination(layout.scheme).answers, kAnswer);
  sent += times(2, kAnswer);
  sent += shard(layout, from);
  return sent;
}

comm::Traffic ModelServers::segment_traffic(const ServerLayout& layout, int from) {
  const auto others = static_cast<int64_t>(layout.shards.size()) - 1;
  comm::Traffic sent = times(others, kCall);  // leave
  // The ticket that there is not any more.
  sent += from == 0 ? times(others, kAnswer) : kCall;
  sent += times(others * static_cast<int64_t>(layout.arrays), shard(layout, from));
  return sent;
}

}  // namespace convoy::sync
