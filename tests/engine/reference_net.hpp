#pragma once
// A network in double precision, written for reading: one loop nest per layer, values in NCHW.
// It knows nothing of blocks, fusion or memory plans, so the engine can be held against it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "convoy/base/random.hpp"
#include "convoy/engine/kernels/kernels.hpp"
#include "convoy/model/graph.hpp"

namespace convoy::engine {

using Doubles = std::vector<double>;
/// Parameters and running statistics by name.
using NamedValues = std::map<std::string, Doubles>;

class ReferenceNet {
 public:
  ReferenceNet(const model::Graph& graph, int64_t samples) : graph_(graph), n_(samples) {}

  /// What dropout draws its numbers from.
  uint64_t seed = 1;
  int64_t step = 0;
  int64_t first_sample = 0;

  /// The mean loss over the samples.
  double loss(const NamedValues& values, const Doubles& input, const std::vector<int32_t>& labels,
              bool training = true) {
    values_ = &values;
    labels_ = &labels;
    training_ = training;
    maps_.assign(graph_.layers().size(), {});
    maps_[0] = input;
    for (size_t id = 1; id < maps_.size(); ++id) {
      const model::Layer& layer = graph_.layers()[id];
      id_ = static_cast<model::LayerId>(id);
      name_ = layer.name;
      out_ = layer.out;
      in_ = graph_.layer(layer.inputs[0]).out;
      const Doubles& x = maps_[static_cast<size_t>(layer.inputs[0])];
      maps_[id] = std::visit([&](const auto& kind) { return run(kind, x); }, layer.kind);
    }
    return maps_.back().front();
  }

  /// After loss(): what a layer computed, and the statistics of a batch norm's input.
  const Doubles& map(model::LayerId id) const { return maps_[static_cast<size_t>(id)]; }
  const Doubles& means(const std::string& norm) const { return means_.at(norm); }
  const Doubles& unbiased_variances(const std::string& norm) const { return variances_.at(norm); }

 private:
  using Shape = model::Shape;

  static size_t at(const Shape& s, int64_t n, int64_t c, int64_t y, int64_t x) {
    return static_cast<size_t>(((n * s.channels + c) * s.height + y) * s.width + x);
  }
  Doubles zeros() const { return Doubles(static_cast<size_t>(n_ * out_.size()), 0.0); }
  const Doubles& value(const char* suffix) const { return values_->at(name_ + suffix); }

  /// Calls f(n, c, y, x) for every value of the output.
  template <typename F>
  void for_outputs(F f) const {
    for (int64_t n = 0; n < n_; ++n) {
      for (int64_t c = 0; c < out_.channels; ++c) {
        for (int64_t y = 0; y < out_.height; ++y) {
          for (int64_t x = 0; x < out_.width; ++x) f(n, c, y, x);
        }
      }
    }
  }

  /// Calls f(row, column, ky, kx) for the taps of output (y, x) that lie inside the input.
  template <typename K, typename F>
  void for_taps(const K& k, model::Pair dilation, int64_t y, int64_t x, F f) const {
    for (int64_t ky = 0; ky < k.kernel[0]; ++ky) {
      for (int64_t kx = 0; kx < k.kernel[1]; ++kx) {
        const int64_t row = y * k.stride[0] - k.pad[0] + ky * dilation[0];
        const int64_t column = x * k.stride[1] - k.pad[1] + kx * dilation[1];
        const bool inside = row >= 0 && row < in_.height && column >= 0 && column < in_.width;
        if (inside) f(row, column, ky, kx);
      }
    }
  }

  Doubles run(const model::Input& /*kind*/, const Doubles& x) const { return x; }
  Doubles run(const model::Flatten& /*kind*/, const Doubles& x) const { return x; }

  Doubles run(const model::Conv& conv, const Doubles& x) const {
    Doubles y = zeros();
    const Doubles& w = value(".weight");
    const int64_t in_group = in_.channels / conv.groups;
    const Shape filter{in_group, conv.kernel[0], conv.kernel[1]};
    for_outputs([&](int64_t n, int64_t c, int64_t row, int64_t column) {
      const int64_t first = c / (out_.channels / conv.groups) * in_group;
      double sum = conv.bias ? value(".bias")[static_cast<size_t>(c)] : 0;
      for_taps(conv, conv.dilation, row, column, [&](int64_t r, int64_t s, int64_t ky, int64_t kx) {
        for (int64_t i = 0; i < in_group; ++i) {
          sum += x[at(in_, n, first + i, r, s)] * w[at(filter, c, i, ky, kx)];
        }
      });
      y[at(out_, n, c, row, column)] = sum;
    });
    return y;
  }

  Doubles run(const model::Linear& linear, const Doubles& x) const {
    Doubles y = zeros();
    const Doubles& w = value(".weight");
    const auto columns = static_cast<size_t>(in_.size());
    for_outputs([&](int64_t n, int64_t c, int64_t, int64_t) {
      double sum = linear.bias ? value(".bias")[static_cast<size_t>(c)] : 0;
      for (size_t i = 0; i < columns; ++i) {
        sum += w[static_cast<size_t>(c) * columns + i] * x[static_cast<size_t>(n) * columns + i];
      }
      y[at(out_, n, c, 0, 0)] = sum;
    });
    return y;
  }

  Doubles run(const model::BatchNorm& norm, const Doubles& x) {
    const auto channels = static_cast<size_t>(out_.channels);
    Doubles mean = value(".running_mean");
    Doubles variance = value(".running_var");
    if (training_) {
      const auto count = static_cast<double>(n_ * out_.height * out_.width);
      mean.assign(channels, 0);
      variance.assign(channels, 0);
      for_outputs([&](int64_t n, int64_t c, int64_t r, int64_t s) {
        mean[static_cast<size_t>(c)] += x[at(out_, n, c, r, s)] / count;
      });
      for_outputs([&](int64_t n, int64_t c, int64_t r, int64_t s) {
        const double d = x[at(out_, n, c, r, s)] - mean[static_cast<size_t>(c)];
        variance[static_cast<size_t>(c)] += d * d / count;
      });
      means_[name_] = mean;
      variances_[name_] = variance;
      for (double& v : variances_[name_]) v *= count / (count - 1);
    }
    Doubles y = zeros();
    for_outputs([&](int64_t n, int64_t c, int64_t r, int64_t s) {
      const auto ch = static_cast<size_t>(c);
      const double normal =
          (x[at(out_, n, c, r, s)] - mean[ch]) / std::sqrt(variance[ch] + norm.epsilon);
      y[at(out_, n, c, r, s)] = value(".weight")[ch] * normal + value(".bias")[ch];
    });
    return y;
  }

  static double activate(const model::Activation& activation, double x) {
    const double alpha = activation.alpha;
    switch (activation.kind) {
      case model::ActivationKind::relu:
        return std::max(x, 0.0);
      case model::ActivationKind::leaky_relu:
        return x > 0 ? x : alpha * x;
      case model::ActivationKind::relu6:
        return std::clamp(x, 0.0, 6.0);
      case model::ActivationKind::elu:
        return x > 0 ? x : alpha * std::expm1(x);
      case model::ActivationKind::sigmoid:
        return 1 / (1 + std::exp(-x));
      case model::ActivationKind::tanh:
        return std::tanh(x);
      case model::ActivationKind::gelu:
        return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    }
    return x;
  }

  Doubles run(const model::Activation& activation, const Doubles& x) const {
    Doubles y = x;
    for (double& v : y) v = activate(activation, v);
    return y;
  }

  Doubles run(const model::Pool& pool, const Doubles& x) const {
    Doubles y = zeros();
    const bool max = pool.kind == model::PoolKind::max;
    for_outputs([&](int64_t n, int64_t c, int64_t row, int64_t column) {
      double most = -std::numeric_limits<double>::infinity();
      double sum = 0;
      int64_t seen = 0;
      for_taps(pool, {1, 1}, row, column, [&](int64_t r, int64_t s, int64_t, int64_t) {
        const double v = x[at(in_, n, c, r, s)];
        most = std::max(most, v);
        sum += v;
        ++seen;
      });
      // With padding counted, a window still ends where the padding ends.
      const int64_t top = row * pool.stride[0] - pool.pad[0];
      const int64_t left = column * pool.stride[1] - pool.pad[1];
      const int64_t height = std::min(top + pool.kernel[0], in_.height + pool.pad[0]) - top;
      const int64_t width = std::min(left + pool.kernel[1], in_.width + pool.pad[1]) - left;
      const auto count = static_cast<double>(pool.count_padding ? height * width : seen);
      y[at(out_, n, c, row, column)] = max ? most : sum / count;
    });
    return y;
  }

  Doubles run(const model::GlobalAveragePool& /*kind*/, const Doubles& x) const {
    Doubles y = zeros();
    const auto plane = static_cast<size_t>(in_.height * in_.width);
    for (size_t i = 0; i < x.size(); ++i) y[i / plane] += x[i] / static_cast<double>(plane);
    return y;
  }

  Doubles run(const model::Lrn& lrn, const Doubles& x) const {
    Doubles y = zeros();
    for_outputs([&](int64_t n, int64_t c, int64_t r, int64_t s) {
      double sum = 0;
      const int64_t last = std::min(c + lrn.size / 2, out_.channels - 1);
      for (int64_t i = std::max<int64_t>(c - lrn.size / 2, 0); i <= last; ++i) {
        sum += x[at(out_, n, i, r, s)] * x[at(out_, n, i, r, s)];
      }
      const double scale = lrn.k + lrn.alpha / static_cast<double>(lrn.size) * sum;
      y[at(out_, n, c, r, s)] = x[at(out_, n, c, r, s)] * std::pow(scale, -lrn.beta);
    });
    return y;
  }

  /// Which values survive is part of the engine's contract: the kernel's own numbers, tested
  /// against Philox elsewhere, drawn for values that lie blocked.
  Doubles run(const model::Dropout& dropout, const Doubles& x) const {
    if (!training_ || dropout.rate == 0) return x;
    const Blocked s{n_, out_.channels, out_.height, out_.width};
    const std::vector<float> ones(static_cast<size_t>(s.size()), 1.0F);
    std::vector<float> blocked(ones.size());
    std::vector<float> factors(x.size());
    const uint64_t key =
        stream_key(seed, Purpose::dropout, static_cast<uint64_t>(step), static_cast<uint64_t>(id_));
    const Kernels& kernels = select_kernels("generic");
    kernels.dropout(n_, s.image(), first_sample, key, dropout.rate, ones.data(), blocked.data());
    kernels.unblock(s, 0, n_, blocked.data(), factors.data());
    Doubles y = x;
    for (size_t i = 0; i < y.size(); ++i) y[i] *= factors[i];
    return y;
  }

  Doubles run(const model::Add& /*kind*/, const Doubles& /*x*/) const {
    Doubles y = zeros();
    for (const model::LayerId from : graph_.layer(id_).inputs) {
      for (size_t i = 0; i < y.size(); ++i) y[i] += map(from)[i];
    }
    return y;
  }

  Doubles run(const model::Concat& /*kind*/, const Doubles& /*x*/) const {
    Doubles y;
    for (int64_t n = 0; n < n_; ++n) {
      for (const model::LayerId from : graph_.layer(id_).inputs) {
        const int64_t size = graph_.layer(from).out.size();
        y.insert(y.end(), map(from).begin() + n * size, map(from).begin() + (n + 1) * size);
      }
    }
    return y;
  }

  Doubles run(const model::SoftmaxCrossEntropy& loss, const Doubles& x) const {
    const auto classes = static_cast<size_t>(in_.size());
    double total = 0;
    for (size_t n = 0; n < static_cast<size_t>(n_); ++n) {
      double sum = 0;
      for (size_t c = 0; c < classes; ++c) sum += std::exp(x[n * classes + c]);
      for (size_t c = 0; c < classes; ++c) {
        const bool right = static_cast<int64_t>(c) == (*labels_)[n];
        const double target =
            (right ? 1 - loss.smoothing : 0) + loss.smoothing / static_cast<double>(classes);
        total -= target * (x[n * classes + c] - std::log(sum));
      }
    }
    return {total / static_cast<double>(n_)};
  }

  Doubles run(const model::MeanSquaredError& /*kind*/, const Doubles& x) const {
    const auto classes = static_cast<size_t>(in_.size());
    double total = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const bool right = static_cast<int64_t>(i % classes) == (*labels_)[i / classes];
      total += (x[i] - (right ? 1 : 0)) * (x[i] - (right ? 1 : 0));
    }
    return {total / static_cast<double>(classes) / static_cast<double>(n_)};
  }

  const model::Graph& graph_;
  int64_t n_;
  bool training_ = true;
  const NamedValues* values_ = nullptr;
  const std::vector<int32_t>* labels_ = nullptr;
  // The layer at work.
  model::LayerId id_ = 0;
  std::string name_;
  Shape in_, out_;
  std::vector<Doubles> maps_;
  NamedValues means_, variances_;
};

}  // namespace convoy::engine
