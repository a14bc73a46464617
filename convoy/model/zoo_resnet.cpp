// Residual networks. Where a block changes width or resolution its shortcut is a projection: a
// strided 1×1 convolution and batch norm (option B of the paper).

#include <fmt/format.h>

#include "convoy/model/zoo_parts.hpp"

namespace convoy::model::zoo_parts {
namespace {

/// One residual block: `width` of its inner convolutions, `stride` of the first 3×3.
using Block = LayerId (*)(Graph& graph, LayerId from, int64_t width, int64_t stride,
                          const std::string& name);

LayerId shortcut(Graph& graph, LayerId from, int64_t out, int64_t stride, const std::string& name) {
  if (stride == 1 && graph.layer(from).out.channels == out) return from;
  const LayerId x = graph.conv(from, unbiased(square(out, 1, stride)), name + ".downsample.0");
  return graph.batch_norm(x, name + ".downsample.1");
}

LayerId basic(Graph& graph, LayerId from, int64_t width, int64_t stride, const std::string& name) {
  LayerId x = graph.conv(from, unbiased(square(width, 3, stride, 1)), name + ".conv1");
  x = graph.relu(graph.batch_norm(x, name + ".bn1"), name + ".relu1");
  x = graph.conv(x, unbiased(square(width, 3, 1, 1)), name + ".conv2");
  x = graph.batch_norm(x, name + ".bn2");
  x = graph.add(Add{}, {x, shortcut(graph, from, width, stride, name)}, name + ".add");
  return graph.relu(x, name + ".relu2");
}

LayerId bottleneck(Graph& graph, LayerId from, int64_t width, int64_t stride,
                   const std::string& name) {
  LayerId x = graph.conv(from, unbiased(square(width, 1)), name + ".conv1");
  x = graph.relu(graph.batch_norm(x, name + ".bn1"), name + ".relu1");
  x = graph.conv(x, unbiased(square(width, 3, stride, 1)), name + ".conv2");
  x = graph.relu(graph.batch_norm(x, name + ".bn2"), name + ".relu2");
  x = graph.conv(x, unbiased(square(4 * width, 1)), name + ".conv3");
  x = graph.batch_norm(x, name + ".bn3");
  x = graph.add(Add{}, {x, shortcut(graph, from, 4 * width, stride, name)}, name + ".add");
  return graph.relu(x, name + ".relu3");
}

/// Stages of `depths` blocks, each twice as wide and, from the second on, half as large as the one
/// before; then the classifier.
LayerId stages(Graph& graph, LayerId x, int64_t classes, Block block, int64_t width,
               const std::vector<int>& depths) {
  for (size_t stage = 0; stage < depths.size(); ++stage, width *= 2) {
    for (int i = 0; i < depths[stage]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      x = block(graph, x, width, stride, fmt::format("layer{}.{}", stage + 1, i));
    }
  }
  x = graph.add(GlobalAveragePool{}, {x}, "avgpool");
  return graph.linear(x, classes, "fc");
}

LayerId for_imagenet(Graph& graph, int64_t classes, Block block, const std::vector<int>& depths) {
  LayerId x = graph.conv(graph.input(), unbiased(square(64, 7, 2, 3)), "conv1");
  x = graph.relu(graph.batch_norm(x, "bn1"), "relu");
  x = graph.max_pool(x, 3, 2, 1, "maxpool");
  return stages(graph, x, classes, block, 64, depths);
}

/// 6·depth + 2 weight layers.
LayerId for_cifar(Graph& graph, int64_t classes, int depth) {
  LayerId x = graph.conv(graph.input(), unbiased(square(16, 3, 1, 1)), "conv1");
  x = graph.relu(graph.batch_norm(x, "bn1"), "relu");
  return stages(graph, x, classes, basic, 16, {depth, depth, depth});
}

}  // namespace

LayerId resnet_18(Graph& graph, int64_t classes) {
  return for_imagenet(graph, classes, basic, {2, 2, 2, 2});
}

LayerId resnet_50(Graph& graph, int64_t classes) {
  return for_imagenet(graph, classes, bottleneck, {3, 4, 6, 3});
}

LayerId resnet_20(Graph& graph, int64_t classes) {
  return for_cifar(graph, classes, 3);
}
LayerId resnet_32(Graph& graph, int64_t classes) {
  return for_cifar(graph, classes, 5);
}
LayerId resnet_56(Graph& graph, int64_t classes) {
  return for_cifar(graph, classes, 9);
}

}  // namespace convoy::model::zoo_parts
