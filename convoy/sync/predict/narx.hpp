#pragma once
// NARX: a nonlinear autoregressive model with exogenous inputs (Lin et al. 1996; for shares: Chen
// et al., LB-BSP). It sees past speeds, and past *and current* CPU and memory: when load is visible
// before it slows a worker, it is the only predictor that can know.
//
//   u  = (v_{t−1} … v_{t−4},  cpu_t, cpu_{t−1}, cpu_{t−2},  mem_t, mem_{t−1},  1)     normalised
//   ŷ  = s·u + Σ_j o_j tanh(w_j·u)              the change v_t − v_{t−1}, in deviations of v
//
// A small network with a linear path s beside six tanh units. It starts as "no change" (s = 0,
// o = 0), and learns after each step by the extended Kalman filter (Singhal & Wu 1988), in effect
// recursive Gauss–Newton: with h = ∂ŷ/∂θ, noise variance R and drift q,
//
//   k = P h / (R + hᵀ P h),   θ ← θ + k (y − ŷ),   P ← P − k hᵀ P + q I
//
// which takes one pass over P (76 × 76) per step: bounded, without a learning rate, and learning in
// tens of steps where gradient descent takes thousands.
//
// Where there is nothing to learn a network is worse than its last input. So it only advises: gates
// (gate.hpp) open from last value to averages of several lengths, and from there to the network,
// each as far as it has lately been right.

#include <array>
#include <cstdint>

#include "convoy/sync/predict/gate.hpp"
#include "convoy/sync/predict/normalise.hpp"
#include "convoy/sync/predict/predictor.hpp"

namespace convoy::sync {

class Narx final : public SpeedPredictor {
 public:
  explicit Narx(uint64_t seed = 1);

  std::string_view name() const override { return "narx"; }
  double predict(const Load& now) const override;
  void observe(const Observation& step) override;
  std::unique_ptr<SpeedPredictor> clone() const override;

  /// A warm start: the network as trained here, for a worker of which nothing was seen yet. Inputs
  /// are normalised, so that worker may be faster or slower altogether.
  Narx for_another_worker() const;

  /// How far the network is followed, 0 … 1.
  double trust() const { return to_network_.open(); }

 private:
  static constexpr size_t kSpeeds = 4;
  static constexpr size_t kCpus = 3;
  static constexpr size_t kMemories = 2;
  static constexpr size_t kInputs = kSpeeds + kCpus + kMemories + 1;
  static constexpr size_t kHidden = 6;
  static constexpr size_t kWeights = kInputs + kHidden * (kInputs + 1);
  static constexpr size_t kAverages = 3;
  using Inputs = std::array<double, kInputs>;
  using Weights = std::array<double, kWeights>;

  struct Advice {
    double careful = 0;  // of last value and averages
    double network = 0;
  };

  Inputs inputs(const Load& now) const;
  /// ŷ, and its derivatives by the weights if wanted.
  double network(const Inputs& u, Weights* derivatives) const;
  void train(const Inputs& u, double target);
  double careful() const;
  Advice advise(const Inputs& u) const;
  void remember(const Observation& step);

  // Weights: s, then for each hidden unit w_j and o_j.
  Weights weights_{};
  std::array<Weights, kWeights> covariance_{};
  double noise_ = 1;

  std::array<double, kSpeeds> speeds_{};  // newest first, as all that follows
  std::array<double, kCpus> cpus_{};
  std::array<double, kMemories> memories_{};
  Normaliser speed_scale_;
  Normaliser cpu_scale_;
  Normaliser memory_scale_;
  std::array<double, kAverages> averages_{};
  std::array<Gate, kAverages> to_averages_;
  Gate to_network_;
  SeenSpeeds seen_;
  int64_t steps_ = 0;
};

}  // namespace convoy::sync
