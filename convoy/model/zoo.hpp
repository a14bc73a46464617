#pragma once
// The networks of the literature by name.

#include <optional>
#include <string>
#include <vector>

#include "convoy/model/graph.hpp"

namespace convoy::model {

/// What may be changed about a zoo network; unset means as published.
struct ZooOptions {
  // Empty initialisers, so that designated ones may leave any of them out without a warning.
  std::optional<Shape> input{};
  std::optional<int64_t> classes{};
  std::vector<int64_t> hidden{};  ///< mlp only: sizes of the hidden layers; empty: {512, 512}
  float smoothing = 0;            ///< label smoothing of the loss
};

struct ZooEntry {
  std::string name;
  std::string what;  ///< one line: source and published input
};

/// All names, in the order they are listed to users.
const std::vector<ZooEntry>& zoo();

/// Builds a network; throws InputError with the nearest name if there is none of that name, or if
/// the input is too small for it.
Graph build(const std::string& name, const ZooOptions& options = {});

}  // namespace convoy::model
