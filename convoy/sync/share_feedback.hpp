#pragma once
// Shares without a model of anybody's speed (the profile-free variant of LB-BSP): every window of
// steps, δ grains move from the worker that took longest to the one that was done first and has
// room.
//
//   window over ──► slowest ─δ grains─► fastest
//                   goes back where it came from?    δ ← δ/2, window ← 2·window   (too coarse, too
//                   hasty) the third time in one direction? δ ← 2·δ, window ← as at first (speeds
//                   have changed)
//
// It needs no prediction and no profile, and is slow: use it where times are no function of grains.

#include <cstdint>
#include <span>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/sync/shares.hpp"

namespace convoy::sync {

class ShareFeedback {
 public:
  struct Options {
    int64_t move = 4;      ///< δ at first, in grains
    int64_t window = 4;    ///< at first, in steps
    int64_t longest = 64;  ///< window
    /// Workers whose mean times differ by less, as a part of the longer one, are left alone.
    double even = 0.02;
  };

  /// Starts with these shares.
  ShareFeedback(std::vector<int64_t> shares, std::vector<ShareBounds> bounds)
      : ShareFeedback(std::move(shares), std::move(bounds), Options{}) {}
  ShareFeedback(std::vector<int64_t> shares, std::vector<ShareBounds> bounds, Options options);

  /// By worker, for the next step.
  const std::vector<int64_t>& shares() const { return shares_; }
  int64_t move() const { return move_; }
  int64_t window() const { return window_; }

  /// What each worker computed for in a step with these shares. A time that is not a number, or
  /// negative, spoils the step: it does not count. True if shares changed.
  bool took(std::span<const Seconds> times);

 private:
  struct Move {
    size_t from;
    size_t to;
  };

  std::optional<Move> wanted() const;
  /// Adapts δ and the window to whether moves go on or back.
  void adapt(const Move& next);

  Options options_;
  std::vector<int64_t> shares_;
  std::vector<ShareBounds> bounds_;
  int64_t move_;
  int64_t window_;
  std::vector<double> sums_;  // of times in this window
  int64_t steps_ = 0;         // in this window
  std::optional<Move> last_;
  int64_t onward_ = 0;  // moves since one went back
};

}  // namespace convoy::sync
