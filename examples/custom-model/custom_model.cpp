// A small residual network of your own, built in C++.
//
// Run:     build/release/example_custom_model
// Expect:  a table of its layers, ending in 46,970 parameters and 23.7 MFLOP per image, and the
//          same network as YAML, ready for the `model:` part of a job.

#include <cstdio>
#include <string>

#include "convoy/model/graph.hpp"
#include "convoy/model/yaml.hpp"

namespace {

using convoy::model::Conv;
using convoy::model::Graph;
using convoy::model::LayerId;

/// 3×3 convolution and batch norm; the norm's shift makes a bias superfluous.
LayerId conv_norm(Graph& graph, LayerId from, int64_t out, int64_t stride) {
  const Conv conv{
      .out = out, .kernel = {3, 3}, .stride = {stride, stride}, .pad = {1, 1}, .bias = false};
  return graph.batch_norm(graph.conv(from, conv));
}

/// Two convolutions whose result is added to what they read.
LayerId residual(Graph& graph, LayerId from, const std::string& name) {
  const int64_t channels = graph.layer(from).out.channels;
  LayerId x = graph.relu(conv_norm(graph, from, channels, 1));
  x = conv_norm(graph, x, channels, 1);
  return graph.relu(graph.add(convoy::model::Add{}, {x, from}, name));
}

Graph small_residual_net() {
  Graph graph({1, 28, 28}, "small-residual-net");
  LayerId x = graph.relu(conv_norm(graph, graph.input(), 16, 1));
  x = residual(graph, x, "first");
  x = graph.relu(conv_norm(graph, x, 32, 2));
  x = residual(graph, x, "second");
  x = residual(graph, x, "third");
  x = graph.add(convoy::model::GlobalAveragePool{}, {x});
  graph.softmax_cross_entropy(graph.linear(x, 10, "classes"));
  graph.check_complete();
  return graph;
}

}  // namespace

int main() {
  const Graph graph = small_residual_net();
  std::printf("%s\n%s", convoy::model::describe(graph).c_str(), to_yaml(graph).c_str());
}
