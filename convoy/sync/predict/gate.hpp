#pragma once
// How far to follow an adviser. Between a careful prediction p and a clever one q,
//
//   p + g (q − p),   g = Σ f^k r e / Σ f^k r²  in [0, 1],   r = q − p,  e = what came − p
//
// is the mixture with the least (discounted) squared error so far. When q has nothing to say, r and
// e are not correlated; what correlation chance gives, `doubt` standard errors of it, is
// subtracted, and the gate shuts.

#include <algorithm>
#include <cmath>

namespace convoy::sync {

class Gate {
 public:
  explicit Gate(double forget, double doubt) : forget_(forget), doubt_(doubt) {}

  double open() const {
    if (agreement_ <= 0 || advice_ <= 0) return 0;
    const double chance = doubt_ * std::sqrt(chance_);
    return std::clamp((agreement_ - chance) / advice_, 0.0, 1.0);
  }
  double mix(double careful, double clever) const { return careful + open() * (clever - careful); }
  void learn(double careful, double clever, double came) {
    const double r = clever - careful;
    const double e = came - careful;
    agreement_ = forget_ * agreement_ + r * e;
    advice_ = forget_ * advice_ + r * r;
    chance_ = forget_ * forget_ * chance_ + r * e * r * e;
  }

 private:
  double forget_;
  double doubt_;
  double agreement_ = 0;  // Σ r e
  double advice_ = 0;     // Σ r²
  double chance_ = 0;     // Σ (r e)², the variance of the first if it has mean 0
};

}  // namespace convoy::sync
