#include "convoy/model/infer.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "convoy/base/error.hpp"

namespace convoy::model {
namespace {

std::string to_string(const Pair& pair) {
  return fmt::format("{}×{}", pair[0], pair[1]);
}

/// Beyond any machine, and small enough that sums over a whole graph cannot overflow.
constexpr int64_t kMaxWeights = int64_t{1} << 40;

/// Infers one layer; the overloads of operator() are the rules, one per kind.
class Inference {
 public:
  Inference(Layer& layer, const std::vector<const Layer*>& sources)
      : layer_(layer), sources_(sources) {}

  void operator()(const Input& /*input*/) const {
    refuse("layer '{}': a graph has one input, and it exists from the start", layer_.name);
  }

  void operator()(const Conv& conv) {
    const Shape in = only().out;
    positive("out", conv.out);
    positive("groups", conv.groups);
    positive("dilation", conv.dilation);
    if (in.channels % conv.groups != 0 || conv.out % conv.groups != 0) {
      refuse(
          "layer '{}': groups is {}, which must divide both the {} input channels ('{}') and "
          "the {} output channels",
          layer_.name, conv.groups, in.channels, only().name, conv.out);
    }
    const Pair extent = slide(conv.kernel, conv.stride, conv.pad, conv.dilation, false);
    layer_.out = {conv.out, extent[0], extent[1]};
    const int64_t per_group = in.channels / conv.groups;
    weights({conv.out, per_group, conv.kernel[0], conv.kernel[1]}, conv.bias);
  }

  void operator()(const Linear& linear) {
    positive("out", linear.out);
    layer_.out = {linear.out, 1, 1};
    weights({linear.out, only().out.size()}, linear.bias);
  }

  void operator()(const BatchNorm& norm) {
    require(norm.epsilon > 0, "epsilon", norm.epsilon, "must be greater than 0");
    require(norm.momentum >= 0 && norm.momentum <= 1, "momentum", norm.momentum,
            "must lie between 0 and 1");
    layer_.out = only().out;
    const std::vector<int64_t> shape{layer_.out.channels};
    layer_.parameters.push_back({layer_.name + ".weight", shape, Role::scale, 1});
    layer_.parameters.push_back({layer_.name + ".bias", shape, Role::shift, 1});
  }

  void operator()(const Activation& activation) {
    require(std::isfinite(activation.alpha), "alpha", activation.alpha, "must be finite");
    layer_.out = only().out;
  }

  void operator()(const Pool& pool) {
    const Shape in = only().out;
    const Pair extent = slide(pool.kernel, pool.stride, pool.pad, {1, 1}, pool.ceil);
    for (size_t i = 0; i < 2; ++i) {
      if (pool.pad[i] >= pool.kernel[i]) {
        refuse(
            "layer '{}': pad {} must be smaller than kernel {}, or a window would see padding "
            "only",
            layer_.name, to_string(pool.pad), to_string(pool.kernel));
      }
    }
    layer_.out = {in.channels, extent[0], extent[1]};
  }

  void operator()(const GlobalAveragePool& /*pool*/) { layer_.out = {only().out.channels, 1, 1}; }

  void operator()(const Lrn& lrn) {
    positive("size", lrn.size);
    require(lrn.size % 2 == 1, "size", lrn.size, "must be odd: the window is centred on a channel");
    require(lrn.alpha >= 0 && std::isfinite(lrn.alpha), "alpha", lrn.alpha, "must not be negative");
    require(lrn.k > 0 && std::isfinite(lrn.k), "k", lrn.k, "must be greater than 0");
    require(std::isfinite(lrn.beta), "beta", lrn.beta, "must be finite");
    layer_.out = only().out;
  }

  void operator()(const Dropout& dropout) {
    require(dropout.rate >= 0 && dropout.rate < 1, "rate", dropout.rate,
            "must be at least 0 and less than 1");
    layer_.out = only().out;
  }

  void operator()(const Add& /*add*/) {
    for (const Layer* source : several()) {
      if (!(source->out == sources_.front()->out)) {
        refuse_shapes(*source, "add needs equal shapes");
      }
    }
    layer_.out = sources_.front()->out;
  }

  void operator()(const Concat& /*concat*/) {
    layer_.out = several().front()->out;
    layer_.out.channels = 0;
    for (const Layer* source : sources_) {
      if (source->out.height != layer_.out.height || source->out.width != layer_.out.width) {
        refuse_shapes(*source, "concat needs equal heights and widths");
      }
      layer_.out.channels += source->out.channels;
    }
  }

  void operator()(const Flatten& /*flatten*/) { layer_.out = {only().out.size(), 1, 1}; }

  void operator()(const SoftmaxCrossEntropy& loss) {
    const Shape in = only().out;
    require(loss.smoothing >= 0 && loss.smoothing < 1, "smoothing", loss.smoothing,
            "must be at least 0 and less than 1");
    if (in.height != 1 || in.width != 1) {
      refuse(
          "layer '{}': its input '{}' has shape {}; softmax-cross-entropy needs one score per "
          "class, a vector: put linear, flatten or global-average-pool before it",
          layer_.name, only().name, model::to_string(in));
    }
    layer_.out = {1, 1, 1};
  }

  void operator()(const MeanSquaredError& /*loss*/) {
    static_cast<void>(only());
    layer_.out = {1, 1, 1};
  }

 private:
  const Layer& only() const {
    if (sources_.size() != 1) {
      refuse("layer '{}': {} reads exactly one layer, not {}", layer_.name, kind_name(layer_.kind),
             sources_.size());
    }
    return *sources_.front();
  }

  const std::vector<const Layer*>& several() const {
    if (sources_.size() < 2) {
      refuse("layer '{}': {} reads two layers or more, not {}", layer_.name, kind_name(layer_.kind),
             sources_.size());
    }
    for (size_t i = 0; i < sources_.size(); ++i) {
      for (size_t j = i + 1; j < sources_.size(); ++j) {
        if (sources_[i] == sources_[j]) {
          refuse("layer '{}': reads '{}' twice; the inputs of {} must differ", layer_.name,
                 sources_[i]->name, kind_name(layer_.kind));
        }
      }
    }
    return sources_;
  }

  /// Output extents of a window sliding over the input: ⌊(in + 2·pad − window)/stride⌋ + 1 with
  /// window = dilation·(kernel − 1) + 1. Rounded up (ceil), a last window that would start beyond
  /// the input is dropped, so every window sees at least one value.
  Pair slide(const Pair& kernel, const Pair& stride, const Pair& pad, const Pair& dilation,
             bool ceil) const {
    positive("kernel", kernel);
    positive("stride", stride);
    for (const int64_t value : pad) {
      require(value >= 0 && value <= kMaxValues, "pad", value, "must be 0 or a positive number");
    }
    const Shape shape = only().out;
    const Pair in{shape.height, shape.width};
    Pair out{};
    for (size_t i = 0; i < 2; ++i) {
      const int64_t window = dilation[i] * (kernel[i] - 1) + 1;
      const int64_t room = in[i] + 2 * pad[i] - window;
      if (room < 0) {
        refuse(
            "layer '{}': its window of {} (kernel {}{}) is larger than the padded {} of {} "
            "('{}' has shape {}, pad {})",
            layer_.name, window, to_string(kernel),
            dilation[i] == 1 ? "" : fmt::format(", dilation {}", to_string(dilation)),
            i == 0 ? "height" : "width", in[i] + 2 * pad[i], only().name, model::to_string(shape),
            to_string(pad));
      }
      out[i] = (ceil ? (room + stride[i] - 1) / stride[i] : room / stride[i]) + 1;
      if (ceil && (out[i] - 1) * stride[i] >= in[i] + pad[i]) --out[i];
    }
    return out;
  }

  void weights(std::vector<int64_t> shape, bool bias) {
    int64_t size = 1;
    for (const int64_t extent : shape) {
      if (__builtin_mul_overflow(size, extent, &size) || size > kMaxWeights) {
        refuse("layer '{}': its weight of {} has more than 2^40 values", layer_.name,
               fmt::join(shape, "×"));
      }
    }
    const int64_t out = shape.front();
    const int64_t fan_in = size / out;
    layer_.parameters.push_back({layer_.name + ".weight", std::move(shape), Role::weight, fan_in});
    if (bias) layer_.parameters.push_back({layer_.name + ".bias", {out}, Role::bias, fan_in});
  }

  template <typename T>
  void require(bool holds, std::string_view what, T value, std::string_view rule) const {
    if (!holds) refuse("layer '{}': {} is {}; it {}", layer_.name, what, value, rule);
  }

  void positive(std::string_view what, int64_t value) const {
    require(value > 0 && value <= kMaxValues, what, value,
            "must be a positive number below 2147483648");
  }
  void positive(std::string_view what, const Pair& pair) const {
    for (const int64_t value : pair) positive(what, value);
  }

  [[noreturn]] void refuse_shapes(const Layer& other, std::string_view rule) const {
    const Layer& first = *sources_.front();
    refuse("layer '{}': inputs have shapes {} ('{}') and {} ('{}'); {}", layer_.name,
           model::to_string(first.out), first.name, model::to_string(other.out), other.name, rule);
  }

  Layer& layer_;
  const std::vector<const Layer*>& sources_;
};

}  // namespace

void infer(Layer& layer, const std::vector<const Layer*>& sources) {
  std::visit(Inference(layer, sources), layer.kind);
  check_shape(layer.name, layer.out);
}

void check_shape(const std::string& layer_name, const Shape& shape) {
  int64_t size = 1;
  for (const int64_t extent : {shape.channels, shape.height, shape.width}) {
    if (extent < 1) {
      refuse("layer '{}': shape {} has an extent that is not positive", layer_name,
             to_string(shape));
    }
    if (__builtin_mul_overflow(size, extent, &size) || size > kMaxValues) {
      refuse("layer '{}': shape {} has more than {} values per sample", layer_name,
             to_string(shape), kMaxValues);
    }
  }
}

}  // namespace convoy::model
