#pragma once
// Graphs in YAML: the `model:` part of a job. docs/model.md is the manual.
//
// clang-format off
//   model: resnet-20                                  a zoo name, or
//   model: {name: resnet-20, classes: 100}            a zoo name with ZooOptions, or a graph:
//   model:
//     input: [1, 28, 28]
//     layers:
//       - conv: {out: 32, kernel: 3, pad: 1}          reads the layer before it
//       - relu
//       - repeat: 3                                   the block three times in a row
//         name: stage                                 its layers are stage.0.… stage.1.… stage.2.…
//         layers:
//           - {conv: {out: 32, kernel: 3, pad: 1, bias: false}, name: a, from: start}
//           - batch-norm                              `from: start` is what the block read;
//           - {add: {}, from: [previous, start]}      `previous` the layer before
//           - relu
//       - global-average-pool
//       - linear: 10
//       - softmax-cross-entropy
// clang-format on

#include <string>

#include <yaml-cpp/yaml.h>

#include "convoy/model/graph.hpp"
#include "convoy/model/zoo.hpp"

namespace convoy::model {

/// Builds the graph a `model:` node asks for. `defaults` holds input shape and classes of the data:
/// they apply where the node is silent (so does its smoothing, to the loss of a graph). `file` is
/// named in errors, together with the line. Throws InputError.
Graph from_yaml(const YAML::Node& node, const std::string& file, const ZooOptions& defaults = {});

/// The graph written out layer by layer (no repeat blocks); from_yaml reads it back.
std::string to_yaml(const Graph& graph);

/// The same for the same graph, and hardly ever for another.
uint64_t fingerprint(const Graph& graph);

/// Every layer kind with its keys, as Markdown: the reference part of docs/model.md.
std::string layer_reference();

}  // namespace convoy::model
