#pragma once
// Counter-based random numbers (Philox4x32-10, Salmon et al. 2011). A value depends only on its
// key and its position, never on rank, thread, time or how many were drawn before: the ground on
// which "same bits anywhere" stands.

#include <array>
#include <cstdint>

namespace convoy {

/// What a random stream is for; part of its key, so that two purposes never share numbers.
enum class Purpose : uint32_t { init = 1, shuffle, augment, dropout, synthetic, test };

/// A 64-bit key made of all four parts, for kernels that run Philox themselves.
uint64_t stream_key(uint64_t seed, Purpose purpose, uint64_t major, uint64_t minor);

/// One stream of random numbers, identified by (seed, purpose, major, minor).
/// By convention `major` is an epoch or step and `minor` a sample or layer.
class Stream {
 public:
  Stream(uint64_t seed, Purpose purpose, uint64_t major = 0, uint64_t minor = 0);

  /// The four 32-bit words at position `index`.
  std::array<uint32_t, 4> block(uint64_t index) const;

  /// The next 32-bit word; position 0, 1, 2, … of the stream.
  uint32_t next_u32();
  /// Uniform in [0, 1), 24 bits.
  float uniform();
  /// Uniform integer in [0, n), without bias; n > 0.
  uint32_t below(uint32_t n);
  /// Standard normal (Box–Muller).
  float normal();

 private:
  std::array<uint32_t, 2> key_{};
  std::array<uint32_t, 2> high_{};  // upper half of the 128-bit counter
  uint64_t position_ = 0;
  std::array<uint32_t, 4> buffer_{};
};

/// Position of element `index` after shuffling [0, size) with `key`: a bijection computed without
/// a table (Feistel network with cycle walking), so any worker can ask for any position.
uint64_t permuted(uint64_t index, uint64_t size, uint64_t seed, uint64_t epoch);

}  // namespace convoy
