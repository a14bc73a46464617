#pragma once
// One arena for all activations: buffers that are never alive together share the same bytes.

#include <cstdint>
#include <span>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy::engine {

/// A buffer and the instructions (first and last, inclusive) between which it must keep its bytes.
struct Lifetime {
  Bytes size;
  int first = 0;
  int last = 0;
};

/// Where each buffer lies in the arena (64-byte aligned), and how large the arena is.
struct MemoryPlan {
  std::vector<int64_t> offsets;
  Bytes total;
};

/// Places the largest buffers first, each at the lowest offset where it overlaps no buffer that
/// is alive at the same time. Deterministic; within a few percent of the lower bound on our nets.
MemoryPlan plan_memory(std::span<const Lifetime> buffers);

/// The most bytes alive at any one instruction: no plan can do better.
Bytes lower_bound(std::span<const Lifetime> buffers);

}  // namespace convoy::engine
