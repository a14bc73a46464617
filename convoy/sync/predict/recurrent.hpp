#pragma once
// A small recurrent network: one gated recurrent unit (Cho et al. 2014) of eight cells that reads
// the last speed and the current load, and says how speed will change.
//
//   x = (v_{t−1}, cpu_t, mem_t, 1)  normalised       z = σ(W_z x + U_z h)     r = σ(W_r x + U_r h)
//   c = tanh(W_c x + U_c (r∘h))                      h ← (1 − z)∘h + z∘c      ŷ = o·h
//
// It learns after each step by truncated back-propagation through the last eight, with Adam
// (Kingma & Ba 2015). Nothing keeps it from being worse than the last value: it is here to compare
// with.

#include <array>
#include <cstdint>

#include "convoy/sync/predict/normalise.hpp"
#include "convoy/sync/predict/predictor.hpp"

namespace convoy::sync {

class Recurrent final : public SpeedPredictor {
 public:
  explicit Recurrent(uint64_t seed = 1);

  std::string_view name() const override { return "recurrent"; }
  double predict(const Load& now) const override;
  void observe(const Observation& step) override;
  std::unique_ptr<SpeedPredictor> clone() const override;

 private:
  static constexpr size_t kCells = 8;
  static constexpr size_t kInputs = 4;
  static constexpr size_t kBack = 8;
  static constexpr size_t kRow = kInputs + kCells;
  using Inputs = std::array<double, kInputs>;
  using Cells = std::array<double, kCells>;
  using Matrix = std::array<std::array<double, kRow>, kCells>;

  struct Weights {
    Matrix update{};
    Matrix reset{};
    Matrix candidate{};
    Cells out{};
  };
  static constexpr size_t kWeights = sizeof(Weights) / sizeof(double);

  /// What one step computed, kept for the way back.
  struct Cell {
    Inputs x{};
    Cells before{};
    Cells z{};
    Cells r{};
    Cells c{};
    Cells after{};
  };

  Inputs inputs(const Load& now) const;
  Cell run(const Inputs& x, const Cells& before) const;
  double read(const Cells& state) const;
  /// Through the remembered steps and `target`, the change after the last of them.
  void train(double target);
  void descend(const Weights& gradient);

  Weights weights_;
  Weights first_moment_;
  Weights second_moment_;
  int64_t updates_ = 0;

  std::array<Cell, kBack> past_;  // oldest first
  size_t held_ = 0;
  Cells state_{};
  double last_ = 0;
  Normaliser speed_scale_;
  Normaliser cpu_scale_;
  Normaliser memory_scale_;
  SeenSpeeds seen_;
  int64_t steps_ = 0;
};

}  // namespace convoy::sync
