// VGG: stages of 3×3 convolutions with a halving max pool between them.

#include <array>

#include <fmt/format.h>

#include "convoy/model/zoo_parts.hpp"

namespace convoy::model::zoo_parts {
namespace {

/// `depths` is the number of convolutions in each of the five stages.
LayerId vgg(Graph& graph, int64_t classes, const std::array<int, 5>& depths) {
  constexpr std::array<int64_t, 5> kWidths{64, 128, 256, 512, 512};
  LayerId x = graph.input();
  for (size_t stage = 0; stage < depths.size(); ++stage) {
    for (int i = 1; i <= depths[stage]; ++i) {
      x = conv_relu(graph, x, square(kWidths[stage], 3, 1, 1), fmt::format("{}_{}", stage + 1, i));
    }
    x = graph.max_pool(x, 2, 2, 0, fmt::format("pool{}", stage + 1));
  }
  for (const char* tag : {"6", "7"}) {
    x = linear_relu(graph, x, 4096, tag);
    x = graph.add(Dropout{.rate = 0.5F}, {x}, fmt::format("drop{}", tag));
  }
  return graph.linear(x, classes, "fc8");
}

}  // namespace

LayerId vgg_a(Graph& graph, int64_t classes) {
  return vgg(graph, classes, {1, 1, 2, 2, 2});
}
LayerId vgg_16(Graph& graph, int64_t classes) {
  return vgg(graph, classes, {2, 2, 3, 3, 3});
}

}  // namespace convoy::model::zoo_parts
