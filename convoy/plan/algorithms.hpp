#pragma once
// Which algorithm computes each convolution: what a job says of it, and the choice by measurement.

#include <map>
#include <string>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "convoy/engine/algorithm.hpp"
#include "convoy/model/graph.hpp"
#include "convoy/plan/choice.hpp"
#include "convoy/plan/profile.hpp"

namespace convoy::plan {

using Algorithms = std::map<model::LayerId, engine::ConvAlgorithms>;

/// engine.algorithms of a job: "auto" (no value), the name of an algorithm (for every layer that it
/// can do), or a plan (a file, or its text, as workers get it from the first), whose `algorithms`
/// map layers to a name or to {forward, backward-data, backward-weights}; layers that are not
/// listed are direct. Throws InputError for a file that cannot be read and for an unknown layer or
/// algorithm.
std::optional<Algorithms> read_algorithms(const std::string& wish, const model::Graph& graph,
                                          int64_t grain);

/// The map of a plan file; only what is not direct.
YAML::Node to_yaml(const Algorithms& algorithms, const model::Graph& graph);

/// What a choice is made from: an item for each layer and direction of the profile, in its order.
/// Time is that of a step's grain: the preparation, once per step, is spread over the grains.
std::vector<Item> items_of(const std::vector<ConvProfile>& profile, const model::Graph& graph,
                           int64_t batch, int64_t grain, int lanes);

/// The algorithms that a choice among items_of() stands for.
Algorithms algorithms_of(const std::vector<ConvProfile>& profile, const Choice& choice);

/// All-direct, all-lowering, greedy and exact as the bound shrinks; a table for people.
std::string compare_choices(const std::vector<Item>& items, const std::vector<ConvProfile>& profile,
                            Workspace form);

}  // namespace convoy::plan
