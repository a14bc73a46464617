#pragma once
// Shape inference: what a layer makes of its inputs, and which parameters it needs for that.

#include <string>
#include <vector>

#include "convoy/model/graph.hpp"

namespace convoy::model {

/// Largest extent, and largest number of values of one sample, of any layer.
inline constexpr int64_t kMaxValues = (int64_t{1} << 31) - 1;

/// Checks `layer` (name, kind and inputs are set; `sources` are the layers that `inputs` names) and
/// fills in its output shape and parameters. Throws InputError naming the layer and what clashes.
void infer(Layer& layer, const std::vector<const Layer*>& sources);

/// Throws InputError unless all extents are positive and their product is at most kMaxValues.
void check_shape(const std::string& layer_name, const Shape& shape);

}  // namespace convoy::model
