#include "convoy/engine/kernels/isa/parts.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

// Enough chains to cover the latency of the multiply-add (4–5 cycles) at two per cycle, few enough
// for the sixteen registers.
constexpr int kChains = 12;

double fma_loop(int64_t iterations) {
  Vec sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = splat(static_cast<float>(c));
  // The compiler must neither know the values nor fold the loop.
  volatile float unknown = 0.999999F;
  const Vec factor = splat(unknown);
  const Vec term = splat(1 - unknown);
  for (int64_t i = 0; i < iterations; ++i) {
    for (int c = 0; c < kChains; ++c) sums[c] = sums[c] * factor + term;
  }
  double total = 0;
  for (int c = 0; c < kChains; ++c) {
    for (int lane = 0; lane < 8; ++lane) total += static_cast<double>(sums[c][lane]);
  }
  return total;
}

}  // namespace

void fill_peak(Kernels& kernels) {
  kernels.fma_loop = fma_loop;
  kernels.fma_loop_flops = 2.0 * 8 * kChains;
}

}  // namespace convoy::engine::CONVOY_ISA
