#pragma once
// Internal to the engine: oneDNN primitives as instructions. The only header that shows its types.

#include <string>
#include <vector>

#include <dnnl.hpp>

#include "convoy/engine/builder.hpp"

namespace convoy::engine {

/// Where an operand lies when the instruction runs.
struct Place {
  enum Kind { buffer, weights, prepared, gradient, input };
  Kind kind = buffer;
  BufferId id = kNone;      ///< buffer
  int64_t offset = 0;       ///< floats, for weights, prepared and gradient
  int64_t layer_begin = 0;  ///< gradient

  static Place at(BufferId id) { return {buffer, id, 0, 0}; }
  static Place of_weights(int64_t offset) { return {weights, kNone, offset, 0}; }
  static Place of_prepared(int64_t offset) { return {prepared, kNone, offset, 0}; }
  static Place of_gradient(int64_t offset, int64_t layer_begin) {
    return {gradient, kNone, offset, layer_begin};
  }
  /// A layer's value: its buffer, or the network's input.
  static Place of_value(BufferId id) { return id == kNone ? Place{input, kNone, 0, 0} : at(id); }
};

/// One argument of a primitive.
struct Operand {
  int argument = 0;           ///< DNNL_ARG_…
  dnnl::memory::desc ours;    ///< how it lies in our memory
  dnnl::memory::desc theirs;  ///< how the primitive wants it; a reorder is emitted if different
  Place place;
  bool output = false;
};

/// Appends a primitive with its operands, its scratchpad, and the reorders it needs.
void emit_primitive(Builder& b, model::LayerId layer, Phase phase, const dnnl::primitive& primitive,
                    const dnnl::memory::desc& scratchpad, const std::string& implementation,
                    const std::vector<Operand>& operands);

/// True for implementations that oneDNN calls its reference: correct, and hundreds of times slow.
inline bool is_reference(const std::string& implementation) {
  return implementation.rfind("ref", 0) == 0;
}

/// The CPU engine; it has no state. One for the whole process, since primitives keep a bare pointer
/// to the one they were made with.
const dnnl::engine& cpu_engine();
/// Attributes that leave the scratchpad to our memory plan.
dnnl::primitive_attr user_scratchpad();

/// nChw8c descriptor of a blocked activation.
dnnl::memory::desc blocked_desc(const Blocked& s);

}  // namespace convoy::engine
