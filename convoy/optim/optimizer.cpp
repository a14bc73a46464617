#include "convoy/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/optim/update.hpp"

namespace convoy::optim {
namespace {

/// SGD and LARS: they differ only in the factor r before the gradient.
class Sgd : public Optimizer {
 public:
  explicit Sgd(const job::Train& options) : options_(options) {}

  int state_arrays() const override { return options_.momentum > 0 ? 1 : 0; }
  std::vector<std::string> state_names() const override {
    return options_.momentum > 0 ? std::vector<std::string>{"momentum"}
                                 : std::vector<std::string>{};
  }
  bool needs_norms() const override { return false; }

  void update(const StepContext& context, const Segment& segment, int64_t segment_index,
              int64_t begin, int64_t end, float* weights, const float* gradient,
              std::span<float* const> states) const override {
    const double decay = segment.decay ? options_.weight_decay : 0;
    const double ratio = local_ratio(context, segment, segment_index, decay);
    const double momentum = std::isnan(context.momentum) ? options_.momentum : context.momentum;
    const SgdRates rates{static_cast<float>(context.learning_rate),
                         static_cast<float>(ratio * context.gradient_scale),
                         static_cast<float>(ratio * decay), static_cast<float>(momentum)};
    if (options_.momentum == 0) {
      loops_.plain(rates, end - begin, weights + begin, gradient);
    } else {
      const auto loop = options_.nesterov ? loops_.nesterov : loops_.momentum;
      loop(rates, end - begin, weights + begin, gradient, states[0] + begin);
    }
  }

 protected:
  /// r of the formulas in the header.
  virtual double local_ratio(const StepContext& /*context*/, const Segment& /*segment*/,
                             int64_t /*segment_index*/, double /*decay*/) const {
    return 1;
  }
  const job::Train& options() const { return options_; }

 private:
  job::Train options_;
  UpdateLoops loops_ = best_loops();
};

class Lars final : public Sgd {
 public:
  using Sgd::Sgd;
  bool needs_norms() const override { return true; }

 protected:
  double local_ratio(const StepContext& context, const Segment& segment, int64_t segment_index,
                     double decay) const override {
    if (!segment.adapt) return 1;
    const auto index = static_cast<size_t>(segment_index);
    convoy::check(index < context.weight_norm2.size() && index < context.gradient_norm2.size(),
                  "lars is given the norms of every segment");
    const double weights = std::sqrt(context.weight_norm2[index]);
    const double gradient = context.gradient_scale * std::sqrt(context.gradient_norm2[index]);
    if (!(weights > 0) || !(gradient > 0)) return 1;
    return options().trust * weights / (gradient + decay * weights);
  }
};

class Adam final : public Optimizer {
 public:
  explicit Adam(const job::Train& options) : options_(options) {}

  int state_arrays() const override { return 2; }
  std::vector<std::string> state_names() const override { return {"m", "v"}; }
  bool needs_norms() const override { return false; }

  void update(const StepContext& context, const Segment& segment, int64_t /*segment_index*/,
              int64_t begin, int64_t end, float* weights, const float* gradient,
              std::span<float* const> states) const override {
    const auto t = static_cast<double>(context.step + 1);
    const double mean_correction = 1 - std::pow(options_.beta1, t);
    const double variance_correction = 1 - std::pow(options_.beta2, t);
    const AdamRates rates{.rate = static_cast<float>(context.learning_rate / mean_correction),
                          .scale = static_cast<float>(context.gradient_scale),
                          .decay = segment.decay ? static_cast<float>(options_.weight_decay) : 0.0F,
                          .beta1 = static_cast<float>(options_.beta1),
                          .one_minus_beta1 = static_cast<float>(1 - options_.beta1),
                          .beta2 = static_cast<float>(options_.beta2),
                          .one_minus_beta2 = static_cast<float>(1 - options_.beta2),
                          .root_correction = static_cast<float>(1 / std::sqrt(variance_correction)),
                          .epsilon = static_cast<float>(options_.epsilon)};
    loops_.adam(rates, end - begin, weights + begin, gradient, states[0] + begin,
                states[1] + begin);
  }

 private:
  job::Train options_;
  UpdateLoops loops_ = best_loops();
};

constexpr const char* kFraction = "at least 0 and less than 1";

void require(bool holds, const char* key, double value, const char* right) {
  if (!holds) refuse("train.{} is {}, but must be {}", key, value, right);
}

void check_options(const job::Train& o) {
  require(o.weight_decay >= 0, "weight_decay", o.weight_decay, "0 or more");
  require(o.clip_norm >= 0, "clip_norm", o.clip_norm, "0 (off) or more");
  if (o.optimizer == "adam") {
    require(o.beta1 >= 0 && o.beta1 < 1, "beta1", o.beta1, kFraction);
    require(o.beta2 >= 0 && o.beta2 < 1, "beta2", o.beta2, kFraction);
    require(o.epsilon > 0, "epsilon", o.epsilon, "greater than 0");
  } else {
    require(o.momentum >= 0 && o.momentum < 1, "momentum", o.momentum, kFraction);
  }
  if (o.optimizer == "lars") require(o.trust > 0, "trust", o.trust, "greater than 0");
  if (!o.nesterov) return;
  if (o.optimizer != "sgd") {
    refuse("train.nesterov is a variant of sgd; {} has none", o.optimizer);
  }
  require(o.momentum > 0, "momentum", o.momentum, "greater than 0 for train.nesterov");
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const job::Train& options) {
  const std::vector<std::string> names = {"sgd", "adam", "lars"};
  const std::string& name = options.optimizer;
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const std::string meant = nearest(name, names);
    refuse("train.optimizer: there is no '{}'{}; there are {}", name,
           meant.empty() ? "" : fmt::format(" (did you mean '{}'?)", meant), join(names));
  }
  check_options(options);
  if (name == "adam") return std::make_unique<Adam>(options);
  if (name == "lars") return std::make_unique<Lars>(options);
  return std::make_unique<Sgd>(options);
}

double squared_norm(std::span<const float> values) {
  return best_loops().squared_norm(values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace convoy::optim
