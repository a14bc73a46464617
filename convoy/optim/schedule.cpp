#include "convoy/optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::optim {
namespace {

constexpr double kOneCycleRise = 0.3;  // share of the steps, if no warm-up is given
constexpr double kOneCycleStart = 25;  // begins at peak/25
constexpr double kRounding = 1e-9;     // 30 epochs of 390.625 steps begin at 30, not at 29.99…

double scaling(const job::LearningRate& options, const ScheduleContext& context) {
  if (options.base_batch <= 0) return 1;
  return static_cast<double>(context.batch) / static_cast<double>(options.base_batch);
}

double warmup_steps(const job::LearningRate& options, const ScheduleContext& context) {
  if (options.schedule == "one-cycle" && options.warmup_epochs == 0) {
    return kOneCycleRise * context.total_steps;
  }
  return options.warmup_epochs * context.steps_per_epoch;
}

// Share of the steps after the warm-up that have passed, in [0, 1].
double progress(double step, double warmup, double total) {
  if (total <= warmup) return 1;
  return std::clamp((step - warmup) / (total - warmup), 0.0, 1.0);
}

double cosine(double from, double to, double t) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * t)) / 2;
}

const std::vector<std::string>& names() {
  static const std::vector<std::string> all = {"constant",   "step",   "multi-step",
                                               "polynomial", "cosine", "one-cycle"};
  return all;
}

[[noreturn]] void refuse_schedule(const std::string& name) {
  const std::string meant = nearest(name, names());
  refuse("train.lr.schedule: there is no '{}'{}; there are {}", name,
         meant.empty() ? "" : fmt::format(" (did you mean '{}'?)", meant), join(names()));
}

void require(bool holds, const char* key, double value, const char* right) {
  if (!holds) refuse("train.lr.{} is {}, but must be {}", key, value, right);
}

}  // namespace

double learning_rate(const job::LearningRate& options, const ScheduleContext& context,
                     int64_t step) {
  const double scale = scaling(options, context);
  const double peak = scale * options.peak;
  const double final = scale * options.final;
  const double warmup = warmup_steps(options, context);
  const auto s = static_cast<double>(step);
  const double epoch = s / context.steps_per_epoch + kRounding;
  const double t = progress(s, warmup, context.total_steps);
  const std::string& kind = options.schedule;

  if (s < warmup) {
    if (kind != "one-cycle") return peak * std::min(1.0, (s + 1) / warmup);
    const double start = peak / kOneCycleStart;
    return start + (peak - start) * s / warmup;
  }
  if (kind == "constant") return peak;
  if (kind == "step")
    return peak * std::pow(options.gamma, std::floor(epoch / options.step_epochs));
  if (kind == "multi-step") {
    const auto passed = std::count_if(options.milestones.begin(), options.milestones.end(),
                                      [&](double milestone) { return epoch >= milestone; });
    return peak * std::pow(options.gamma, static_cast<double>(passed));
  }
  if (kind == "polynomial") return final + (peak - final) * std::pow(1 - t, options.power);
  if (kind == "cosine" || kind == "one-cycle") return cosine(peak, final, t);
  refuse_schedule(kind);
}

ScheduleContext schedule_context(const job::Train& train, int64_t samples) {
  ScheduleContext context;
  context.batch = train.batch;
  context.steps_per_epoch = static_cast<double>(samples) / static_cast<double>(train.batch);
  context.total_steps =
      std::max(1.0, std::ceil(train.epochs * context.steps_per_epoch - kRounding));
  return context;
}

void check(const job::LearningRate& options, const ScheduleContext& context) {
  const std::string& kind = options.schedule;
  if (std::find(names().begin(), names().end(), kind) == names().end()) refuse_schedule(kind);
  require(options.peak >= 0 && std::isfinite(options.peak), "peak", options.peak, "0 or more");
  require(options.warmup_epochs >= 0, "warmup_epochs", options.warmup_epochs, "0 or more");
  require(options.base_batch >= 0, "base_batch", static_cast<double>(options.base_batch),
          "a batch size, or 0 (off)");
  if (warmup_steps(options, context) > context.total_steps) {
    refuse("train.lr.warmup_epochs is {}, longer than the whole training of {:.4g} epochs",
           options.warmup_epochs, context.total_steps / context.steps_per_epoch);
  }
  if (kind == "step") {
    require(options.step_epochs > 0, "step_epochs", options.step_epochs, "greater than 0");
  }
  if (kind == "step" || kind == "multi-step") {
    require(options.gamma > 0, "gamma", options.gamma, "greater than 0");
  }
  if (kind == "multi-step") {
    if (options.milestones.empty()) {
      refuse("train.lr.milestones is empty; schedule multi-step needs them: [15, 25]");
    }
    const auto& m = options.milestones;
    if (!(m.front() > 0) ||
        std::adjacent_find(m.begin(), m.end(), std::greater_equal<>()) != m.end()) {
      refuse("train.lr.milestones [{}] must be epochs greater than 0, in rising order",
             fmt::join(m, ", "));
    }
  }
  if (kind == "polynomial") require(options.power > 0, "power", options.power, "greater than 0");
  if (kind == "polynomial" || kind == "cosine" || kind == "one-cycle") {
    require(options.final >= 0, "final", options.final, "0 or more");
    if (options.final > options.peak) {
      refuse("train.lr.final is {}, but must not exceed train.lr.peak, {}", options.final,
             options.peak);
    }
  }
}

}  // namespace convoy::optim
