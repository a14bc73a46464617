#include "convoy/base/random.hpp"

#include <bit>
#include <cmath>
#include <numbers>

#include "convoy/base/philox.hpp"

namespace convoy {
namespace {

// SplitMix64's finaliser: spreads a structured key over all bits.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

std::array<uint32_t, 2> halves(uint64_t x) {
  return {static_cast<uint32_t>(x), static_cast<uint32_t>(x >> 32)};
}

}  // namespace

uint64_t stream_key(uint64_t seed, Purpose purpose, uint64_t major, uint64_t minor) {
  return mix(seed ^ mix(static_cast<uint64_t>(purpose) ^ mix(major ^ mix(minor))));
}

Stream::Stream(uint64_t seed, Purpose purpose, uint64_t major, uint64_t minor)
    : key_(halves(mix(seed ^ mix(static_cast<uint64_t>(purpose) ^ mix(major))))),
      high_(halves(minor)) {}

std::array<uint32_t, 4> Stream::block(uint64_t index) const {
  const auto low = halves(index);
  return philox4x32({low[0], low[1], high_[0], high_[1]}, key_);
}

uint32_t Stream::next_u32() {
  const uint64_t word = position_ % 4;
  if (word == 0) buffer_ = block(position_ / 4);
  ++position_;
  return buffer_[word];
}

float Stream::uniform() {
  return static_cast<float>(next_u32() >> 8) * 0x1p-24F;
}

uint32_t Stream::below(uint32_t n) {
  // Lemire's multiply-shift with rejection of the few values that would be counted twice.
  const uint32_t threshold = (0U - n) % n;
  for (;;) {
    const uint64_t product = static_cast<uint64_t>(next_u32()) * n;
    if (static_cast<uint32_t>(product) >= threshold) return static_cast<uint32_t>(product >> 32);
  }
}

float Stream::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - static_cast<double>(uniform())));
  return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * uniform()));
}

uint64_t permuted(uint64_t index, uint64_t size, uint64_t seed, uint64_t epoch) {
  if (size <= 1) return 0;
  // A balanced Feistel network permutes [0, 4^half); walk its cycle until we are back inside.
  const int half = (std::bit_width(size - 1) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  const std::array<uint32_t, 2> key =
      halves(mix(seed ^ mix(static_cast<uint64_t>(Purpose::shuffle) ^ mix(epoch))));
  constexpr uint32_t kRounds = 4;
  do {
    uint64_t left = index >> half;
    uint64_t right = index & mask;
    for (uint32_t round = 0; round < kRounds; ++round) {
      const auto low = halves(right);
      const uint64_t f = philox4x32({low[0], low[1], round, 0}, key)[0];
      const uint64_t next = (left ^ f) & mask;
      left = right;
      right = next;
    }
    index = (left << half) | right;
  } while (index >= size);
  return index;
}

}  // namespace convoy
