#pragma once
// The one table that says how each layer is written in YAML. Parsing, printing, error messages and
// the reference in docs/model.md all come from it.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "convoy/model/graph.hpp"

namespace convoy::model {

/// What a key may hold: a whole number, one for both directions or [vertical, horizontal], a
/// number, or true/false.
using FieldValue = std::variant<int64_t, Pair, float, bool>;

/// One key of a layer.
struct Field {
  std::string name;
  std::string help;
  bool required = false;
  std::function<FieldValue(const LayerKind&)> get;
  std::function<void(LayerKind&, const FieldValue&)> set;
};

/// One kind of layer as users know it ("relu" and "elu" are two, though one struct holds both).
struct LayerType {
  std::string name;
  std::string help;
  LayerKind prototype;    ///< holds the defaults
  std::string shorthand;  ///< the key that `- kind: value` sets; empty: none
  std::vector<Field> fields;
};

const std::vector<LayerType>& layer_types();

/// The kind of that name; nullptr if there is none.
const LayerType* find_layer_type(std::string_view name);

/// The value as written in YAML: 3, [3, 1], 0.5, true.
std::string to_string(const FieldValue& value);

}  // namespace convoy::model
