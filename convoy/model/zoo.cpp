#include "convoy/model/zoo.hpp"

#include <functional>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/model/zoo_parts.hpp"

namespace convoy::model {
namespace zoo_parts {

LayerId conv_relu(Graph& graph, LayerId from, const Conv& conv, const std::string& tag) {
  return graph.relu(graph.conv(from, conv, "conv" + tag), "relu" + tag);
}

LayerId linear_relu(Graph& graph, LayerId from, int64_t out, const std::string& tag) {
  return graph.relu(graph.linear(from, out, "fc" + tag), "relu" + tag);
}

}  // namespace zoo_parts

namespace {

struct Recipe {
  ZooEntry entry;
  Shape input;
  int64_t classes;
  std::function<LayerId(Graph&, int64_t classes)> build;
};

constexpr Shape kImageNet{3, 224, 224};
constexpr Shape kCifar{3, 32, 32};
constexpr Shape kMnist{1, 28, 28};

LayerId default_mlp(Graph& graph, int64_t classes) {
  return zoo_parts::mlp(graph, classes, std::vector<int64_t>{512, 512});
}

const std::vector<Recipe>& recipes() {
  namespace parts = zoo_parts;
  static const std::vector<Recipe> all{
      {{"mlp", "fully connected, two hidden layers of 512 ReLUs or as `hidden` says; 1×28×28"},
       kMnist,
       10,
       default_mlp},
      {{"lenet", "LeNet as Caffe trains it on MNIST (LeCun et al. 1998); 1×28×28"},
       kMnist,
       10,
       parts::lenet},
      {{"resnet-20", "residual net for CIFAR (He et al. 2015), projection shortcuts; 3×32×32"},
       kCifar,
       10,
       parts::resnet_20},
      {{"resnet-32", "residual net for CIFAR (He et al. 2015), projection shortcuts; 3×32×32"},
       kCifar,
       10,
       parts::resnet_32},
      {{"resnet-56", "residual net for CIFAR (He et al. 2015), projection shortcuts; 3×32×32"},
       kCifar,
       10,
       parts::resnet_56},
      {{"resnet-18", "residual net for ImageNet (He et al. 2015); 3×224×224"},
       kImageNet,
       1000,
       parts::resnet_18},
      {{"resnet-50", "residual net for ImageNet, v1.5: stride in the 3×3 convolution; 3×224×224"},
       kImageNet,
       1000,
       parts::resnet_50},
      {{"alexnet", "AlexNet in one tower (Krizhevsky 2014); 3×224×224"},
       kImageNet,
       1000,
       parts::alexnet},
      {{"caffenet", "AlexNet as Caffe's reference model: groups, LRN after pooling; 3×227×227"},
       {3, 227, 227},
       1000,
       parts::caffenet},
      {{"overfeat-fast", "OverFeat's fast model (Sermanet et al. 2013); 3×231×231"},
       {3, 231, 231},
       1000,
       parts::overfeat_fast},
      {{"vgg-a", "VGG with 11 weight layers (Simonyan & Zisserman 2014); 3×224×224"},
       kImageNet,
       1000,
       parts::vgg_a},
      {{"vgg-16", "VGG with 16 weight layers (Simonyan & Zisserman 2014); 3×224×224"},
       kImageNet,
       1000,
       parts::vgg_16},
      {{"googlenet-bn",
        "GoogLeNet (Szegedy et al. 2014), batch norm after each convolution, no "
        "auxiliary heads; 3×224×224"},
       kImageNet,
       1000,
       parts::googlenet_bn},
      {{"mobilenet-v1",
        "depthwise separable convolutions (Howard et al. 2017), width 1; 3×224×224"},
       kImageNet,
       1000,
       parts::mobilenet_v1},
      {{"cd-dnn",
        "acoustic model for Switchboard: seven layers of 2048 sigmoids, 9304 senones; "
        "429 features"},
       {429, 1, 1},
       9304,
       parts::cd_dnn},
  };
  return all;
}

const Recipe& find_recipe(const std::string& name) {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) {
    if (recipe.entry.name == name) return recipe;
    names.push_back(recipe.entry.name);
  }
  const std::string near = nearest(name, names);
  refuse("there is no model '{}' in the zoo{}; there are: {}", name,
         near.empty() ? "" : fmt::format(", did you mean '{}'?", near), join(names));
}

}  // namespace

const std::vector<ZooEntry>& zoo() {
  static const std::vector<ZooEntry> listed = [] {
    std::vector<ZooEntry> entries;
    for (const Recipe& recipe : recipes()) entries.push_back(recipe.entry);
    return entries;
  }();
  return listed;
}

Graph build(const std::string& name, const ZooOptions& options) {
  const Recipe& recipe = find_recipe(name);
  if (!options.hidden.empty() && name != "mlp") {
    refuse("model '{}': hidden sizes can be chosen for mlp only", name);
  }
  const Shape input = options.input.value_or(recipe.input);
  const int64_t classes = options.classes.value_or(recipe.classes);
  if (classes < 1) refuse("model '{}': classes is {}; it must be at least 1", name, classes);
  try {
    Graph graph(input, name);
    const LayerId scores = options.hidden.empty() ? recipe.build(graph, classes)
                                                  : zoo_parts::mlp(graph, classes, options.hidden);
    graph.softmax_cross_entropy(scores, options.smoothing);
    graph.check_complete();
    return graph;
  } catch (const InputError& error) {
    refuse("model '{}' with input {} (published: {}): {}", name, to_string(input),
           to_string(recipe.input), error.what());
  }
}

}  // namespace convoy::model
