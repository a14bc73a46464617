#pragma once
// What asynchrony does to momentum. Groups that update a model without waiting for each other bring
// momentum of their own: with g of them, and work times without memory, a gradient is as many
// updates old as a geometric draw says, and on average the model moves as
//
//   Δ_{t+1} = (μ_L + μ_S) Δ_t − μ_L μ_S Δ_{t−1} − (1 − μ_S) a ∇,      μ_S = 1 − 1/g
//
// where μ_L is the momentum that the optimizer applies and a its learning rate (Mitliagkas et al.
// 2016). So the optimizer should apply less the more groups there are, even less than nothing.
// Strict turns would make every gradient g − 1 updates old instead, which is another matter.

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace convoy::optim {

/// μ_S of g groups: 1 − 1/g.
double implicit_momentum(int groups);

/// What the optimizer should apply so that the whole is `total`, to first order: total − μ_S. May
/// be negative, but not below −kMostNegative: beyond it updates would cancel each other.
inline constexpr double kMostNegative = 0.9;
double explicit_momentum(double total, int groups);

/// On a quadratic of curvature λ, by which factor the distance to its minimum shrinks with an
/// update, in the long run: the largest root r = 1/t of
///   μ_S μ_L t³ − (μ_S + μ_L + μ_S μ_L) t² + z t − 1,   z = 1 + μ_S + μ_L − (1 − μ_S) aλ
/// by magnitude. 1 or more: it does not converge. `step`: a·λ.
double quadratic_rate(double implicit, double applied, double step);

/// The applied momentum with the best rate over all curvatures for which a·λ is in [least, most]:
/// the worst of them counts. To within 0.005.
double best_applied_momentum(int groups, double least, double most);

/// Measures the momentum in force while a model is trained, from a sample of its weights. When a
/// gradient arrives that was computed from version v, the iterates around that version are known:
///
///   total = Σ ⟨x_{v+1} − x_v + a·∇(x_v), x_v − x_{v−1}⟩ / Σ ⟨x_v − x_{v−1}, x_v − x_{v−1}⟩
///
/// over what came lately (Zhang & Mitliagkas 2019 take a median instead). Without asynchrony that
/// is the applied momentum exactly.
class MomentumMeter {
 public:
  /// `weights`: how many are looked at. Versions further back than `history` are forgotten, and
  /// gradients of them are left out.
  MomentumMeter(size_t weights, int history);

  /// The model as it begins (version 0), or after one more update.
  void moved(std::span<const float> weights);
  /// The newest version; −1 before the first.
  int64_t version() const { return newest_; }
  /// A gradient, weight decay included, of a version.
  void arrived(int64_t version, std::span<const float> gradient, double learning_rate);

  /// None until enough was seen.
  std::optional<double> total() const;
  /// What it is the quotient of, to add those of several meters up.
  double product() const { return product_; }
  double square() const { return square_; }

 private:
  const std::vector<float>* of(int64_t version) const;

  size_t weights_;
  size_t history_;
  int64_t newest_ = -1;
  std::deque<std::vector<float>> iterates_;  // the newest last
  double product_ = 0;
  double square_ = 0;
  int64_t seen_ = 0;
};

/// Applies less where more is in force than wanted, and more where less is.
class MomentumLoop {
 public:
  /// `start`: applied at first.
  MomentumLoop(double wanted, double start) : wanted_(wanted), applied_(start) {}
  /// After an update, with what the meter says. A small step each time: what changes now shows only
  /// many updates later.
  void correct(double measured);
  double applied() const { return applied_; }

 private:
  double wanted_;
  double applied_;
};

}  // namespace convoy::optim
