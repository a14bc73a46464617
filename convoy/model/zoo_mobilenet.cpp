// MobileNet v1: each 3×3 convolution split into a depthwise and a 1×1 one.

#include <array>

#include "convoy/model/zoo_parts.hpp"

namespace convoy::model::zoo_parts {
namespace {

LayerId conv_bn_relu6(Graph& graph, LayerId from, const Conv& conv, const std::string& name) {
  LayerId x = graph.conv(from, unbiased(conv), name + ".conv");
  x = graph.batch_norm(x, name + ".bn");
  return graph.add(Activation{.kind = ActivationKind::relu6}, {x}, name + ".relu6");
}

struct Separable {
  int64_t out;
  int64_t stride;
};

}  // namespace

LayerId mobilenet_v1(Graph& graph, int64_t classes) {
  constexpr std::array<Separable, 13> kBlocks{{{64, 1},
                                               {128, 2},
                                               {128, 1},
                                               {256, 2},
                                               {256, 1},
                                               {512, 2},
                                               {512, 1},
                                               {512, 1},
                                               {512, 1},
                                               {512, 1},
                                               {512, 1},
                                               {1024, 2},
                                               {1024, 1}}};
  LayerId x = conv_bn_relu6(graph, graph.input(), square(32, 3, 2, 1), "stem");
  for (size_t i = 0; i < kBlocks.size(); ++i) {
    const std::string name = "block" + std::to_string(i + 1);
    const int64_t in = graph.layer(x).out.channels;
    x = conv_bn_relu6(graph, x, square(in, 3, kBlocks[i].stride, 1, in), name + ".depthwise");
    x = conv_bn_relu6(graph, x, square(kBlocks[i].out, 1), name + ".pointwise");
  }
  x = graph.add(GlobalAveragePool{}, {x}, "pool");
  return graph.linear(x, classes, "fc");
}

}  // namespace convoy::model::zoo_parts
