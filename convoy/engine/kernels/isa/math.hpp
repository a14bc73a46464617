#pragma once
// exp and log of eight floats, right to about 1e-7. NaN in, NaN out.
// Included only by the files in this folder.

#include "convoy/engine/kernels/isa/vec.hpp"

namespace convoy::engine::CONVOY_ISA {

/// ln 2 in two parts; multiples of the first by a small integer are exact.
inline constexpr float kLn2High = 0.693359375F;
inline constexpr float kLn2Low = -2.12194440e-4F;

/// eˣ for x ≤ 88: 2ⁿ·eʳ with n = round(x/ln 2), |r| ≤ ln 2/2, and eʳ = 1 + r + r²·q(r), q fitted
/// for the least relative error (3·10⁻⁹). 0 where the result would not be a normal number.
inline Vec exp(Vec x) {
  // Adding 1.5·2²³ rounds to an integer, which then stands in the low bits.
  const Vec magic = splat(12582912.0F);
  const Vec shifted = x * splat(1.44269502F) + magic;
  const Vec n = shifted - magic;
  const Vec r = (x - n * splat(kLn2High)) - n * splat(kLn2Low);
  Vec q = splat(0.00138145988F);
  q = q * r + splat(0.00836871658F);
  q = q * r + splat(0.0416683890F);
  q = q * r + splat(0.166665211F);
  q = q * r + splat(0.49999994F);
  const Vec power = (r * r * q + r) + splat(1.0F);
  const IVec exponent = reinterpret_cast<IVec>(shifted) - (reinterpret_cast<IVec>(magic) - 127);
  return keep(~(x < splat(-87.33654F)), power * reinterpret_cast<Vec>(exponent << 23));
}

/// ln x for normal x > 0: x = 2ⁿ·m with m in [√½, √2), ln m = 2·artanh(s), s = (m − 1)/(m + 1). NaN
/// for infinity, too.
inline Vec log(Vec x) {
  const IVec bits = reinterpret_cast<IVec>(x);
  const IVec n = (bits - 0x3F3504F3) >> 23;
  const Vec m = reinterpret_cast<Vec>(bits - (n << 23));
  const Vec s = (m - splat(1.0F)) / (m + splat(1.0F));
  const Vec z = s * s;
  Vec series = splat(2.0F / 11);
  series = series * z + splat(2.0F / 9);
  series = series * z + splat(2.0F / 7);
  series = series * z + splat(2.0F / 5);
  series = series * z + splat(2.0F / 3);
  const Vec exponent = __builtin_convertvector(n, Vec);
  const Vec tail = series * z * s + (exponent * splat(kLn2Low) + x * zero());
  return exponent * splat(kLn2High) + (splat(2.0F) * s + tail);
}

}  // namespace convoy::engine::CONVOY_ISA
