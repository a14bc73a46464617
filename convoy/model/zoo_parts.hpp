#pragma once
// What the files of the zoo share. Each family's function adds its layers to a graph that holds
// only the input and returns the layer with the class scores; zoo.cpp adds the loss.

#include <span>
#include <string>
#include <vector>

#include "convoy/model/graph.hpp"

namespace convoy::model::zoo_parts {

LayerId lenet(Graph& graph, int64_t classes);
LayerId mlp(Graph& graph, int64_t classes, std::span<const int64_t> hidden);
LayerId cd_dnn(Graph& graph, int64_t classes);
LayerId alexnet(Graph& graph, int64_t classes);
LayerId caffenet(Graph& graph, int64_t classes);
LayerId overfeat_fast(Graph& graph, int64_t classes);
LayerId vgg_a(Graph& graph, int64_t classes);
LayerId vgg_16(Graph& graph, int64_t classes);
LayerId googlenet_bn(Graph& graph, int64_t classes);
LayerId resnet_18(Graph& graph, int64_t classes);
LayerId resnet_50(Graph& graph, int64_t classes);
LayerId resnet_20(Graph& graph, int64_t classes);
LayerId resnet_32(Graph& graph, int64_t classes);
LayerId resnet_56(Graph& graph, int64_t classes);
LayerId mobilenet_v1(Graph& graph, int64_t classes);

/// A square convolution.
inline Conv square(int64_t out, int64_t kernel, int64_t stride = 1, int64_t pad = 0,
                   int64_t groups = 1) {
  return {.out = out,
          .kernel = {kernel, kernel},
          .stride = {stride, stride},
          .pad = {pad, pad},
          .groups = groups};
}

/// The same without a bias, for a batch norm behind it whose shift takes the bias's place.
inline Conv unbiased(Conv conv) {
  conv.bias = false;
  return conv;
}

/// Convolution "conv<tag>" and ReLU "relu<tag>".
LayerId conv_relu(Graph& graph, LayerId from, const Conv& conv, const std::string& tag);

/// Linear "fc<tag>" and ReLU "relu<tag>".
LayerId linear_relu(Graph& graph, LayerId from, int64_t out, const std::string& tag);

}  // namespace convoy::model::zoo_parts
