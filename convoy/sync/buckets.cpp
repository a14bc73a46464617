#include "convoy/sync/buckets.hpp"

#include <algorithm>

namespace convoy::sync {

std::vector<Chunk> cut_into_chunks(const engine::Arena& arena) {
  std::vector<Chunk> chunks;
  for (size_t t = 0; t < arena.tensors().size(); ++t) {
    const engine::Tensor& tensor = arena.tensors()[t];
    const int64_t end = tensor.offset + tensor.stored;
    for (int64_t at = tensor.offset; at < end; at += kChunk) {
      chunks.push_back({t, at, std::min(at + kChunk, end)});
    }
  }
  return chunks;
}

std::vector<Bucket> cut_into_buckets(const std::vector<Chunk>& chunks, const engine::Arena& arena,
                                     Bytes size) {
  const int64_t full = std::max<int64_t>(size.value / 4, kChunk);
  const auto layer = [&](size_t chunk) { return arena.tensors()[chunks[chunk].tensor].layer; };
  std::vector<Bucket> buckets;
  Bucket now;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (now.first == now.last) now = {i, i, chunks[i].begin, chunks[i].begin};
    now.last = i + 1;
    now.end = chunks[i].end;
    const int64_t length = now.end - now.begin;
    const bool layer_ends = i + 1 == chunks.size() || layer(i + 1) != layer(i);
    if (length < full && !(layer_ends && 2 * length >= full) && i + 1 < chunks.size()) continue;
    buckets.push_back(now);
    now = {};
  }
  return buckets;
}

std::vector<comm::Strip> cut_into_strips(const std::vector<Chunk>& chunks, const Bucket& bucket,
                                         int parts) {
  std::vector<comm::Strip> strips;
  const int64_t length = bucket.end - bucket.begin;
  const auto edge = [&](int part) {
    const int64_t wanted = bucket.begin + length * part / parts;
    const auto last = chunks.begin() + static_cast<std::ptrdiff_t>(bucket.last);
    const auto found =
        std::lower_bound(chunks.begin() + static_cast<std::ptrdiff_t>(bucket.first), last, wanted,
                         [](const Chunk& chunk, int64_t at) { return chunk.begin < at; });
    return found == last ? bucket.end : found->begin;
  };
  for (int part = 0; part < parts; ++part) strips.push_back({edge(part), edge(part + 1)});
  return strips;
}

}  // namespace convoy::sync
