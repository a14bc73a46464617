#include "convoy/engine/memory_plan.hpp"

#include <algorithm>
#include <numeric>

namespace convoy::engine {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned(Bytes size) {
  return (size.value + kAlignment - 1) / kAlignment * kAlignment;
}

bool together(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

MemoryPlan plan_memory(std::span<const Lifetime> buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return buffers[a].size > buffers[b].size; });

  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  std::vector<size_t> placed;  // sorted by offset
  for (const size_t id : order) {
    int64_t offset = 0;
    for (const size_t other : placed) {
      if (!together(buffers[id], buffers[other])) continue;
      if (offset + aligned(buffers[id].size) <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + aligned(buffers[other].size));
    }
    plan.offsets[id] = offset;
    plan.total.value = std::max(plan.total.value, offset + aligned(buffers[id].size));
    const auto at = std::upper_bound(placed.begin(), placed.end(), offset,
                                     [&](int64_t o, size_t p) { return o < plan.offsets[p]; });
    placed.insert(at, id);
  }
  return plan;
}

Bytes lower_bound(std::span<const Lifetime> buffers) {
  Bytes most;
  for (const Lifetime& at : buffers) {
    Bytes alive;
    for (const Lifetime& other : buffers) {
      if (other.first <= at.first && at.first <= other.last) alive.value += aligned(other.size);
    }
    most = std::max(most, alive);
  }
  return most;
}

}  // namespace convoy::engine
