#include "convoy/sync/tree_exchange.hpp"

#include <algorithm>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"

namespace convoy::sync {
namespace {

/// Values summed at a time: they stay in the first-level cache.
constexpr int64_t kPiece = 2048;

}  // namespace

std::vector<GrainRange> ranges_of(std::span<const int64_t> shares) {
  std::vector<GrainRange> ranges;
  int64_t at = 0;
  for (const int64_t share : shares) {
    ranges.push_back({at, at + share});
    at += share;
  }
  return ranges;
}

std::vector<TreeNode> subtrees(const GrainRange& range) {
  std::vector<TreeNode> nodes;
  for (int64_t at = range.first; at < range.last;) {
    int level = 0;
    while (at % (int64_t{2} << level) == 0 && at + (int64_t{2} << level) <= range.last) ++level;
    nodes.push_back({level, at >> level});
    at += int64_t{1} << level;
  }
  return nodes;
}

comm::Task tree_part_reduce(comm::Communicator& c, const std::vector<GrainRange>& ranges,
                            const std::vector<HeldSum>& held, int64_t begin, int64_t end,
                            std::span<float> sum, int tag) {
  const int ranks = c.size();
  const int64_t count = end - begin;
  const comm::Strip own = comm::strip_of(count, c.rank(), ranks);
  check(static_cast<int64_t>(sum.size()) == own.size(), "the sum has the length of the strip");

  comm::Requests requests;
  std::vector<HeldSum> all;  // their values count from the strip's first
  std::vector<AlignedBuffer> arrived;
  for (int r = 0; r < ranks; ++r) {
    if (r == c.rank()) {
      for (const HeldSum& h : held) all.push_back({h.node, h.values + begin + own.begin});
      continue;
    }
    for (const TreeNode& node : subtrees(ranges[static_cast<size_t>(r)])) {
      if (own.size() == 0) break;
      arrived.push_back(AlignedBuffer::of_floats(own.size()));
      all.push_back({node, arrived.back().floats().data()});
      requests.add(c.receive(r, tag * comm::kTags, comm::bytes_of(arrived.back().floats())));
    }
  }
  for (int step = 1; step < ranks; ++step) {
    const int to = (c.rank() + step) % ranks;  // not all to the same at once
    const comm::Strip strip = comm::strip_of(count, to, ranks);
    if (strip.size() == 0) continue;
    for (const HeldSum& h : held) {
      requests.add(c.send(to, tag * comm::kTags,
                          comm::bytes_of(std::span<const float>(
                              h.values + begin + strip.begin, static_cast<size_t>(strip.size())))));
    }
  }
  co_await std::move(requests);

  const int64_t grains = ranges.back().last;
  const TreeTotal total(std::move(all), grains);
  std::vector<float> workspace(static_cast<size_t>(TreeTotal::workspace_size(grains, kPiece)));
  for (int64_t at = 0; at < own.size(); at += kPiece) {
    const int64_t to = std::min(at + kPiece, own.size());
    std::copy_n(total.sum(at, to, workspace), to - at, sum.data() + at);
  }
}

comm::Traffic tree_traffic(int rank, const std::vector<GrainRange>& ranges, int64_t count) {
  const auto ranks = static_cast<int>(ranges.size());
  const auto held = static_cast<int64_t>(subtrees(ranges[static_cast<size_t>(rank)]).size());
  comm::Traffic t;
  for (int to = 0; to < ranks; ++to) {
    const int64_t values = comm::strip_of(count, to, ranks).size();
    if (to == rank || values == 0) continue;
    t.messages += held;
    t.bytes += Bytes{4 * held * values};
  }
  return t;
}

}  // namespace convoy::sync
