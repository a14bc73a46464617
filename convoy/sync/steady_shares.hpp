#pragma once
// Shares that noise does not move. Predicted speeds never stand still, and shares made of them
// would change in every step; each change costs (samples are fetched for another worker) and gains
// nothing when it only follows noise.
//
// How much of a promised gain is noise is measured. With T(x, v) = max_i x_i / v_i,
//
//   promised = 1 − T(new shares, predicted) / T(present shares, predicted)
//   kept     = 1 − T(new shares, came)      / T(present shares, came)
//
// Both are known after every step, whether shares moved or not. Gains of a size (0.5 … 1 %, 1 … 2
// %, and so on) are remembered together: the mean of kept / promised among them says what to expect
// of the next one, and shares move if that is worth it. Following noise gains less than nothing, so
// it soon stops; where speeds really change, promises are kept, and shares follow at once.
//
// Two new shares are considered in each step, each with its own memory: those for the speeds
// predicted now, and those for their mean since speeds last changed, which see a small change that
// stays through noise that does not.

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "convoy/sync/shares.hpp"

namespace convoy::sync {

/// 1 − slowest(proposed) / slowest(present): what a step would gain.
double predicted_gain(std::span<const int64_t> present, std::span<const int64_t> proposed,
                      std::span<const TimeProfile> profiles);

/// How promised gains of each size were kept.
class KeptPromises {
 public:
  /// What to expect of such a promise. Those of a size that was never seen are believed.
  double expected(double promised) const;
  void learn(double promised, double kept);

 private:
  struct Size {
    double part = 1;      // kept of what was promised: the mean
    double variance = 0;  // and how it is spread
    double count = 0;
  };
  static size_t size_of(double promised);

  std::array<Size, 8> sizes_;
};

class SteadyShares {
 public:
  struct Options {
    double least = 0.005;  ///< expected gain that is worth a move
    int64_t longest = 50;  ///< steps in the mean of speeds
    /// How long a worker of this speed takes; null: in proportion to its grains.
    std::function<TimeProfile(size_t worker, double speed)> profile = nullptr;
  };

  SteadyShares() = default;
  explicit SteadyShares(Options options) : options_(std::move(options)) {}

  /// For a step in which workers are predicted to have these speeds (> 0). The first ones are
  /// taken as they are, and so are shares that bounds or another number of grains or workers make
  /// necessary.
  const Shares& decide(int64_t grains, std::span<const double> predicted,
                       std::span<const ShareBounds> bounds);
  /// The speeds (> 0) that workers had in the step that was decided last.
  void came(std::span<const double> speeds);

  /// Whether the last decision moved grains.
  bool moved() const { return moved_; }
  /// What it expected to gain, if it moved them.
  double gain() const { return gain_; }

 private:
  /// New shares that were considered, and what became of the promises of their kind.
  struct Proposal {
    Shares shares;
    double promised = 0;
    KeptPromises promises;
  };

  std::vector<TimeProfile> profiles_of(std::span<const double> speeds) const;
  bool possible(int64_t grains, std::span<const ShareBounds> bounds) const;
  void average(std::span<const double> predicted);
  void consider(Proposal& proposal, int64_t grains, std::span<const double> speeds,
                std::span<const ShareBounds> bounds);

  Options options_;
  Shares shares_;
  std::vector<int64_t> before_;  // shares before the last decision
  Proposal now_;
  Proposal lasting_;
  std::vector<double> mean_;  // of predicted speeds since they changed
  double steps_ = 0;          // in it
  bool moved_ = false;
  double gain_ = 0;
};

}  // namespace convoy::sync
