// Networks of a few layers: LeNet, the multilayer perceptron, the acoustic model.

#include "convoy/model/zoo_parts.hpp"

namespace convoy::model::zoo_parts {

LayerId lenet(Graph& graph, int64_t classes) {
  LayerId x = graph.conv(graph.input(), square(20, 5), "conv1");
  x = graph.max_pool(x, 2, 2, 0, "pool1");
  x = graph.conv(x, square(50, 5), "conv2");
  x = graph.max_pool(x, 2, 2, 0, "pool2");
  x = linear_relu(graph, x, 500, "1");
  return graph.linear(x, classes, "fc2");
}

LayerId mlp(Graph& graph, int64_t classes, std::span<const int64_t> hidden) {
  LayerId x = graph.input();
  int number = 0;
  for (const int64_t units : hidden) x = linear_relu(graph, x, units, std::to_string(++number));
  return graph.linear(x, classes, "fc" + std::to_string(number + 1));
}

LayerId cd_dnn(Graph& graph, int64_t classes) {
  constexpr int kHidden = 7;
  LayerId x = graph.input();
  for (int i = 1; i <= kHidden; ++i) {
    x = graph.linear(x, 2048, "fc" + std::to_string(i));
    x = graph.add(Activation{.kind = ActivationKind::sigmoid}, {x}, "sigmoid" + std::to_string(i));
  }
  return graph.linear(x, classes, "fc" + std::to_string(kHidden + 1));
}

}  // namespace convoy::model::zoo_parts
