#include "convoy/sync/tree_exchange.hpp"

#include <algorithm>
#include <utility>

#include "convoy/base/error.hpp"

namespace convoy::sync {
namespace {

/// Values summed at a time: they stay in the first-level cache.
constexpr int64_t kPiece = 2048;
/// Tags within the collective's own.
constexpr int kReduce = 0;
constexpr int kBroadcast = 1;

std::span<const std::byte> bytes_of(const float* values, int64_t count) {
  return std::as_bytes(std::span(values, static_cast<size_t>(count)));
}

/// Copies a subtree's sum, which is held in parts.
void add_up(const TreeTotal& held, TreeNode node, const comm::Strip& strip, int64_t grains,
            std::span<float> to) {
  std::vector<float> workspace(static_cast<size_t>(TreeTotal::workspace_size(grains, kPiece)));
  for (int64_t at = strip.begin; at < strip.end; at += kPiece) {
    const int64_t end = std::min(at + kPiece, strip.end);
    std::copy_n(held.sum(node, at, end, workspace), end - at, to.data() + (at - strip.begin));
  }
}

}  // namespace

TreeExchange::TreeExchange(comm::Communicator& c, int64_t grains, std::vector<comm::Strip> strips,
                           int tag)
    : c_(c), grains_(grains), strips_(std::move(strips)), tag_(tag * comm::kTags) {
  check(static_cast<int>(strips_.size()) == c.size(), "a strip for each rank");
  for (const comm::Strip& strip : strips_) longest_ = std::max(longest_, strip.size());
}

comm::Task TreeExchange::part_reduce(HostSums sums, comm::Gate& gate, int priority) {
  const int ranks = c_.size();
  check(static_cast<int>(sums.ranges.size()) == ranks, "grains for each rank");
  const comm::Strip mine = own();
  comm::Requests receives;
  std::vector<HeldSum> all = sums.held;
  size_t arriving = 0;
  for (int r = 0; r < ranks; ++r) {
    if (r == c_.rank() || mine.size() == 0) continue;
    for (const TreeNode& node : subtrees(sums.ranges[static_cast<size_t>(r)])) {
      if (arriving == arrived_.size()) arrived_.push_back(AlignedBuffer::of_floats(mine.size()));
      const std::span<float> to =
          arrived_[arriving++].floats().first(static_cast<size_t>(mine.size()));
      all.push_back({node, to.data(), mine.begin});
      gate.receive(c_, r, tag_ + kReduce, comm::bytes_of(to), receives);
    }
  }
  const TreeTotal here(std::move(sums.held), grains_);
  const std::vector<TreeNode> nodes = subtrees(sums.ranges[static_cast<size_t>(c_.rank())]);
  size_t made = 0;
  comm::Tasks sends;
  for (int step = 1; step < ranks; ++step) {
    const int to = (c_.rank() + step) % ranks;  // not all to the same at once
    const comm::Strip strip = strips_[static_cast<size_t>(to)];
    if (strip.size() == 0 || nodes.empty()) continue;
    comm::Gate::Parts parts;
    for (const TreeNode& node : nodes) {
      const float* values = nullptr;
      if (here.holds(node)) {
        values = here.sum(node, strip.begin, strip.end, {});
      } else {
        // Whose strip it is for changes with the shares, so there is room for any.
        if (made == given_.size()) given_.push_back(AlignedBuffer::of_floats(longest_));
        const std::span<float> room = given_[made++].floats();
        add_up(here, node, strip, grains_, room);
        values = room.data();
      }
      parts.push_back(bytes_of(values, strip.size()));
    }
    sends.add(gate.send(c_, to, tag_ + kReduce, std::move(parts), priority));
  }
  co_await std::move(sends);
  co_await std::move(receives);
  total_ = std::make_unique<TreeTotal>(std::move(all), grains_);
}

comm::Task TreeExchange::give_strip(std::span<float> arena, comm::Gate& gate, int priority) {
  const std::span<const float> mine =
      arena.subspan(static_cast<size_t>(own().begin), static_cast<size_t>(own().size()));
  comm::Tasks sends;
  for (int step = 1; step < c_.size() && !mine.empty(); ++step) {
    const int to = (c_.rank() + step) % c_.size();
    sends.add(gate.send(c_, to, tag_ + kBroadcast, {std::as_bytes(mine)}, priority));
  }
  co_await std::move(sends);
}

comm::Task TreeExchange::take_strips(std::span<float> arena, const comm::Gate& gate) {
  comm::Requests receives;
  for (int r = 0; r < c_.size(); ++r) {
    const comm::Strip strip = strips_[static_cast<size_t>(r)];
    if (r == c_.rank() || strip.size() == 0) continue;
    const std::span<float> to =
        arena.subspan(static_cast<size_t>(strip.begin), static_cast<size_t>(strip.size()));
    gate.receive(c_, r, tag_ + kBroadcast, comm::bytes_of(to), receives);
  }
  co_await std::move(receives);
}

comm::Traffic TreeExchange::traffic(int rank, const std::vector<GrainRange>& ranges,
                                    const std::vector<comm::Strip>& strips,
                                    const comm::Gate& gate) {
  const auto held = static_cast<int64_t>(subtrees(ranges[static_cast<size_t>(rank)]).size());
  const int64_t own = strips[static_cast<size_t>(rank)].size();
  comm::Traffic t;
  const auto send = [&](int64_t parts, int64_t values) {
    t.messages += parts * gate.slices({4 * values});
    t.bytes += Bytes{4 * parts * values};
  };
  for (size_t to = 0; to < ranges.size(); ++to) {
    if (static_cast<int>(to) == rank) continue;
    send(held, strips[to].size());
    send(1, own);
  }
  return t;
}

Seconds TreeExchange::time(int ranks, int64_t held, int64_t count, const comm::LinkSpeed& link) {
  if (ranks < 2) return {0};
  const double strip = 4.0 * static_cast<double>(count) / ranks;
  const comm::Gate gate(comm::Gate::window(link));
  const int64_t slices = gate.slices({static_cast<int64_t>(strip)});
  const double slice = strip / static_cast<double>(std::max<int64_t>(1, slices));
  const auto step = [&](int64_t parts) {
    const auto messages = static_cast<double>(parts * (ranks - 1) * slices);
    return link.latency.value + std::max(0.0, messages - 1) * link.per_message.value +
           link.transfer(static_cast<double>(parts) * strip * (ranks - 1), slice).value;
  };
  const double added = static_cast<double>(held) * strip * (ranks - 1);
  return {step(held) + step(1) + added * link.add_per_byte.value};
}

}  // namespace convoy::sync
