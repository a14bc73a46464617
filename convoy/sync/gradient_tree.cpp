#include "convoy/sync/gradient_tree.hpp"

#include <algorithm>
#include <bit>

#include "convoy/base/error.hpp"

namespace convoy::sync {
namespace {

void add(const float* __restrict from, float* __restrict to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

TreeNode parent(TreeNode node) {
  return {node.level + 1, node.index / 2};
}

bool completes(const TreeNode& left, const TreeNode& node) {
  return node.index % 2 == 1 && left.level == node.level && left.index == node.index - 1;
}

/// How many of the held nodes (left to right) a new leaf merges with, and what it becomes.
std::pair<size_t, TreeNode> merge(const std::vector<TreeNode>& held, TreeNode node) {
  size_t merges = 0;
  while (merges < held.size() && completes(held[held.size() - 1 - merges], node)) {
    node = parent(node);
    ++merges;
  }
  return {merges, node};
}

/// Runs through a range as RangeSum does: which slots it takes, and what it keeps.
struct Simulation {
  size_t slots = 0;
  bool scratch = false;
  std::vector<RangeSum::Kept> held;

  explicit Simulation(const GrainRange& range) {
    std::vector<size_t> free;
    for (int64_t grain = range.first; grain < range.last; ++grain) {
      std::vector<TreeNode> nodes;
      for (const RangeSum::Kept& k : held) nodes.push_back(k.node);
      const auto [merges, node] = merge(nodes, {0, grain});
      scratch = scratch || merges > 0;
      if (merges == 0) {
        if (free.empty()) free.push_back(slots++);
        held.push_back({node, free.back()});
        free.pop_back();
        continue;
      }
      for (size_t i = 1; i < merges; ++i) {
        free.push_back(held.back().slot);
        held.pop_back();
      }
      held.back().node = node;
    }
  }
};

int root_level(int64_t grains) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(grains - 1)));
}

}  // namespace

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

RangeSum::RangeSum(const GrainRange& range, int64_t size, int64_t largest, std::span<float> slots)
    : size_(size), largest_(largest), next_(range.first), slots_(slots) {
  restart(range);
}

std::vector<RangeSum::Kept> RangeSum::kept(const GrainRange& range) {
  return Simulation(range).held;
}

int64_t RangeSum::slots(const GrainRange& range) {
  return static_cast<int64_t>(Simulation(range).slots);
}

int64_t RangeSum::most_slots(int64_t grains) {
  const auto shortest = [](int64_t n) {
    return (int64_t{1} << ((n + 1) / 2)) + (int64_t{1} << (n / 2)) - 2;
  };
  int64_t n = 0;
  while (shortest(n + 1) <= grains) ++n;
  return n;
}

Bytes RangeSum::scratch(const GrainRange& range, int64_t largest) {
  return {Simulation(range).scratch ? 4 * largest : 0};
}

void RangeSum::restart(const GrainRange& range) {
  const Simulation need(range);
  check(static_cast<int64_t>(slots_.size()) >= static_cast<int64_t>(need.slots) * size_,
        "there is room for the partial sums");
  if (need.scratch && scratch_.empty()) scratch_ = AlignedBuffer::of_floats(largest_);
  next_ = range.first;
  held_.clear();
  free_.clear();
  // The lowest is taken first, as in the simulation.
  for (size_t i = slots_.size() / static_cast<size_t>(size_); i-- > 0;) free_.push_back(i);
}

RangeSum::Target RangeSum::next() {
  std::vector<TreeNode> nodes;
  for (const Kept& k : held_) nodes.push_back(k.node);
  merges_ = merge(nodes, {0, next_}).first;
  if (merges_ > 0) return {scratch_.floats().data(), true};
  check(!free_.empty(), "a slot is free for the next grain");
  held_.push_back({{0, next_}, free_.back()});
  free_.pop_back();
  return {slot(held_.back().slot), false};
}

void RangeSum::layer_complete(int64_t begin, int64_t end) {
  const float* right = scratch_.floats().data();
  for (size_t i = 0; i < merges_; ++i) {
    float* left = slot(held_[held_.size() - 1 - i].slot) + begin;
    add(right, left, end - begin);
    right = left;
  }
}

void RangeSum::grain_complete() {
  TreeNode node{0, next_};
  for (size_t i = 0; i < merges_; ++i) {
    node = parent(node);
    if (i > 0) {
      free_.push_back(held_.back().slot);
      held_.pop_back();
    }
  }
  held_.back().node = node;
  ++next_;
}

TreeTotal::TreeTotal(std::vector<HeldSum> held, int64_t grains)
    : held_(std::move(held)), grains_(grains), root_{root_level(grains), 0} {}

int64_t TreeTotal::workspace_size(int64_t grains, int64_t length) {
  return (root_level(grains) + 1) * length;
}

const float* TreeTotal::sum(int64_t begin, int64_t end, std::span<float> workspace) const {
  return sum_node(root_, begin, end, workspace.data());
}

const HeldSum* TreeTotal::find(TreeNode node) const {
  const auto found =
      std::find_if(held_.begin(), held_.end(), [&](const HeldSum& h) { return h.node == node; });
  return found == held_.end() ? nullptr : &*found;
}

const float* TreeTotal::sum_node(TreeNode node, int64_t begin, int64_t end,
                                 float* workspace) const {
  if (const HeldSum* held = find(node)) return held->values + (begin - held->origin);
  check(node.level > 0, "every grain's gradient is held by somebody");
  const TreeNode left{node.level - 1, 2 * node.index};
  const TreeNode right{node.level - 1, 2 * node.index + 1};
  const int64_t length = end - begin;
  const float* a = sum_node(left, begin, end, workspace);
  if (right.index << right.level >= grains_) return a;
  // The left sum may lie in our part of the workspace; the right one uses the part behind it.
  const float* b = sum_node(right, begin, end, workspace + length);
  for (int64_t i = 0; i < length; ++i) workspace[i] = a[i] + b[i];
  return workspace;
}

}  // namespace convoy::sync
