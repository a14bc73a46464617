#pragma once
// How kernels lay out their scratch memory.

#include "convoy/engine/kernels/isa/vec.hpp"
#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::engine::CONVOY_ISA {

inline int64_t blocks_of(int64_t channels) {
  return (channels + kBlock - 1) / kBlock;
}

/// At least `floats`, rounded up to an odd number of cache lines: rows or slices that far apart do
/// not fight for one set of the cache.
inline int64_t odd_lines(int64_t floats) {
  constexpr int64_t kLine = 16;
  return ((floats + kLine - 1) / kLine | 1) * kLine;
}

}  // namespace convoy::engine::CONVOY_ISA
