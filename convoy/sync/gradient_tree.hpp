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

/// A subtree's sum that somebody holds: a whole arena of floats.
struct HeldSum {
  TreeNode node;
  float* values = nullptr;
};

/// Adds up the gradients of a contiguous range of grains, in order, keeping only as many partial
/// sums as the tree needs (about log2 of the range), layer by layer while they are in cache.
class RangeSum {
 public:
  /// For grains [first, last); `size` floats of arena, of which one layer spans at most `largest`.
  RangeSum(int64_t first, int64_t last, int64_t size, int64_t largest);

  /// Starts over at the first grain (a new step).
  void restart();

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

  /// The subtrees held after the last grain, left to right.
  const std::vector<HeldSum>& held() const { return held_; }

  /// Memory a RangeSum over these grains takes.
  static Bytes memory(int64_t first, int64_t last, int64_t size, int64_t largest);

 private:
  int64_t first_;
  int64_t next_;
  std::vector<AlignedBuffer> slots_;
  AlignedBuffer scratch_;
  std::vector<HeldSum> held_;
  std::vector<float*> free_;
  size_t merges_ = 0;  // how many held sums the current grain completes
};

/// Sums what is held by everybody, following the tree, a piece at a time.
class TreeTotal {
 public:
  /// `held` covers grains [0, grains) without gaps.
  TreeTotal(std::vector<HeldSum> held, int64_t grains);

  /// The total over floats [begin, end): a pointer to its first value, in `workspace` (at least
  /// workspace_size(grains, end − begin) floats) or in a held sum.
  const float* sum(int64_t begin, int64_t end, std::span<float> workspace) const;
  static int64_t workspace_size(int64_t grains, int64_t length);

 private:
  const float* sum_node(TreeNode node, int64_t begin, int64_t end, float* workspace) const;

  std::vector<HeldSum> held_;
  int64_t grains_;
  TreeNode root_;
};

}  // namespace convoy::sync
