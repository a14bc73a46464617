#pragma once
// One algorithm for each direction of each layer: the fastest set that fits into memory (Zou17,
// section "mini-batch + convolution algorithm"; a multiple-choice knapsack).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy::plan {

/// One way to do something.
struct Option {
  Seconds time;
  Bytes workspace;  ///< needed only while it runs
  Bytes kept;       ///< needed all the time (prepared weights)
};

/// Something that has to be done in one of several ways.
struct Item {
  std::string name;
  std::vector<Option> options;
};

/// How the workspaces of several items count.
enum class Workspace {
  shared,    ///< one place for all: the largest counts
  separate,  ///< a place for each: the sum counts
};

/// The option taken for each item, and what it comes to.
struct Choice {
  std::vector<size_t> taken;
  Seconds time;
  Bytes memory;
};

/// Time and memory if `taken` is taken.
Choice tally(const std::vector<Item>& items, std::vector<size_t> taken, Workspace form);

/// The least time within `bound`: minimise Σ time over one option per item, subject to
/// Σ kept + (max or Σ) workspace ≤ bound. Solved exactly, as an integer program. Nothing if no
/// choice fits.
std::optional<Choice> choose_exactly(const std::vector<Item>& items, Workspace form, Bytes bound);

/// The same by rule of thumb, for comparison: items in the order of what their best option saves,
/// each takes its fastest option that leaves room for the smallest ones of the others.
std::optional<Choice> choose_greedily(const std::vector<Item>& items, Workspace form, Bytes bound);

/// The least memory that any choice needs.
Bytes least_memory(const std::vector<Item>& items, Workspace form);

}  // namespace convoy::plan
