// GoogLeNet (Inception v1) with batch norm after each convolution, without auxiliary heads.

#include <utility>

#include "convoy/model/zoo_parts.hpp"

namespace convoy::model::zoo_parts {
namespace {

LayerId conv_bn_relu(Graph& graph, LayerId from, const Conv& conv, const std::string& name) {
  LayerId x = graph.conv(from, unbiased(conv), name + ".conv");
  x = graph.batch_norm(x, name + ".bn");
  return graph.relu(x, name + ".relu");
}

/// Widths of one module, in the order of the paper's table 1.
struct Widths {
  int64_t one;           ///< 1×1
  int64_t three_reduce;  ///< 1×1 before the 3×3
  int64_t three;
  int64_t five_reduce;  ///< 1×1 before the 5×5
  int64_t five;
  int64_t pool;  ///< 1×1 after the pooling
};

LayerId inception(Graph& graph, LayerId from, const Widths& widths, const std::string& name) {
  const LayerId one = conv_bn_relu(graph, from, square(widths.one, 1), name + ".1x1");
  LayerId three = conv_bn_relu(graph, from, square(widths.three_reduce, 1), name + ".3x3_reduce");
  three = conv_bn_relu(graph, three, square(widths.three, 3, 1, 1), name + ".3x3");
  LayerId five = conv_bn_relu(graph, from, square(widths.five_reduce, 1), name + ".5x5_reduce");
  five = conv_bn_relu(graph, five, square(widths.five, 5, 1, 2), name + ".5x5");
  LayerId pool = graph.max_pool(from, 3, 1, 1, name + ".pool");
  pool = conv_bn_relu(graph, pool, square(widths.pool, 1), name + ".pool_proj");
  return graph.add(Concat{}, {one, three, five, pool}, name + ".concat");
}

LayerId halve(Graph& graph, LayerId from, const std::string& name) {
  const Pool pool{.kind = PoolKind::max, .kernel = {3, 3}, .stride = {2, 2}, .ceil = true};
  return graph.add(pool, {from}, name);
}

}  // namespace

LayerId googlenet_bn(Graph& graph, int64_t classes) {
  using Modules = std::vector<std::pair<const char*, Widths>>;
  static const std::vector<Modules> stages{
      {{"3a", {64, 96, 128, 16, 32, 32}}, {"3b", {128, 128, 192, 32, 96, 64}}},
      {{"4a", {192, 96, 208, 16, 48, 64}},
       {"4b", {160, 112, 224, 24, 64, 64}},
       {"4c", {128, 128, 256, 24, 64, 64}},
       {"4d", {112, 144, 288, 32, 64, 64}},
       {"4e", {256, 160, 320, 32, 128, 128}}},
      {{"5a", {256, 160, 320, 32, 128, 128}}, {"5b", {384, 192, 384, 48, 128, 128}}},
  };
  LayerId x = conv_bn_relu(graph, graph.input(), square(64, 7, 2, 3), "conv1");
  x = halve(graph, x, "pool1");
  x = conv_bn_relu(graph, x, square(64, 1), "conv2_reduce");
  x = conv_bn_relu(graph, x, square(192, 3, 1, 1), "conv2");
  int pools = 1;
  for (const Modules& stage : stages) {
    x = halve(graph, x, "pool" + std::to_string(++pools));
    for (const auto& [name, widths] : stage) {
      x = inception(graph, x, widths, std::string("inception") + name);
    }
  }
  x = graph.add(GlobalAveragePool{}, {x}, "pool5");
  x = graph.add(Dropout{.rate = 0.4F}, {x}, "dropout");
  return graph.linear(x, classes, "fc");
}

}  // namespace convoy::model::zoo_parts
