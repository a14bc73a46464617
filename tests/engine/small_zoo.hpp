#pragma once
// The zoo's networks on inputs as small as they allow, so that a grain takes a moment.

#include <map>
#include <string>

#include "convoy/model/zoo.hpp"

namespace convoy::engine {

inline model::Graph small_net(const std::string& name) {
  static const std::map<std::string, model::Shape> inputs{
      {"alexnet", {3, 64, 64}},   {"caffenet", {3, 67, 67}},  {"overfeat-fast", {3, 71, 71}},
      {"vgg-a", {3, 32, 32}},     {"vgg-16", {3, 32, 32}},    {"googlenet-bn", {3, 64, 64}},
      {"resnet-18", {3, 64, 64}}, {"resnet-50", {3, 64, 64}}, {"mobilenet-v1", {3, 64, 64}}};
  model::ZooOptions options;
  options.classes = 17;
  if (const auto found = inputs.find(name); found != inputs.end()) options.input = found->second;
  if (name == "mlp") options.hidden = {100, 60};
  return model::build(name, options);
}

}  // namespace convoy::engine
