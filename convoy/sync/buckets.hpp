#pragma once
// How the arena is cut into buckets: runs of whole chunks that are exchanged together. Small layers
// share a bucket, large ones are sliced, so that what is needed first need not wait for the rest of
// a large layer.

#include <cstdint>
#include <span>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/comm/collectives.hpp"
#include "convoy/engine/program.hpp"

namespace convoy::sync {

/// A piece of one tensor: the unit of summing and updating. Norms are added up over chunks in
/// order, so they depend neither on lanes nor on workers.
struct Chunk {
  size_t tensor = 0;
  int64_t begin = 0;  ///< arena floats
  int64_t end = 0;
};

/// Floats of the longest chunk: a few of them fit the first-level cache.
inline constexpr int64_t kChunk = 2048;

/// All tensors of the arena in chunks.
std::vector<Chunk> cut_into_chunks(const engine::Arena& arena);

/// Chunks [first, last): arena floats [begin, end).
struct Bucket {
  size_t first = 0;
  size_t last = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

/// Buckets of about `size`, in the order in which the backward pass completes them. A larger layer
/// gets several, and a bucket ends with a layer if it is at least half full.
std::vector<Bucket> cut_into_buckets(const std::vector<Chunk>& chunks, const engine::Arena& arena,
                                     Bytes size);

/// A bucket's chunks in `parts` runs of about equal length; as arena floats.
std::vector<comm::Strip> cut_into_strips(const std::vector<Chunk>& chunks, const Bucket& bucket,
                                         int parts);

}  // namespace convoy::sync
