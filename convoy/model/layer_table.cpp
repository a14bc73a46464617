#include "convoy/model/layer_table.hpp"

#include <algorithm>
#include <array>

#include "convoy/base/error.hpp"
#include "convoy/model/yaml.hpp"

namespace convoy::model {
namespace {

template <typename Kind, typename T>
Field field(std::string name, T Kind::*member, std::string help, bool required = false) {
  return {std::move(name), std::move(help), required,
          [member](const LayerKind& kind) { return FieldValue(std::get<Kind>(kind).*member); },
          [member](LayerKind& kind, const FieldValue& value) {
            std::get<Kind>(kind).*member = std::get<T>(value);
          }};
}

LayerType activation(ActivationKind kind, std::string help) {
  return {std::string(kind_name(kind)), std::move(help), Activation{.kind = kind}, "", {}};
}

LayerType activation(ActivationKind kind, std::string help, float alpha, std::string alpha_help) {
  return {std::string(kind_name(kind)),
          std::move(help),
          Activation{.kind = kind, .alpha = alpha},
          "alpha",
          {field("alpha", &Activation::alpha, std::move(alpha_help))}};
}

std::vector<Field> pool_fields() {
  return {field("kernel", &Pool::kernel, "extent of the window"),
          field("stride", &Pool::stride, "distance between windows"),
          field("pad", &Pool::pad, "padding on each side, less than the kernel"),
          field("ceil", &Pool::ceil, "round the output extent up instead of down")};
}

LayerType average_pool() {
  LayerType type{"average-pool", "Mean of each window.", Pool{.kind = PoolKind::average}, "kernel",
                 pool_fields()};
  type.fields.push_back(
      field("count-padding", &Pool::count_padding, "divide by the whole window, padding included"));
  return type;
}

LayerType conv() {
  return {"conv",
          "2-D convolution.",
          Conv{},
          "",
          {field("out", &Conv::out, "output channels", true),
           field("kernel", &Conv::kernel, "extent of the window"),
           field("stride", &Conv::stride, "distance between windows"),
           field("pad", &Conv::pad, "zeroes on each side"),
           field("dilation", &Conv::dilation, "distance between the values one window reads"),
           field("groups", &Conv::groups,
                 "divides input and output channels; equal to the input channels: depthwise"),
           field("bias", &Conv::bias, "add one learned value per output channel")}};
}

std::vector<LayerType> make_layer_types() {
  using enum ActivationKind;
  return {
      conv(),
      {"linear",
       "y = W·x + b; x is flattened, channel by channel.",
       Linear{},
       "out",
       {field("out", &Linear::out, "output values", true),
        field("bias", &Linear::bias, "add one learned value per output")}},
      {"batch-norm",
       "Normalises each channel over the samples, then scales and shifts it.",
       BatchNorm{},
       "",
       {field("epsilon", &BatchNorm::epsilon, "added to the variance"),
        field("momentum", &BatchNorm::momentum,
              "weight of the newest statistics in the running ones")}},
      activation(relu, "max(0, x)"),
      activation(leaky_relu, "x for x > 0, else alpha·x", 0.01F, "slope below 0"),
      activation(relu6, "min(max(0, x), 6)"),
      activation(elu, "x for x > 0, else alpha·(eˣ − 1)", 1.0F, "limit below 0"),
      activation(sigmoid, "1 / (1 + e⁻ˣ)"),
      activation(tanh, "(eˣ − e⁻ˣ) / (eˣ + e⁻ˣ)"),
      activation(gelu, "x·Φ(x), Φ the normal distribution function"),
      {"max-pool", "Largest value of each window.", Pool{.kind = PoolKind::max}, "kernel",
       pool_fields()},
      average_pool(),
      {"global-average-pool",
       "Mean over height and width of each channel.",
       GlobalAveragePool{},
       "",
       {}},
      {"lrn",
       "Across channels: x / (k + alpha/size · Σ x²)^beta.",
       Lrn{},
       "size",
       {field("size", &Lrn::size, "neighbouring channels in the sum, odd"),
        field("alpha", &Lrn::alpha, "weight of the sum"), field("beta", &Lrn::beta, "exponent"),
        field("k", &Lrn::k, "constant term")}},
      {"dropout",
       "In training zeroes values at random and scales the rest by 1/(1 − rate).",
       Dropout{},
       "rate",
       {field("rate", &Dropout::rate, "probability of zero, below 1")}},
      {"add",
       "Sum of two or more different layers of the same shape, named by `from`.",
       Add{},
       "",
       {}},
      {"concat",
       "Two or more different layers side by side along channels, named by `from`.",
       Concat{},
       "",
       {}},
      {"flatten", "Makes a vector of all values, channel by channel.", Flatten{}, "", {}},
      {"softmax-cross-entropy",
       "Loss: cross-entropy of the softmax with the label.",
       SoftmaxCrossEntropy{},
       "smoothing",
       {field("smoothing", &SoftmaxCrossEntropy::smoothing,
              "label smoothing ε: the target is (1 − ε)·one-hot + ε/classes")}},
      {"mean-squared-error",
       "Loss: mean of (x − target)²; a label counts as one-hot.",
       MeanSquaredError{},
       "",
       {}},
  };
}

constexpr std::array<std::string_view, 4> kTypeNames{"integer", "integer or [v, h]", "number",
                                                     "true or false"};

}  // namespace

const std::vector<LayerType>& layer_types() {
  static const std::vector<LayerType> types = make_layer_types();
  return types;
}

const LayerType* find_layer_type(std::string_view name) {
  const auto& types = layer_types();
  const auto found = std::find_if(types.begin(), types.end(),
                                  [&](const LayerType& type) { return type.name == name; });
  return found == types.end() ? nullptr : &*found;
}

std::string to_string(const FieldValue& value) {
  if (const auto* pair = std::get_if<Pair>(&value)) {
    if ((*pair)[0] == (*pair)[1]) return std::to_string((*pair)[0]);
    return fmt::format("[{}, {}]", (*pair)[0], (*pair)[1]);
  }
  if (const auto* number = std::get_if<float>(&value)) return fmt::format("{}", *number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return std::to_string(std::get<int64_t>(value));
}

std::string layer_reference() {
  std::string text;
  for (const LayerType& type : layer_types()) {
    text += fmt::format("### {}\n\n{}\n\n", type.name, type.help);
    if (type.fields.empty()) continue;
    if (!type.shorthand.empty()) {
      text += fmt::format("`{}: VALUE` is short for `{}: {{{}: VALUE}}`.\n\n", type.name, type.name,
                          type.shorthand);
    }
    text += "| key | value | default | meaning |\n|---|---|---|---|\n";
    for (const Field& field : type.fields) {
      const FieldValue fallback = field.get(type.prototype);
      text += fmt::format("| {} | {} | {} | {} |\n", field.name, kTypeNames.at(fallback.index()),
                          field.required ? "required" : to_string(fallback), field.help);
    }
    text += "\n";
  }
  return text;
}

}  // namespace convoy::model
