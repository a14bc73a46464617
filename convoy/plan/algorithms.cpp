#include "convoy/plan/algorithms.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/ranges.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::plan {
namespace {

using engine::Algorithm;
using engine::ConvAlgorithms;
using engine::Direction;

constexpr const char* kKey = "engine.algorithms";

model::LayerId find_conv(const model::Graph& graph, const std::string& name) {
  std::vector<std::string> names;
  for (model::LayerId id = 0; id < static_cast<model::LayerId>(graph.layers().size()); ++id) {
    if (!std::holds_alternative<model::Conv>(graph.layer(id).kind)) continue;
    if (graph.layer(id).name == name) return id;
    names.push_back(graph.layer(id).name);
  }
  const std::string near = nearest(name, names);
  refuse("{}: no convolution '{}'{}", kKey, name,
         near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const Algorithm algorithm : engine::kAlgorithms) names.emplace_back(to_string(algorithm));
  return names;
}

Algorithm read_name(const YAML::Node& node) {
  if (!node.IsScalar()) refuse("{}: expected the name of an algorithm", kKey);
  return engine::parse_algorithm(node.Scalar());
}

ConvAlgorithms read_layer(const YAML::Node& node) {
  ConvAlgorithms algorithms;
  if (!node.IsMap()) {
    const Algorithm algorithm = read_name(node);
    return {algorithm, algorithm, algorithm};
  }
  for (const auto& entry : node) {
    const std::string key = entry.first.Scalar();
    const auto* direction =
        std::find_if(std::begin(engine::kDirections), std::end(engine::kDirections),
                     [&](Direction d) { return key == to_string(d); });
    if (direction == std::end(engine::kDirections)) {
      refuse("{}: no direction '{}'; there are forward, backward-data and backward-weights", kKey,
             key);
    }
    algorithms.of(*direction) = read_name(entry.second);
  }
  return algorithms;
}

/// The option of `algorithm` for every item; the first (direct) where it has none.
std::vector<size_t> all_of(Algorithm algorithm, const std::vector<ConvProfile>& profile) {
  std::vector<size_t> taken;
  for (const ConvProfile& p : profile) {
    for (const Direction direction : engine::kDirections) {
      const auto& timings = p.of(direction);
      if (timings.empty()) continue;
      const auto found = std::find_if(timings.begin(), timings.end(), [&](const ConvTiming& t) {
        return t.algorithm == algorithm;
      });
      taken.push_back(found == timings.end() ? 0 : static_cast<size_t>(found - timings.begin()));
    }
  }
  return taken;
}

}  // namespace

std::optional<Algorithms> read_algorithms(const std::string& wish, const model::Graph& graph,
                                          int64_t grain) {
  if (wish == "auto") return std::nullopt;
  for (const Algorithm algorithm : engine::kAlgorithms) {
    if (wish == to_string(algorithm)) {
      return engine::wherever_possible(graph, grain, engine::select_kernels(), algorithm);
    }
  }
  const bool inline_plan = wish.find('\n') != std::string::npos;
  if (!inline_plan && !std::filesystem::exists(wish)) {
    refuse("{}: '{}' is neither auto, nor an algorithm ({}), nor a plan file", kKey, wish,
           fmt::join(algorithm_names(), ", "));
  }
  Algorithms algorithms;
  try {
    const YAML::Node map = (inline_plan ? YAML::Load(wish) : YAML::LoadFile(wish))["algorithms"];
    if (map && !map.IsMap()) refuse("{}: expected a map of layers as algorithms", wish);
    if (!map) refuse("{}: expected algorithms, found none", wish);
    for (const auto& entry : map) {
      algorithms[find_conv(graph, entry.first.Scalar())] = read_layer(entry.second);
    }
  } catch (const YAML::Exception& error) {
    refuse("{}: no plan can be read from it ({})", wish, error.what());
  }
  return algorithms;
}

YAML::Node to_yaml(const Algorithms& algorithms, const model::Graph& graph) {
  YAML::Node map(YAML::NodeType::Map);
  for (const auto& [id, of_layer] : algorithms) {
    YAML::Node entry(YAML::NodeType::Map);
    entry.SetStyle(YAML::EmitterStyle::Flow);
    for (const Direction direction : engine::kDirections) {
      const Algorithm algorithm = of_layer.of(direction);
      if (algorithm != Algorithm::direct) entry[to_string(direction)] = to_string(algorithm);
    }
    if (entry.size() > 0) map[graph.layer(id).name] = entry;
  }
  return map;
}

std::vector<Item> items_of(const std::vector<ConvProfile>& profile, const model::Graph& graph,
                           int64_t batch, int64_t grain, int lanes) {
  const double grains = static_cast<double>(batch) / static_cast<double>(grain);
  std::vector<Item> items;
  for (const ConvProfile& p : profile) {
    for (const Direction direction : engine::kDirections) {
      if (p.of(direction).empty()) continue;
      Item item;
      item.name = fmt::format("{} {}", graph.layer(p.layer).name, to_string(direction));
      for (const ConvTiming& t : p.of(direction)) {
        item.options.push_back(
            {Seconds{t.time.value + t.preparation.value / grains}, lanes * t.workspace, t.kept});
      }
      items.push_back(std::move(item));
    }
  }
  return items;
}

Algorithms algorithms_of(const std::vector<ConvProfile>& profile, const Choice& choice) {
  Algorithms algorithms;
  size_t next = 0;
  for (const ConvProfile& p : profile) {
    for (const Direction direction : engine::kDirections) {
      if (p.of(direction).empty()) continue;
      algorithms[p.layer].of(direction) = p.of(direction).at(choice.taken.at(next++)).algorithm;
    }
  }
  return algorithms;
}

std::string compare_choices(const std::vector<Item>& items, const std::vector<ConvProfile>& profile,
                            Workspace form) {
  const Choice direct = tally(items, all_of(Algorithm::direct, profile), form);
  const Choice lowering = tally(items, all_of(Algorithm::lowering, profile), form);
  const Bytes least = least_memory(items, form);
  const auto unbounded = choose_exactly(items, form, Bytes{int64_t{1} << 50});
  check(unbounded.has_value(), "without a bound there is a choice");
  const auto cell = [](const Choice& c, Bytes bound) {
    return c.memory <= bound ? fmt::format("{:.2f}", c.time.value * 1e3) : std::string("–");
  };
  std::string text = fmt::format(
      "{:>12} {:>10} {:>10} {:>10} {:>10}   (ms per grain; {} workspace)\n", "memory", "direct",
      "lowering", "greedy", "exact", form == Workspace::shared ? "shared" : "separate");
  // First as much as any of them takes, then down to the least.
  constexpr int kSteps = 10;
  std::vector<Bytes> bounds = {std::max({unbounded->memory, direct.memory, lowering.memory})};
  for (int i = kSteps; i >= 0; --i) {
    bounds.push_back({least.value + (unbounded->memory.value - least.value) * i / kSteps});
  }
  for (const Bytes bound : bounds) {
    const auto greedy = choose_greedily(items, form, bound);
    const auto exact = choose_exactly(items, form, bound);
    text += fmt::format("{:>12} {:>10} {:>10} {:>10} {:>10}\n", to_string(bound),
                        cell(direct, bound), cell(lowering, bound),
                        greedy ? cell(*greedy, bound) : "–", exact ? cell(*exact, bound) : "–");
  }
  return text;
}

}  // namespace convoy::plan
