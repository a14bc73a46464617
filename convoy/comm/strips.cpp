#include <algorithm>

#include "convoy/base/error.hpp"
#include "convoy/comm/collectives.hpp"

namespace convoy::comm {
namespace {

/// The allowed cut nearest to the ideal one.
int64_t cut(int64_t count, int64_t part, int parts, Edges edges) {
  constexpr int64_t kLine = 16;  // floats
  if (part == 0) return 0;
  if (part == parts) return count;
  if (edges.empty()) {
    const int64_t lines = (count + kLine - 1) / kLine;
    return std::min(count, lines * part / parts * kLine);
  }
  const int64_t ideal = count * part / parts;
  const auto above = std::lower_bound(edges.begin(), edges.end(), ideal);
  const int64_t high = above == edges.end() ? count : std::min(*above, count);
  const int64_t low = above == edges.begin() ? 0 : *std::prev(above);
  return high - ideal < ideal - low ? high : low;
}

}  // namespace

Strips even_strips(int64_t count, int parts, Edges edges) {
  Strips strips;
  for (int p = 0; p < parts; ++p) {
    strips.push_back({cut(count, p, parts, edges), cut(count, p + 1, parts, edges)});
  }
  return strips;
}

Strip strip_of(int64_t count, int part, int parts) {
  return {cut(count, part, parts, {}), cut(count, part + 1, parts, {})};
}

int64_t count_of(const Strips& strips) {
  int64_t at = 0;
  for (const Strip& s : strips) {
    check(s.begin == at && s.end >= at, "strips cover all values in ascending order");
    at = s.end;
  }
  return at;
}

void add_to(std::span<const float> from, std::span<float> to) {
  const float* __restrict a = from.data();
  float* __restrict b = to.data();
  for (size_t i = 0; i < to.size(); ++i) b[i] += a[i];
}

}  // namespace convoy::comm
