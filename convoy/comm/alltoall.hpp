#pragma once
// Everybody sends to everybody, each pair of ranks as much as it likes: a stream of bytes of any
// length for every pair, cut into segments, so that neither all of it nor a copy of it has to be in
// memory at once.
//
// With N ranks there are N − 1 rounds. In round r a rank sends to the r-th rank after it and takes
// from the r-th before it, so that nobody has two senders at a time:
//
//   N = 4     round 1     round 2     round 3
//   rank 0    0 → 1       0 → 2       0 → 3
//   rank 1    1 → 2       1 → 3       1 → 0
//   rank 2    2 → 3       2 → 0       2 → 1
//   rank 3    3 → 0       3 → 1       3 → 2

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/comm/collectives.hpp"
#include "convoy/comm/communicator.hpp"
#include "convoy/comm/task.hpp"

namespace convoy::comm {

/// What one rank sends and takes. Both ends of a pair must name the same length. What is meant for
/// the rank itself is left out.
struct Streams {
  std::vector<int64_t> to;    ///< bytes for each rank
  std::vector<int64_t> from;  ///< bytes from each rank
  /// Writes the next bytes of the stream to `rank`.
  std::function<void(int rank, std::span<std::byte> piece)> give;
  /// Reads the next bytes of the stream from `rank`.
  std::function<void(int rank, std::span<const std::byte> piece)> take;
};

/// The longest message if all buffers of a rank together have `room` bytes: half of it, for there
/// is one on its way out and one on its way in; at most 1 GiB, because MPI counts in 31 bits.
int64_t segment_bytes(Bytes room);

/// Uses the first tag of `tag`; all ranks name the same `room`.
Task alltoall(Communicator& c, Streams streams, Bytes room, int tag);

/// What a rank sends if it has `to` for the others: whole segments, and one that is shorter.
Traffic alltoall_traffic(int rank, std::span<const int64_t> to, Bytes room);
/// If every pair of ranks has `bytes` to exchange:
/// (N − 1) · (⌈bytes / segment⌉ · latency + bytes · per_byte).
Seconds alltoall_time(int ranks, Bytes bytes, Bytes room, const LinkSpeed& link);

}  // namespace convoy::comm
