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

struct Need {
  size_t slots = 0;
  bool scratch = false;
};

Need needed(int64_t first, int64_t last) {
  Need need;
  std::vector<TreeNode> held;
  for (int64_t grain = first; grain < last; ++grain) {
    const auto [merges, node] = merge(held, {0, grain});
    need.slots = std::max(need.slots, held.size() + (merges == 0 ? 1 : 0));
    need.scratch = need.scratch || merges > 0;
    held.resize(held.size() - merges);
    held.push_back(node);
  }
  return need;
}

int root_level(int64_t grains) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(grains - 1)));
}

}  // namespace

RangeSum::RangeSum(int64_t first, int64_t last, int64_t size, int64_t largest)
    : first_(first), next_(first) {
  const Need need = needed(first, last);
  for (size_t i = 0; i < need.slots; ++i) slots_.push_back(AlignedBuffer::of_floats(size));
  if (need.scratch) scratch_ = AlignedBuffer::of_floats(largest);
  restart();
}

Bytes RangeSum::memory(int64_t first, int64_t last, int64_t size, int64_t largest) {
  const Need need = needed(first, last);
  return {4 * (static_cast<int64_t>(need.slots) * size + (need.scratch ? largest : 0))};
}

void RangeSum::restart() {
  next_ = first_;
  held_.clear();
  free_.clear();
  for (auto it = slots_.rbegin(); it != slots_.rend(); ++it) {
    free_.push_back(it->floats().data());
  }
}

RangeSum::Target RangeSum::next() {
  std::vector<TreeNode> nodes;
  for (const HeldSum& h : held_) nodes.push_back(h.node);
  merges_ = merge(nodes, {0, next_}).first;
  if (merges_ > 0) return {scratch_.floats().data(), true};
  check(!free_.empty(), "a slot is free for the next grain");
  held_.push_back({{0, next_}, free_.back()});
  free_.pop_back();
  return {held_.back().values, false};
}

void RangeSum::layer_complete(int64_t begin, int64_t end) {
  const float* right = scratch_.floats().data();
  for (size_t i = 0; i < merges_; ++i) {
    float* left = held_[held_.size() - 1 - i].values + begin;
    add(right, left, end - begin);
    right = left;
  }
}

void RangeSum::grain_complete() {
  TreeNode node{0, next_};
  for (size_t i = 0; i < merges_; ++i) {
    node = parent(node);
    if (i > 0) {
      free_.push_back(held_.back().values);
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

const float* TreeTotal::sum_node(TreeNode node, int64_t begin, int64_t end,
                                 float* workspace) const {
  const auto found =
      std::find_if(held_.begin(), held_.end(), [&](const HeldSum& h) { return h.node == node; });
  if (found != held_.end()) return found->values + begin;
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
