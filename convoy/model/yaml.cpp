#include "convoy/model/yaml.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/model/layer_table.hpp"

namespace convoy::model {
namespace {

constexpr size_t kMaxLayers = 10'000;
constexpr int kMaxDepth = 32;  ///< of nested blocks; an alias may even nest a block in itself

using Names = std::vector<std::string>;

Names kind_names() {
  Names names;
  for (const LayerType& type : layer_types()) names.push_back(type.name);
  return names;
}

/// Reads nodes of one file; every refusal begins with file and line.
class Source {
 public:
  explicit Source(std::string file) : file_(std::move(file)) {}

  /// "job.yaml:7: "; nodes made by a program have no line.
  std::string at(const YAML::Node& node) const {
    const int line = node.Mark().line;
    return line < 0 ? fmt::format("{}: ", file_) : fmt::format("{}:{}: ", file_, line + 1);
  }

  /// Runs `build` and puts file and line before what it may refuse.
  template <typename Build>
  auto located(const YAML::Node& node, Build&& build) const {
    try {
      return std::forward<Build>(build)();
    } catch (const InputError& error) {
      refuse("{}{}", at(node), error.what());
    }
  }

  [[noreturn]] void refuse_word(const YAML::Node& node, const std::string& what,
                                const std::string& word, const Names& accepted) const {
    const std::string near = nearest(word, accepted);
    refuse("{}{} '{}'{}; accepted: {}", at(node), what, word,
           near.empty() ? "" : fmt::format(", did you mean '{}'?", near), join(accepted));
  }

  /// Refuses a map's keys that are not accepted or come twice.
  void check_keys(const YAML::Node& map, const std::string& owner, const Names& accepted) const {
    std::set<std::string> seen;
    for (const auto& item : map) {
      const std::string key = word(item.first, "a key of " + owner);
      if (std::find(accepted.begin(), accepted.end(), key) == accepted.end()) {
        refuse_word(item.first, owner + " has no key", key, accepted);
      }
      if (!seen.insert(key).second) {
        refuse("{}{} has the key '{}' twice", at(item.first), owner, key);
      }
    }
  }

  std::string word(const YAML::Node& node, const std::string& what) const {
    if (!node.IsScalar()) refuse("{}{} must be a single word", at(node), what);
    return node.Scalar();
  }

  template <typename T>
  T value(const YAML::Node& node, const std::string& what) const {
    try {
      return node.as<T>();
    } catch (const YAML::Exception&) {
      const std::string got = node.IsScalar()     ? fmt::format("'{}'", node.Scalar())
                              : node.IsSequence() ? "a list"
                              : node.IsMap()      ? "a map"
                                                  : "nothing";
      refuse("{}{} must be {}, not {}", at(node), what, expected(T{}), got);
    }
  }

  int64_t integer(const YAML::Node& node, const std::string& what) const {
    return value<int64_t>(node, what);
  }

  Pair pair(const YAML::Node& node, const std::string& what) const {
    if (!node.IsSequence()) {
      const auto both = integer(node, what);
      return {both, both};
    }
    if (node.size() != 2) {
      refuse("{}{} must be one integer or two, [vertical, horizontal], not {}", at(node), what,
             node.size());
    }
    return {integer(node[0], what), integer(node[1], what)};
  }

  /// [channels, height, width], or the length of a vector.
  Shape shape(const YAML::Node& node, const std::string& what) const {
    if (node.IsScalar()) return {integer(node, what), 1, 1};
    if (!node.IsSequence() || (node.size() != 3 && node.size() != 1)) {
      refuse("{}{} must be [channels, height, width], or one number for a vector", at(node), what);
    }
    if (node.size() == 1) return {integer(node[0], what), 1, 1};
    return {integer(node[0], what), integer(node[1], what), integer(node[2], what)};
  }

 private:
  static const char* expected(int64_t /*type*/) { return "an integer"; }
  static const char* expected(float /*type*/) { return "a number"; }
  static const char* expected(bool /*type*/) { return "true or false"; }

  std::string file_;
};

/// Builds a graph from a list of layers.
class Reader {
 public:
  Reader(const Source& source, Graph& graph, float smoothing)
      : source_(source), graph_(graph), smoothing_(smoothing) {}

  /// Adds the entries of `layers`, as a block that reads `start`; returns its last layer.
  LayerId block(const YAML::Node& layers, LayerId start, const std::string& prefix) {
    if (!layers.IsSequence() || layers.size() == 0) {
      refuse("{}layers must be a list of at least one layer", source_.at(layers));
    }
    if (scopes_.size() >= kMaxDepth) {
      refuse("{}blocks are nested more than {} deep", source_.at(layers), kMaxDepth);
    }
    scopes_.push_back({prefix, start, start, {}});
    for (const YAML::Node& entry : layers) {
      const LayerId last = is_repeat(entry) ? repeat(entry) : layer(entry);
      scopes_.back().previous = last;
    }
    const LayerId last = scopes_.back().previous;
    scopes_.pop_back();
    return last;
  }

 private:
  struct Scope {
    std::string prefix;
    LayerId start;
    LayerId previous;
    std::map<std::string, int> numbers;  ///< last number given to unnamed layers of each kind
  };

  static bool is_repeat(const YAML::Node& entry) { return entry.IsMap() && entry["repeat"]; }

  LayerId repeat(const YAML::Node& entry) {
    source_.check_keys(entry, "a repeat block", {"repeat", "name", "from", "layers"});
    const YAML::Node count_node = entry["repeat"];
    const int64_t count = source_.integer(count_node, "repeat");
    if (count < 1 || count > static_cast<int64_t>(kMaxLayers)) {
      refuse("{}repeat is {}; it must lie between 1 and {}", source_.at(count_node), count,
             kMaxLayers);
    }
    if (!entry["layers"]) refuse("{}a repeat block needs layers", source_.at(entry));
    const std::optional<std::string> given = name_of(entry);
    const std::string prefix = scopes_.back().prefix + (given ? *given : numbered("block")) + ".";
    const std::vector<LayerId> from = sources(entry);
    if (from.size() != 1) {
      refuse("{}a block reads exactly one layer, not {}", source_.at(entry), from.size());
    }
    LayerId last = from.front();
    for (int64_t i = 0; i < count; ++i) {
      last = block(entry["layers"], last, fmt::format("{}{}.", prefix, i));
    }
    return last;
  }

  LayerId layer(const YAML::Node& entry) {
    if (graph_.layers().size() >= kMaxLayers) {
      refuse("{}the graph has more than {} layers", source_.at(entry), kMaxLayers);
    }
    const LayerType& type = type_of(entry);
    LayerKind kind = type.prototype;
    if (auto* loss = std::get_if<SoftmaxCrossEntropy>(&kind)) loss->smoothing = smoothing_;
    if (entry.IsMap()) {
      read_fields(entry[type.name], type, kind);
    } else {
      check_required(entry, type, {});
    }
    const std::optional<std::string> given = entry.IsMap() ? name_of(entry) : std::nullopt;
    std::string name = scopes_.back().prefix + (given ? *given : numbered(type.name));
    std::vector<LayerId> from =
        entry.IsMap() ? sources(entry) : std::vector<LayerId>{scopes_.back().previous};
    return source_.located(entry,
                           [&] { return graph_.add(kind, std::move(from), std::move(name)); });
  }

  const LayerType& type_of(const YAML::Node& entry) const {
    std::optional<std::string> name;
    if (entry.IsScalar()) name = entry.Scalar();
    if (entry.IsMap()) {
      Names accepted = kind_names();
      accepted.insert(accepted.end(), {"name", "from", "repeat"});
      source_.check_keys(entry, "a layer", accepted);
      for (const auto& item : entry) {
        const std::string key = item.first.Scalar();
        if (key == "name" || key == "from") continue;
        if (name) {
          refuse("{}'{}' and '{}' in one entry; each layer is an entry of its own",
                 source_.at(item.first), *name, key);
        }
        name = key;
      }
    }
    if (!name) {
      refuse(
          "{}an entry of layers must name a layer: `- relu`, `- linear: 10` or "
          "`- conv: {{out: 32, kernel: 3}}`",
          source_.at(entry));
    }
    const LayerType* type = find_layer_type(*name);
    if (type == nullptr) source_.refuse_word(entry, "there is no layer", *name, kind_names());
    return *type;
  }

  void read_fields(const YAML::Node& settings, const LayerType& type, LayerKind& kind) const {
    Names accepted;
    for (const Field& field : type.fields) accepted.push_back(field.name);
    if (settings.IsMap() && settings.size() > 0) {
      if (accepted.empty()) {
        refuse("{}{} has no keys; write `- {}`", source_.at(settings), type.name, type.name);
      }
      source_.check_keys(settings, type.name, accepted);
    } else if (settings.IsScalar() || settings.IsSequence()) {
      if (type.shorthand.empty()) {
        refuse("{}{} takes no single value{}", source_.at(settings), type.name,
               accepted.empty() ? "" : "; its keys are: " + join(accepted));
      }
      for (const Field& field : type.fields) {
        if (field.name == type.shorthand) set(field, settings, type, kind);
      }
      return;
    }
    for (const Field& field : type.fields) {
      if (settings.IsMap() && settings[field.name]) {
        set(field, settings[field.name], type, kind);
      }
    }
    check_required(settings, type, settings);
  }

  void check_required(const YAML::Node& where, const LayerType& type,
                      const YAML::Node& settings) const {
    for (const Field& field : type.fields) {
      if (field.required && !(settings.IsMap() && settings[field.name])) {
        refuse("{}{} needs the key '{}' ({})", source_.at(where), type.name, field.name,
               field.help);
      }
    }
  }

  void set(const Field& field, const YAML::Node& node, const LayerType& type,
           LayerKind& kind) const {
    const std::string what = type.name + "." + field.name;
    FieldValue value = field.get(type.prototype);
    if (std::holds_alternative<int64_t>(value)) {
      value = source_.integer(node, what);
    } else if (std::holds_alternative<Pair>(value)) {
      value = source_.pair(node, what);
    } else if (std::holds_alternative<float>(value)) {
      value = source_.value<float>(node, what);
    } else {
      value = source_.value<bool>(node, what);
    }
    field.set(kind, value);
  }

  std::optional<std::string> name_of(const YAML::Node& entry) const {
    const YAML::Node node = entry["name"];
    if (!node) return std::nullopt;
    std::string name = source_.word(node, "name");
    if (name.empty() || name == "start" || name == "previous") {
      refuse("{}a layer cannot be named '{}'", source_.at(node), name);
    }
    return name;
  }

  /// "conv2": the first unused name of this kind in the innermost block.
  std::string numbered(const std::string& kind) {
    Scope& scope = scopes_.back();
    std::string name;
    do {
      name = fmt::format("{}{}", kind, ++scope.numbers[kind]);
    } while (graph_.find(scope.prefix + name));
    return name;
  }

  std::vector<LayerId> sources(const YAML::Node& entry) const {
    const YAML::Node from = entry["from"];
    if (!from) return {scopes_.back().previous};
    if (!from.IsSequence()) return {resolve(from)};
    std::vector<LayerId> ids;
    for (const YAML::Node& name : from) ids.push_back(resolve(name));
    return ids;
  }

  /// The nearest layer of that name: in the innermost block first, then outward.
  LayerId resolve(const YAML::Node& node) const {
    const std::string name = source_.word(node, "from");
    if (name == "start") return scopes_.back().start;
    if (name == "previous") return scopes_.back().previous;
    for (size_t depth = scopes_.size(); depth > 0; --depth) {
      if (const auto found = graph_.find(scopes_[depth - 1].prefix + name)) return *found;
    }
    refuse_source(node, name);
  }

  [[noreturn]] void refuse_source(const YAML::Node& node, const std::string& name) const {
    Names known{"start", "previous"};
    for (const Scope& scope : scopes_) {
      for (const Layer& layer : graph_.layers()) {
        if (layer.name.starts_with(scope.prefix)) {
          known.push_back(layer.name.substr(scope.prefix.size()));
        }
      }
    }
    const std::string near = nearest(name, known);
    refuse(
        "{}from: there is no layer '{}' above{}; accepted: start, previous, or the name of a "
        "layer above",
        source_.at(node), name, near.empty() ? "" : fmt::format(", did you mean '{}'?", near));
  }

  const Source& source_;
  Graph& graph_;
  float smoothing_;
  std::vector<Scope> scopes_;
};

Graph graph_from(const YAML::Node& node, const Source& source, const ZooOptions& defaults) {
  source.check_keys(node, "a graph", {"name", "input", "layers"});
  std::optional<Shape> input = defaults.input;
  if (node["input"]) input = source.shape(node["input"], "input");
  if (!input) refuse("{}a graph needs input: [channels, height, width]", source.at(node));
  const std::string name = node["name"] ? source.word(node["name"], "name") : "custom";
  Graph graph = source.located(node, [&] { return Graph(*input, name); });
  const YAML::Node layers = node["layers"];
  Reader(source, graph, defaults.smoothing).block(layers, graph.input(), "");
  source.located(layers, [&] { graph.check_complete(); });
  return graph;
}

Graph zoo_from(const YAML::Node& node, const Source& source, const ZooOptions& defaults) {
  ZooOptions options = defaults;
  YAML::Node name = node;
  if (node.IsMap()) {
    source.check_keys(node, "a model", {"name", "input", "classes", "hidden", "smoothing"});
    if (!node["name"]) {
      refuse("{}a model needs name (of the zoo) or layers (a graph)", source.at(node));
    }
    name.reset(node["name"]);
    if (node["input"]) options.input = source.shape(node["input"], "input");
    if (node["classes"]) options.classes = source.integer(node["classes"], "classes");
    if (node["smoothing"]) options.smoothing = source.value<float>(node["smoothing"], "smoothing");
    if (const YAML::Node hidden = node["hidden"]) {
      if (!hidden.IsSequence() || hidden.size() == 0) {
        refuse("{}hidden must be a list of sizes, like [512, 512]", source.at(hidden));
      }
      options.hidden.clear();
      for (const YAML::Node& units : hidden) {
        options.hidden.push_back(source.integer(units, "hidden"));
      }
    }
  }
  return source.located(name, [&] { return build(source.word(name, "name"), options); });
}

}  // namespace

Graph from_yaml(const YAML::Node& node, const std::string& file, const ZooOptions& defaults) {
  const Source source(file);
  if (!node.IsDefined() || node.IsNull()) {
    refuse("{}: model is missing; give a zoo name or a graph", file);
  }
  if (!node.IsScalar() && !node.IsMap()) {
    refuse("{}model must be a zoo name or a map, not a list", source.at(node));
  }
  const bool has_layers = node.IsMap() && node["layers"];
  return has_layers ? graph_from(node, source, defaults) : zoo_from(node, source, defaults);
}

}  // namespace convoy::model
