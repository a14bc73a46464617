#pragma once
// A worker's time as a function of its grains, measured as it goes: t(x) = offset + slope·x by
// least squares over its steps, of which older ones count less. A worker with several lanes takes
// as long for a few grains as for one on each lane, which is the flat part.

#include <cstdint>

#include "convoy/base/units.hpp"
#include "convoy/sync/shares.hpp"

namespace convoy::sync {

class ProfileFit {
 public:
  explicit ProfileFit(int64_t lanes = 1) : lanes_(lanes) {}

  /// A step with so many grains (> 0) took so long.
  void observe(int64_t grains, Seconds time);
  /// The profile of a worker that is predicted to run `speed` grains per second if it had as many
  /// as last time: the measured one, stretched to fit. Without steps of different numbers of grains
  /// there is nothing but the speed to go by.
  TimeProfile profile(double speed) const;

 private:
  int64_t lanes_;
  double last_ = 0;  // grains
  // Weighted sums over steps.
  double weight_ = 0;
  double x_ = 0;
  double t_ = 0;
  double xx_ = 0;
  double xt_ = 0;
};

}  // namespace convoy::sync
