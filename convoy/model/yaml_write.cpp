#include <cctype>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/base/text.hpp"
#include "convoy/model/layer_table.hpp"
#include "convoy/model/yaml.hpp"

namespace convoy::model {
namespace {

/// The text as a YAML scalar that reads back as the same text.
std::string scalar(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  const bool plain = !text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) != 0 &&
                     text.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                         "0123456789._-/") == std::string::npos;
  // Every spelling of null begins with an n.
  const bool null = text == "null" || text == "Null" || text == "NULL";
  return plain && !null ? text : out.c_str();
}

/// "conv: {out: 32, kernel: 3}"; keys at their defaults are left out, except the loss's smoothing,
/// which a job's settings would fill in.
std::string kind_text(const LayerKind& kind) {
  const LayerType* type = find_layer_type(kind_name(kind));
  check(type != nullptr, "every layer kind but the input is in the table");
  std::vector<std::string> settings;
  for (const Field& field : type->fields) {
    const FieldValue value = field.get(kind);
    if (field.required || is_loss(kind) || value != field.get(type->prototype)) {
      settings.push_back(fmt::format("{}: {}", field.name, to_string(value)));
    }
  }
  return fmt::format("{}: {{{}}}", type->name, join(settings));
}

std::string from_text(const Graph& graph, const std::vector<LayerId>& inputs) {
  std::vector<std::string> names;
  names.reserve(inputs.size());
  for (const LayerId id : inputs) names.push_back(scalar(graph.layer(id).name));
  return names.size() == 1 ? names.front() : fmt::format("[{}]", join(names));
}

}  // namespace

std::string to_yaml(const Graph& graph) {
  const Shape input = graph.input_shape();
  std::string text = fmt::format("name: {}\ninput: [{}, {}, {}]\nlayers:\n", scalar(graph.name()),
                                 input.channels, input.height, input.width);
  for (LayerId id = 1; id < static_cast<LayerId>(graph.layers().size()); ++id) {
    const Layer& layer = graph.layer(id);
    text += fmt::format("  - {{{}, name: {}", kind_text(layer.kind), scalar(layer.name));
    if (layer.inputs != std::vector<LayerId>{id - 1}) {
      text += fmt::format(", from: {}", from_text(graph, layer.inputs));
    }
    text += "}\n";
  }
  return text;
}

uint64_t fingerprint(const Graph& graph) {
  const std::string text = to_yaml(graph);
  return checksum({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

}  // namespace convoy::model
