#pragma once
// The table of networks that gradient_test.cpp runs: every kind of layer and every fusion.

#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "convoy/model/graph.hpp"

namespace convoy::engine::gradient_cases {

using model::Activation;
using model::ActivationKind;
using model::Add;
using model::BatchNorm;
using model::Concat;
using model::Conv;
using model::Dropout;
using model::Flatten;
using model::GlobalAveragePool;
using model::Graph;
using model::LayerId;
using model::LayerKind;
using model::Linear;
using model::Lrn;
using model::MeanSquaredError;
using model::Pool;
using model::PoolKind;
using model::Shape;
using model::SoftmaxCrossEntropy;

constexpr int64_t kClasses = 5;

struct Case {
  std::string name;
  /// Adds the layers between input and head; returns the last one.
  std::function<LayerId(Graph&)> body;
  Shape input{3, 7, 6};
  LayerKind loss = SoftmaxCrossEntropy{};
  bool head = true;  ///< a linear layer of kClasses in front of the loss
  bool recompute_norm = true;

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }  // NOLINT: gtest's name
};

inline Conv conv3(int64_t out) {
  return {.out = out, .kernel = {3, 3}, .pad = {1, 1}};
}
inline LayerId stem(Graph& g, int64_t channels = 12) {
  return g.conv(g.input(), conv3(channels), "stem");
}
inline LayerId act(Graph& g, LayerId x, ActivationKind kind, float alpha = 0.01F) {
  return g.add(Activation{.kind = kind, .alpha = alpha}, {x});
}

inline Case conv_case(std::string name, Conv conv, int64_t channels = 12) {
  return {std::move(name), [=](Graph& g) { return g.conv(stem(g, channels), conv, "tested"); }};
}
inline Case first_conv_case(std::string name, int64_t channels, Conv conv) {
  return {std::move(name),
          [=](Graph& g) { return g.conv(g.input(), conv, "tested"); },
          {channels, 7, 6}};
}
inline Case pool_case(std::string name, Pool pool) {
  return {std::move(name), [=](Graph& g) { return g.add(pool, {stem(g)}); }};
}
inline Case activation_case(std::string name, ActivationKind kind, float alpha = 0.01F) {
  return {std::move(name), [=](Graph& g) { return act(g, stem(g), kind, alpha); }};
}
inline Case norm_case(std::string name, const std::function<LayerId(Graph&)>& body,
                      bool recompute) {
  Case c{std::move(name), body};
  c.recompute_norm = recompute;
  return c;
}

inline std::vector<Case> conv_cases() {
  const auto both = [](int64_t out, model::Pair kernel, model::Pair stride, model::Pair pad) {
    return Conv{.out = out, .kernel = kernel, .stride = stride, .pad = pad};
  };
  return {
      conv_case("conv_3x3", conv3(16)),
      conv_case("conv_without_bias", {.out = 8, .kernel = {3, 3}, .bias = false}),
      conv_case("conv_1x1", {.out = 24}),
      conv_case("conv_of_odd_channels", conv3(5), 7),
      conv_case("conv_stride_2", both(16, {3, 3}, {2, 2}, {1, 1})),
      conv_case("conv_1x1_stride_2", both(16, {1, 1}, {2, 2}, {0, 0})),
      conv_case("conv_oblong", both(9, {1, 5}, {1, 2}, {0, 2})),
      conv_case("conv_5x5", both(8, {5, 5}, {1, 1}, {2, 2})),
      conv_case("conv_larger_than_its_image", both(8, {11, 11}, {1, 1}, {5, 5})),
      conv_case("conv_dilated", {.out = 8, .kernel = {3, 3}, .pad = {2, 2}, .dilation = {2, 2}}),
      conv_case("conv_in_groups_of_whole_blocks",
                {.out = 16, .kernel = {3, 3}, .pad = {1, 1}, .groups = 2}, 32),
      conv_case("conv_in_groups_of_three", {.out = 8, .kernel = {3, 3}, .pad = {1, 1}, .groups = 4},
                12),
      conv_case("conv_in_groups_without_bias",
                {.out = 6, .kernel = {3, 3}, .groups = 3, .bias = false}, 9),
      conv_case("conv_depthwise", {.out = 12, .kernel = {3, 3}, .pad = {1, 1}, .groups = 12}),
      conv_case("conv_depthwise_stride_2",
                {.out = 16, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .groups = 16}, 16),
      conv_case("conv_depthwise_twice_as_wide",
                {.out = 24, .kernel = {3, 3}, .pad = {1, 1}, .groups = 12}),
      first_conv_case("first_conv_1_channel", 1, conv3(8)),
      first_conv_case("first_conv_3_channels", 3, conv3(12)),
      first_conv_case("first_conv_3_channels_stride_2", 3, both(8, {5, 5}, {2, 2}, {2, 2})),
      first_conv_case("first_conv_of_a_wide_strided_window", 3, both(8, {11, 9}, {4, 2}, {2, 3})),
      first_conv_case("first_conv_12_channels", 12, conv3(8)),
      first_conv_case("first_conv_depthwise", 3,
                      {.out = 3, .kernel = {3, 3}, .pad = {1, 1}, .groups = 3}),
      {"conv_relu", [](Graph& g) { return g.relu(g.conv(stem(g), conv3(16))); }},
      {"conv_without_bias_relu",
       [](Graph& g) {
         Conv conv = conv3(16);
         conv.bias = false;
         return g.relu(g.conv(stem(g), conv));
       }},
      {"conv_relu_max_pool",
       [](Graph& g) { return g.max_pool(g.relu(g.conv(stem(g), conv3(10))), 3, 2, 1); }},
      {"conv_relu_max_pool_and_another_reader",
       [](Graph& g) {
         const LayerId x = g.relu(g.conv(stem(g), conv3(10)));
         return g.add(Concat{}, {g.max_pool(x, 3, 1, 1), x});
       }},
      {"conv_on_a_vector",
       [](Graph& g) { return g.conv(g.linear(g.input(), 11), {.out = 6}, "tested"); }},
  };
}

inline std::vector<Case> norm_cases() {
  std::vector<Case> cases;
  for (const bool recompute : {true, false}) {
    const std::string suffix = recompute ? "_recomputed" : "_kept";
    const auto add = [&](const char* name, const std::function<LayerId(Graph&)>& body) {
      cases.push_back(norm_case(name + suffix, body, recompute));
    };
    add("norm", [](Graph& g) { return g.batch_norm(stem(g)); });
    add("norm_relu", [](Graph& g) { return g.relu(g.batch_norm(stem(g))); });
    add("norm_relu_conv", [](Graph& g) { return g.conv(g.relu(g.batch_norm(stem(g))), conv3(8)); });
    add("norm_gelu", [](Graph& g) { return act(g, g.batch_norm(stem(g)), ActivationKind::gelu); });
    add("norm_relu_read_by_three", [](Graph& g) {
      const LayerId x = g.relu(g.batch_norm(stem(g)));
      return g.add(Concat{}, {g.conv(x, conv3(9)), g.add(Lrn{.alpha = 0.5F}, {x}), x});
    });
    add("norm_norm_relu_conv",
        [](Graph& g) { return g.conv(g.relu(g.batch_norm(g.batch_norm(stem(g)))), conv3(8)); });
    add("norm_add_relu_norm_first", [](Graph& g) {
      const LayerId x = stem(g);
      const LayerId norm = g.batch_norm(g.conv(x, conv3(12)));
      return g.conv(g.relu(g.add(Add{}, {norm, x})), conv3(8));
    });
    add("norm_add_relu_norm_last", [](Graph& g) {
      const LayerId x = stem(g);
      const LayerId norm = g.batch_norm(g.conv(x, conv3(12)));
      return g.conv(g.relu(g.add(Add{}, {x, norm})), conv3(8));
    });
    add("norm_add_without_relu", [](Graph& g) {
      const LayerId x = stem(g);
      return g.add(Add{}, {g.batch_norm(g.conv(x, conv3(12))), x});
    });
    add("norm_added_to_its_own_input", [](Graph& g) {
      const LayerId x = stem(g);
      return g.relu(g.add(Add{}, {g.batch_norm(x), x}));
    });
    add("two_norms_added", [](Graph& g) {
      const LayerId x = stem(g);
      const LayerId right = g.batch_norm(g.conv(x, {.out = 10}));
      const LayerId left = g.batch_norm(g.conv(x, conv3(10)));
      return g.conv(g.relu(g.add(Add{}, {left, right})), conv3(8));
    });
    add("norm_of_the_input_added_to_it", [](Graph& g) {
      return g.relu(g.add(Add{}, {g.batch_norm(g.input()), g.input()}));
    });
    add("norm_of_a_flattened_map",
        [](Graph& g) { return g.relu(g.batch_norm(g.add(Flatten{}, {stem(g, 5)}))); });
    add("norm_flatten_linear",
        [](Graph& g) { return g.add(Flatten{}, {g.relu(g.batch_norm(stem(g)))}); });
    add("norm_max_pool", [](Graph& g) { return g.max_pool(g.relu(g.batch_norm(stem(g))), 2, 2); });
    add("norm_of_a_vector", [](Graph& g) { return g.relu(g.batch_norm(g.linear(g.input(), 13))); });
  }
  return cases;
}

inline std::vector<Case> pointwise_cases() {
  using enum ActivationKind;
  return {
      activation_case("relu_alone", relu),
      activation_case("leaky_relu", leaky_relu, 0.2F),
      activation_case("leaky_relu_of_negative_slope", leaky_relu, -0.2F),
      activation_case("relu6", relu6),
      activation_case("elu", elu, 1.5F),
      activation_case("elu_of_negative_limit", elu, -0.5F),
      activation_case("sigmoid", sigmoid),
      activation_case("tanh", tanh),
      activation_case("gelu", gelu),
      {"sigmoid_of_odd_channels_conv",
       [](Graph& g) { return g.conv(act(g, stem(g, 5), sigmoid), conv3(8)); }},
      {"relu_of_the_input", [](Graph& g) { return g.conv(g.relu(g.input()), conv3(8)); }},
      {"relu_read_by_conv_and_itself_second_reader",
       [](Graph& g) {
         const LayerId x = stem(g);
         return g.add(Add{}, {g.conv(g.relu(x), conv3(12)), act(g, x, tanh)});
       }},
      {"dropout", [](Graph& g) { return g.add(Dropout{.rate = 0.4F}, {stem(g)}); }},
      {"linear_relu_dropout",
       [](Graph& g) { return g.add(Dropout{.rate = 0.5F}, {g.relu(g.linear(g.input(), 20))}); }},
      {"add_of_two",
       [](Graph& g) {
         const LayerId x = stem(g);
         return g.add(Add{}, {g.conv(x, conv3(7)), g.conv(x, {.out = 7})});
       }},
      {"add_relu",
       [](Graph& g) {
         const LayerId x = stem(g);
         return g.relu(g.add(Add{}, {g.conv(x, conv3(12)), x}));
       }},
      {"add_of_three",
       [](Graph& g) {
         const LayerId x = stem(g);
         return g.relu(g.add(Add{}, {g.conv(x, conv3(12)), x, g.conv(x, {.out = 12})}));
       }},
      {"add_of_three_with_a_norm",
       [](Graph& g) {
         const LayerId x = stem(g);
         return g.relu(g.add(Add{}, {g.batch_norm(g.conv(x, conv3(12))), x, act(g, x, tanh)}));
       }},
      {"add_of_a_map_and_the_input",
       [](Graph& g) {
         return g.relu(g.add(Add{}, {stem(g, 3), g.input()}));
       }},
      {"concat_of_odd_channels",
       [](Graph& g) {
         const LayerId x = stem(g);
         return g.conv(g.add(Concat{}, {g.conv(x, conv3(5)), x, g.conv(x, {.out = 11})}), conv3(8));
       }},
      {"concat_of_whole_blocks",
       [](Graph& g) {
         const LayerId x = stem(g, 8);
         return g.conv(g.add(Concat{}, {g.relu(g.conv(x, conv3(16))), x}), conv3(8));
       }},
      {"concat_with_the_input",
       [](Graph& g) {
         return g.conv(g.add(Concat{}, {stem(g, 6), g.input()}), conv3(8));
       }},
      {"concat_of_vectors",
       [](Graph& g) {
         return g.add(Concat{}, {g.linear(g.input(), 5), g.linear(g.input(), 9),
                                 g.add(Flatten{}, {stem(g, 3)})});
       }},
      {"input_read_by_two_convs",
       [](Graph& g) {
         return g.add(Add{}, {stem(g, 9), g.conv(g.input(), {.out = 9}, "second")});
       }},
      {"input_read_by_conv_norm_and_linear",
       [](Graph& g) {
         const LayerId left = g.add(Flatten{}, {stem(g, 4)});
         const LayerId middle = g.add(GlobalAveragePool{}, {g.batch_norm(g.input())});
         return g.add(Concat{}, {left, middle, g.linear(g.input(), 6)});
       }},
      {"layer_read_by_three",
       [](Graph& g) {
         const LayerId x = g.relu(stem(g));
         const LayerId pool = g.max_pool(x, 3, 1, 1);
         return g.add(Add{}, {g.conv(x, conv3(12)), pool, x});
       }},
  };
}

inline std::vector<Case> pool_cases() {
  const auto average = [](model::Pair kernel, int64_t stride, int64_t pad, bool ceil, bool count) {
    return Pool{PoolKind::average, kernel, {stride, stride}, {pad, pad}, ceil, count};
  };
  return {
      pool_case("max_pool_2x2", {}),
      pool_case("max_pool_3x3_stride_2", {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}}),
      pool_case("max_pool_ceil", {.kernel = {3, 3}, .stride = {2, 2}, .ceil = true}),
      pool_case("max_pool_oblong", {.kernel = {2, 3}, .stride = {1, 2}, .pad = {0, 1}}),
      pool_case("average_pool", average({2, 2}, 2, 0, false, true)),
      pool_case("average_pool_with_padding_counted", average({3, 3}, 2, 1, false, true)),
      pool_case("average_pool_with_padding_not_counted", average({3, 3}, 2, 1, false, false)),
      pool_case("average_pool_ceil", average({3, 3}, 2, 1, true, true)),
      pool_case("average_pool_ceil_with_padding_not_counted", average({3, 2}, 2, 1, true, false)),
      {"average_pool_of_the_input_in_front_of_conv",
       [](Graph& g) {
         return g.conv(g.add(Pool{.kind = PoolKind::average}, {g.input()}), conv3(8));
       }},
      {"global_pool", [](Graph& g) { return g.add(GlobalAveragePool{}, {stem(g, 11)}); }},
      {"lrn", [](Graph& g) { return g.add(Lrn{.alpha = 0.7F, .k = 1.5F}, {stem(g)}); }},
      {"lrn_of_three",
       [](Graph& g) {
         return g.add(Lrn{3, 2.0F, 0.5F, 1.0F}, {stem(g, 5)});
       }},
      {"max_pool_lrn_conv",
       [](Graph& g) {
         const LayerId x = g.max_pool(g.relu(stem(g)), 3, 2);
         return g.conv(g.add(Lrn{.alpha = 1.0F}, {x}), conv3(8));
       }},
  };
}

inline std::vector<Case> border_cases() {
  using enum ActivationKind;
  std::vector<Case> cases{
      {"linear_of_the_input", [](Graph& g) { return g.relu(g.linear(g.input(), 9)); }},
      {"linear_without_bias",
       [](Graph& g) { return g.add(Linear{.out = 9, .bias = false}, {g.linear(g.input(), 10)}); }},
      {"linear_without_bias_relu",
       [](Graph& g) {
         return g.relu(g.add(Linear{.out = 9, .bias = false}, {g.linear(g.input(), 10)}));
       }},
      {"linear_of_a_map", [](Graph& g) { return g.linear(stem(g, 5), 9); }},
      {"linear_of_a_flattened_map",
       [](Graph& g) { return g.linear(g.add(Flatten{}, {stem(g, 5)}), 9); }},
      {"linear_of_the_flattened_input",
       [](Graph& g) { return g.linear(g.add(Flatten{}, {g.input()}), 9); }},
      {"linear_of_a_rectified_flattened_map",
       [](Graph& g) { return g.linear(g.relu(g.add(Flatten{}, {stem(g, 5)})), 9); }},
      {"sigmoid_of_the_flattened_input",
       [](Graph& g) { return g.linear(act(g, g.add(Flatten{}, {g.input()}), sigmoid), 9); }},
      {"norm_of_a_flattened_vector",
       [](Graph& g) { return g.batch_norm(g.add(Flatten{}, {g.input()})); },
       {13, 1, 1}},
      {"conv_of_a_flattened_vector",
       [](Graph& g) { return g.conv(g.add(Flatten{}, {g.input()}), {.out = 7}); },
       {13, 1, 1}},
      {"flattened_map_read_by_linear_and_norm",
       [](Graph& g) {
         const LayerId x = g.add(Flatten{}, {stem(g, 5)});
         return g.add(Concat{}, {g.linear(x, 9), g.batch_norm(x)});
       }},
      {"flatten_twice",
       [](Graph& g) { return g.add(Flatten{}, {g.add(Flatten{}, {stem(g, 5)})}); }},
      {"label_smoothing",
       [](Graph& g) { return g.relu(stem(g)); },
       {3, 7, 6},
       SoftmaxCrossEntropy{.smoothing = 0.1F}},
      {"mean_squared_error",
       [](Graph& g) { return g.relu(stem(g)); },
       {3, 7, 6},
       MeanSquaredError{}},
      {"mean_squared_error_of_a_map",
       [](Graph& g) { return stem(g, 5); },
       {3, 7, 6},
       MeanSquaredError{},
       false},
      {"loss_of_a_flattened_map",
       [](Graph& g) { return g.add(Flatten{}, {stem(g, 5)}); },
       {3, 3, 2},
       SoftmaxCrossEntropy{},
       false},
      {"loss_of_a_global_pool",
       [](Graph& g) {
         return g.add(Flatten{}, {g.add(GlobalAveragePool{}, {g.relu(g.batch_norm(stem(g)))})});
       },
       {3, 7, 6},
       SoftmaxCrossEntropy{},
       false},
      {"loss_of_a_norm",
       [](Graph& g) { return g.batch_norm(g.linear(g.input(), 6)); },
       {3, 7, 6},
       MeanSquaredError{},
       false},
  };
  return cases;
}

inline std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto& some :
       {conv_cases(), norm_cases(), pointwise_cases(), pool_cases(), border_cases()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

inline Graph build(const Case& c) {
  Graph graph(c.input, c.name);
  LayerId x = c.body(graph);
  if (c.head) x = graph.linear(x, kClasses, "head");
  graph.add(c.loss, {x}, "loss");
  graph.check_complete();
  return graph;
}

}  // namespace convoy::engine::gradient_cases
