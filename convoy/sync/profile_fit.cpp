#include "convoy/sync/profile_fit.hpp"

#include <algorithm>

namespace convoy::sync {

void ProfileFit::observe(int64_t grains, Seconds time) {
  constexpr double kForget = 0.98;
  const auto x = static_cast<double>(grains);
  last_ = x;
  for (double* sum : {&weight_, &x_, &t_, &xx_, &xt_}) *sum *= kForget;
  weight_ += 1;
  x_ += x;
  t_ += time.value;
  xx_ += x * x;
  xt_ += x * time.value;
}

TimeProfile ProfileFit::profile(double speed) const {
  TimeProfile fitted = TimeProfile::of_speed(speed);
  const double spread = weight_ > 0 ? xx_ / weight_ - (x_ / weight_) * (x_ / weight_) : 0;
  // Shares that differ by less than half a grain on average say nothing about a slope.
  constexpr double kSpread = 0.25;
  if (spread > kSpread) {
    const double slope = (xt_ / weight_ - x_ * t_ / (weight_ * weight_)) / spread;
    const double offset = (t_ - slope * x_) / weight_;
    if (slope > 0 && offset > 0) {
      const double stretch = last_ / speed / (offset + slope * last_);
      fitted = {.flat = {}, .offset = {stretch * offset}, .slope = {stretch * slope}};
    }
  }
  if (lanes_ > 1) {
    fitted.flat = {fitted.offset.value + fitted.slope.value * static_cast<double>(lanes_)};
  }
  return fitted;
}

}  // namespace convoy::sync
