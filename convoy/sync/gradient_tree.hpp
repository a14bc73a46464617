#pragma once
// The one order in which the gradients of a batch are summed: a balanced binary tree over grain
// numbers. Node (level, index) covers grains [index·2^level, (index+1)·2^level) of [0, grains); its
// value is left child + right child, or the left child alone where the right one is empty.
//
//   level 2           (2,0)                 6 grains, two lanes of three: lane 0 holds (1,0) and
//   level 1     (1,0)       (1,1)    (1,2)  (0,2), lane 1 holds (0,3) and (1,2). Whoever sums them
//   level 0   g0    g1    g2    g3   g4 g5  follows the tree, so the bits are always the same.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "convoy/base/memory.hpp"
#include "convoy/base/units.hpp"

namespace convoy::sync {

struct TreeNode {
  int level = 0;
  int64_t index = 0;
  bool operator==(const TreeNode&) const = default;
};

/// A subtree's sum that somebody holds: a whole arena of floats, or those from `origin` on.
struct HeldSum {
  TreeNode node;
  const float* values = nullptr;
  int64_t origin = 0;
};

/// Grains [first, last) of a batch: what a worker or a lane runs. May be empty.
struct GrainRange {
  int64_t first = 0;
  int64_t last = 0;
  int64_t size() const { return last - first; }
  bool operator==(const GrainRange&) const = default;
};

/// The subtrees that make up a run of grains: as few as possible, left to right.
std::vector<TreeNode> subtrees(const GrainRange& range);

/// Adds up the gradients of a contiguous range of grains, in order, keeping only as many partial
/// sums as the tree needs (about log2 of the range), layer by layer while they are in cache.
class RangeSum {
 public:
  /// `size` floats of arena, of which one layer spans at most `largest`. `slots`: room for
  /// slots(range) arenas or more, one after the other.
  RangeSum(const GrainRange& range, int64_t size, int64_t largest, std::span<float> slots);

  /// Starts over (a new step), with these grains, for which there must be slots.
  void restart(const GrainRange& range);

  struct Target {
    float* gradient = nullptr;
    bool layer_by_layer = false;
  };
  /// Where the next grain's gradient goes (see engine::GrainRun).
  Target next();
  /// Floats [begin, end) of the current grain are complete.
  void layer_complete(int64_t begin, int64_t end);
  /// The current grain is done.
  void grain_complete();

  /// The subtrees held after the last grain, left to right, and in which slot each is.
  struct Kept {
    TreeNode node;
    size_t slot = 0;
  };
  static std::vector<Kept> kept(const GrainRange& range);
  /// Partial sums there are at once.
  static int64_t slots(const GrainRange& range);
  /// The most that any range of so many grains needs, wherever it begins. A run of n subtrees that
  /// rise and fall again, 1 2 4 … 4 2 1, is the shortest one with n; so the largest n with
  /// 2^⌈n/2⌉ + 2^⌊n/2⌋ − 2 ≤ grains.
  static int64_t most_slots(int64_t grains);
  /// Further memory: a layer's gradients on their way to a sum.
  static Bytes scratch(const GrainRange& range, int64_t largest);

 private:
  float* slot(size_t index) { return slots_.data() + static_cast<int64_t>(index) * size_; }

  int64_t size_;
  int64_t largest_;
  int64_t next_;
  std::span<float> slots_;
  AlignedBuffer scratch_;
  std::vector<Kept> held_;
  std::vector<size_t> free_;
  size_t merges_ = 0;  // how many held sums the current grain completes
};

/// Sums what is held, following the tree, a piece at a time.
class TreeTotal {
 public:
  /// Of a batch of `grains`.
  TreeTotal(std::vector<HeldSum> held, int64_t grains);

  /// The total over floats [begin, end): a pointer to its first value, in `workspace` (at least
  /// workspace_size(grains, end − begin) floats) or in a held sum. What is held must cover all
  /// grains.
  const float* sum(int64_t begin, int64_t end, std::span<float> workspace) const;
  /// The same for one subtree, whose grains must be covered.
  const float* sum(TreeNode node, int64_t begin, int64_t end, std::span<float> workspace) const {
    return sum_node(node, begin, end, workspace.data());
  }
  /// True if a subtree's sum is held as it is.
  bool holds(TreeNode node) const { return find(node) != nullptr; }
  static int64_t workspace_size(int64_t grains, int64_t length);

 private:
  const HeldSum* find(TreeNode node) const;
  const float* sum_node(TreeNode node, int64_t begin, int64_t end, float* workspace) const;

  std::vector<HeldSum> held_;
  int64_t grains_;
  TreeNode root_;
};

}  // namespace convoy::sync
