#pragma once
// Shares that noise does not move. Predicted speeds never stand still, and shares made of them
// would change in every step; each change costs (data is fetched for another worker, buffers are
// re-planned) and gains nothing when it only follows noise.
//
// So new shares are taken only when they promise more than noise could feign. With σ the measured
// relative noise of speeds around their mean, and n the steps since shares last moved (at most
// `longest`), new shares are taken if either
//
//   gain(speeds now)           ≥ max(least, k σ)        a change that stands out at once
//   gain(mean speed of n steps) ≥ max(least, k σ/√n)    a small one that stays
//
// where gain = 1 − (slowest worker's time with new shares) / (… with the present ones). The slowest
// of N equal workers is so by about √(2 ln N) σ of chance, so k = √(2 ln N) + `deviations`.

#include <cstdint>
#include <span>
#include <vector>

#include "convoy/sync/shares.hpp"

namespace convoy::sync {

class SteadyShares {
 public:
  struct Options {
    double least = 0.01;    ///< gain that is worth a move
    double deviations = 2;  ///< beyond what the slowest is by chance
    int64_t longest = 50;   ///< steps that count
  };

  SteadyShares() = default;
  explicit SteadyShares(Options options) : options_(options) {}

  /// For a step in which workers are predicted to have these speeds (> 0). The first ones are
  /// taken as they are, and so are shares that bounds or another number of grains or workers make
  /// necessary.
  const Shares& decide(int64_t grains, std::span<const double> speeds,
                       std::span<const ShareBounds> bounds);

  /// Whether the last decision moved grains.
  bool moved() const { return moved_; }
  /// What it promised, moved or not.
  double gain() const { return gain_; }
  /// σ: how far speeds are from their mean since shares moved.
  double noise() const;

 private:
  bool possible(int64_t grains, std::span<const ShareBounds> bounds) const;
  void measure(std::span<const double> speeds);
  void move_to(Shares shares, std::span<const double> speeds);

  Options options_;
  Shares shares_;
  std::vector<double> mean_;  // of speeds since shares moved
  double steps_ = 0;          // in it
  double variance_ = 0;
  double measured_ = 0;  // how many steps are in it
  bool moved_ = false;
  double gain_ = 0;
};

/// 1 − slowest(proposed) / slowest(present): what a step would gain.
double predicted_gain(std::span<const int64_t> present, std::span<const int64_t> proposed,
                      std::span<const TimeProfile> profiles);

}  // namespace convoy::sync
