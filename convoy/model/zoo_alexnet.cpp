// AlexNet and its kin: a few large convolutions, then most parameters in three linear layers.

#include "convoy/model/zoo_parts.hpp"

namespace convoy::model::zoo_parts {
namespace {

LayerId dropout(Graph& graph, LayerId from, const std::string& name) {
  return graph.add(Dropout{.rate = 0.5F}, {from}, name);
}

}  // namespace

LayerId alexnet(Graph& graph, int64_t classes) {
  LayerId x = conv_relu(graph, graph.input(), square(64, 11, 4, 2), "1");
  x = graph.max_pool(x, 3, 2, 0, "pool1");
  x = conv_relu(graph, x, square(192, 5, 1, 2), "2");
  x = graph.max_pool(x, 3, 2, 0, "pool2");
  x = conv_relu(graph, x, square(384, 3, 1, 1), "3");
  x = conv_relu(graph, x, square(256, 3, 1, 1), "4");
  x = conv_relu(graph, x, square(256, 3, 1, 1), "5");
  x = graph.max_pool(x, 3, 2, 0, "pool5");
  x = linear_relu(graph, dropout(graph, x, "drop6"), 4096, "6");
  x = linear_relu(graph, dropout(graph, x, "drop7"), 4096, "7");
  return graph.linear(x, classes, "fc8");
}

LayerId caffenet(Graph& graph, int64_t classes) {
  LayerId x = conv_relu(graph, graph.input(), square(96, 11, 4), "1");
  x = graph.max_pool(x, 3, 2, 0, "pool1");
  x = graph.add(Lrn{}, {x}, "norm1");
  x = conv_relu(graph, x, square(256, 5, 1, 2, 2), "2");
  x = graph.max_pool(x, 3, 2, 0, "pool2");
  x = graph.add(Lrn{}, {x}, "norm2");
  x = conv_relu(graph, x, square(384, 3, 1, 1), "3");
  x = conv_relu(graph, x, square(384, 3, 1, 1, 2), "4");
  x = conv_relu(graph, x, square(256, 3, 1, 1, 2), "5");
  x = graph.max_pool(x, 3, 2, 0, "pool5");
  x = dropout(graph, linear_relu(graph, x, 4096, "6"), "drop6");
  x = dropout(graph, linear_relu(graph, x, 4096, "7"), "drop7");
  return graph.linear(x, classes, "fc8");
}

LayerId overfeat_fast(Graph& graph, int64_t classes) {
  LayerId x = conv_relu(graph, graph.input(), square(96, 11, 4), "1");
  x = graph.max_pool(x, 2, 2, 0, "pool1");
  x = conv_relu(graph, x, square(256, 5), "2");
  x = graph.max_pool(x, 2, 2, 0, "pool2");
  x = conv_relu(graph, x, square(512, 3, 1, 1), "3");
  x = conv_relu(graph, x, square(1024, 3, 1, 1), "4");
  x = conv_relu(graph, x, square(1024, 3, 1, 1), "5");
  x = graph.max_pool(x, 2, 2, 0, "pool5");
  x = dropout(graph, linear_relu(graph, x, 3072, "6"), "drop6");
  x = dropout(graph, linear_relu(graph, x, 4096, "7"), "drop7");
  return graph.linear(x, classes, "fc8");
}

}  // namespace convoy::model::zoo_parts
