#include <algorithm>

#include "convoy/sync/bucket_exchange.hpp"
#include "convoy/sync/buckets.hpp"

namespace convoy::sync {
namespace {

comm::Strips counted_from(comm::Strips strips, int64_t begin) {
  for (comm::Strip& s : strips) s = {s.begin - begin, s.end - begin};
  return strips;
}

}  // namespace

FastExchange::FastExchange(comm::Communicator& c, int64_t grains, comm::Strips strips,
                           const comm::Way& way, int tag)
    : c_(c),
      grains_(grains),
      begin_(strips.front().begin),
      strips_(counted_from(std::move(strips), begin_)),
      way_(way),
      tag_(tag),
      values_(AlignedBuffer::of_floats(comm::count_of(strips_))) {}

comm::Task FastExchange::part_reduce(HostSums sums, comm::Gate& /*gate*/, int /*priority*/) {
  const TreeTotal here(std::move(sums.held), grains_);
  const std::vector<TreeNode> nodes = subtrees(sums.ranges[static_cast<size_t>(c_.rank())]);
  std::vector<float> workspace(static_cast<size_t>(TreeTotal::workspace_size(grains_, kChunk)));
  const std::span<float> values =
      values_.floats().first(static_cast<size_t>(comm::count_of(strips_)));
  const auto count = static_cast<int64_t>(values.size());
  for (int64_t at = 0; at < count; at += kChunk) {
    const int64_t length = std::min(kChunk, count - at);
    const std::span<float> piece =
        values.subspan(static_cast<size_t>(at), static_cast<size_t>(length));
    std::fill(piece.begin(), piece.end(), 0.0F);
    for (const TreeNode& node : nodes) {
      const float* sum = here.sum(node, begin_ + at, begin_ + at + length, workspace);
      comm::add_to({sum, static_cast<size_t>(length)}, piece);
    }
  }
  co_await comm::part_reduce(c_, values, strips_, tag_, way_);
}

const float* FastExchange::sum(int64_t begin, int64_t /*end*/,
                               std::span<float> /*workspace*/) const {
  return values_.floats().data() + (begin - begin_);
}

comm::Task FastExchange::give_strip(std::span<float> arena, comm::Gate& /*gate*/,
                                    int /*priority*/) {
  co_await comm::part_broadcast(
      c_, arena.subspan(static_cast<size_t>(begin_), static_cast<size_t>(comm::count_of(strips_))),
      strips_, tag_, way_);
}

comm::Task FastExchange::take_strips(std::span<float> /*arena*/, const comm::Gate& /*gate*/) {
  co_return;  // they come and go in one
}

}  // namespace convoy::sync
