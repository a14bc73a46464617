#include "convoy/comm/alltoall.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "convoy/base/error.hpp"

namespace convoy::comm {
namespace {

constexpr int64_t kLongest = int64_t{1} << 30;

std::span<std::byte> piece_of(std::vector<std::byte>& buffer, int64_t left) {
  return std::span(buffer).first(std::min(buffer.size(), static_cast<size_t>(left)));
}

Task send_all(Communicator& c, int to, const Streams& streams, std::vector<std::byte>& buffer,
              int tag) {
  for (int64_t left = streams.to[static_cast<size_t>(to)]; left > 0;) {
    const std::span<std::byte> piece = piece_of(buffer, left);
    streams.give(to, piece);
    co_await c.send(to, tag * kTags, piece);
    left -= static_cast<int64_t>(piece.size());
  }
}

Task take_all(Communicator& c, int from, const Streams& streams, std::vector<std::byte>& buffer,
              int tag) {
  for (int64_t left = streams.from[static_cast<size_t>(from)]; left > 0;) {
    const std::span<std::byte> piece = piece_of(buffer, left);
    co_await c.receive(from, tag * kTags, piece);
    streams.take(from, piece);
    left -= static_cast<int64_t>(piece.size());
  }
}

/// As much as the longest stream to or from another rank, or a segment.
size_t buffer_bytes(std::span<const int64_t> streams, int rank, Bytes room) {
  int64_t longest = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    if (static_cast<int>(i) != rank) longest = std::max(longest, streams[i]);
  }
  return static_cast<size_t>(std::min(longest, segment_bytes(room)));
}

}  // namespace

int64_t segment_bytes(Bytes room) {
  return std::clamp(room.value / 2, int64_t{1}, kLongest);
}

Task alltoall(Communicator& c, Streams streams, Bytes room, int tag) {
  const int n = c.size();
  check(static_cast<int>(streams.to.size()) == n && static_cast<int>(streams.from.size()) == n,
        "there is a stream for every rank");
  std::vector<std::byte> outgoing(buffer_bytes(streams.to, c.rank(), room));
  std::vector<std::byte> incoming(buffer_bytes(streams.from, c.rank(), room));
  for (int round = 1; round < n; ++round) {
    Tasks both;
    both.add(take_all(c, (c.rank() - round + n) % n, streams, incoming, tag));
    both.add(send_all(c, (c.rank() + round) % n, streams, outgoing, tag));
    co_await std::move(both);
  }
}

Traffic alltoall_traffic(int rank, std::span<const int64_t> to, Bytes room) {
  const int64_t segment = segment_bytes(room);
  Traffic t;
  for (size_t i = 0; i < to.size(); ++i) {
    if (static_cast<int>(i) != rank) t += {(to[i] + segment - 1) / segment, Bytes{to[i]}};
  }
  return t;
}

Seconds alltoall_time(int ranks, Bytes bytes, Bytes room, const LinkSpeed& link) {
  const int64_t segment = std::min(segment_bytes(room), std::max(bytes.value, int64_t{1}));
  const auto messages = static_cast<double>((bytes.value + segment - 1) / segment);
  const Seconds transfer =
      link.transfer(static_cast<double>(bytes.value), static_cast<double>(segment));
  return {(ranks - 1) * (messages * link.latency.value + transfer.value)};
}

}  // namespace convoy::comm
