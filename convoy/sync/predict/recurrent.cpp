#include "convoy/sync/predict/recurrent.hpp"

#include <span>

#include "convoy/base/random.hpp"

namespace convoy::sync {
namespace {

// Steps that only say how speeds are spread.
constexpr int64_t kFirst = 6;
constexpr double kRate = 0.003;
constexpr double kFirstDecay = 0.9;
constexpr double kSecondDecay = 0.99;
// Larger errors, in deviations, teach no more than this.
constexpr double kFarthest = 2;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace

Recurrent::Recurrent(uint64_t seed) {
  Stream random(seed, Purpose::init, 1);
  for (Matrix* matrix : {&weights_.update, &weights_.reset, &weights_.candidate}) {
    for (auto& row : *matrix) {
      for (double& w : row) w = random.normal() / std::sqrt(static_cast<double>(kRow));
    }
  }
}

Recurrent::Inputs Recurrent::inputs(const Load& now) const {
  return {speed_scale_(last_), cpu_scale_(now.cpu), memory_scale_(now.memory), 1};
}

Recurrent::Cell Recurrent::run(const Inputs& x, const Cells& before) const {
  Cell cell{.x = x, .before = before, .z = {}, .r = {}, .c = {}, .after = {}};
  const auto product = [&](const std::array<double, kRow>& row, const Cells& state) {
    double sum = 0;
    for (size_t i = 0; i < kInputs; ++i) sum += row[i] * x[i];
    for (size_t i = 0; i < kCells; ++i) sum += row[kInputs + i] * state[i];
    return sum;
  };
  Cells kept{};
  for (size_t i = 0; i < kCells; ++i) {
    cell.z[i] = sigmoid(product(weights_.update[i], before));
    cell.r[i] = sigmoid(product(weights_.reset[i], before));
    kept[i] = cell.r[i] * before[i];
  }
  for (size_t i = 0; i < kCells; ++i) {
    cell.c[i] = std::tanh(product(weights_.candidate[i], kept));
    cell.after[i] = (1 - cell.z[i]) * before[i] + cell.z[i] * cell.c[i];
  }
  return cell;
}

double Recurrent::read(const Cells& state) const {
  double sum = 0;
  for (size_t i = 0; i < kCells; ++i) sum += weights_.out[i] * state[i];
  return sum;
}

double Recurrent::predict(const Load& now) const {
  if (steps_ == 0) return 0;
  const Cell cell = run(inputs(sane_load(now)), state_);
  return seen_.within(last_ + speed_scale_.deviation() * read(cell.after));
}

void Recurrent::observe(const Observation& step) {
  if (!sane_speed(step.speed)) return;
  const Load load = sane_load(step.load);
  if (steps_ >= kFirst) {
    if (held_ == kBack) {
      std::move(past_.begin() + 1, past_.end(), past_.begin());
      --held_;
    }
    past_[held_++] = run(inputs(load), state_);
    train((step.speed - last_) / speed_scale_.deviation());
    state_ = past_[held_ - 1].after;
  }
  ++steps_;
  last_ = step.speed;
  seen_.add(step.speed);
  speed_scale_.add(step.speed);
  cpu_scale_.add(load.cpu);
  memory_scale_.add(load.memory);
}

void Recurrent::train(double target) {
  Cells state = past_[0].before;
  for (size_t t = 0; t < held_; ++t) {
    past_[t] = run(past_[t].x, state);
    state = past_[t].after;
  }
  const double error = std::clamp(read(state) - target, -kFarthest, kFarthest);
  Weights gradient;
  Cells by_state{};  // ∂loss/∂h after step t
  for (size_t i = 0; i < kCells; ++i) {
    gradient.out[i] = error * state[i];
    by_state[i] = error * weights_.out[i];
  }
  for (size_t t = held_; t-- > 0;) {
    const Cell& cell = past_[t];
    Cells by_before{};
    Cells by_kept{};  // by r∘h
    const auto back = [&](const Matrix& w, Matrix& g, size_t i, double by_sum, const Cells& seen,
                          Cells& by_seen) {
      for (size_t k = 0; k < kInputs; ++k) g[i][k] += by_sum * cell.x[k];
      for (size_t k = 0; k < kCells; ++k) {
        g[i][kInputs + k] += by_sum * seen[k];
        by_seen[k] += by_sum * w[i][kInputs + k];
      }
    };
    Cells kept{};
    for (size_t i = 0; i < kCells; ++i) kept[i] = cell.r[i] * cell.before[i];
    for (size_t i = 0; i < kCells; ++i) {
      const double by_c = by_state[i] * cell.z[i] * (1 - cell.c[i] * cell.c[i]);
      back(weights_.candidate, gradient.candidate, i, by_c, kept, by_kept);
      const double by_z = by_state[i] * (cell.c[i] - cell.before[i]) * cell.z[i] * (1 - cell.z[i]);
      back(weights_.update, gradient.update, i, by_z, cell.before, by_before);
      by_before[i] += by_state[i] * (1 - cell.z[i]);
    }
    for (size_t i = 0; i < kCells; ++i) {
      by_before[i] += by_kept[i] * cell.r[i];
      const double by_r = by_kept[i] * cell.before[i] * cell.r[i] * (1 - cell.r[i]);
      back(weights_.reset, gradient.reset, i, by_r, cell.before, by_before);
    }
    by_state = by_before;
  }
  descend(gradient);
}

void Recurrent::descend(const Weights& gradient) {
  const auto flat = [](auto& weights) {
    using Pointer = std::conditional_t<std::is_const_v<std::remove_reference_t<decltype(weights)>>,
                                       const double*, double*>;
    return std::span(reinterpret_cast<Pointer>(&weights), kWeights);
  };
  ++updates_;
  const auto n = static_cast<double>(updates_);
  const double first_bias = 1 - std::pow(kFirstDecay, n);
  const double second_bias = 1 - std::pow(kSecondDecay, n);
  const auto w = flat(weights_);
  const auto g = flat(gradient);
  const auto m = flat(first_moment_);
  const auto v = flat(second_moment_);
  for (size_t i = 0; i < kWeights; ++i) {
    m[i] += (1 - kFirstDecay) * (g[i] - m[i]);
    v[i] += (1 - kSecondDecay) * (g[i] * g[i] - v[i]);
    w[i] -= kRate * (m[i] / first_bias) / (std::sqrt(v[i] / second_bias) + 1e-6);
  }
}

std::unique_ptr<SpeedPredictor> Recurrent::clone() const {
  return std::make_unique<Recurrent>(*this);
}

}  // namespace convoy::sync
