// The matrix products of Winograd's convolution beside libxsmm's, on one core: the same numbers of
// output channels, input channels and tiles, each in the layout that it likes. Compiled for AVX2.

#include <libxsmm.h>

#include "convoy/engine/kernels/isa/winograd_product.hpp"

#include "bench/beside.hpp"

namespace {

using convoy::bench::Buffer;
using convoy::engine::kBlock;
namespace winograd = convoy::engine::avx2::winograd;

/// Ours: panels of 16 output channels × strips of 6 tiles, as winograd.cpp calls it.
void ours(int64_t oc, int64_t ic, int64_t tiles, const float* u, const float* v, float* m) {
  constexpr int64_t kPanel = winograd::kPanel * kBlock;
  for (int64_t o = 0; o < oc; o += kPanel) {
    for (int64_t t = 0; t < tiles; t += winograd::kStrip) {
      winograd::multiply<winograd::kPanel>(ic / kBlock, u + o * ic, v + t * kBlock, tiles * kBlock,
                                           m + o * tiles + t * kBlock, tiles * kBlock);
    }
  }
}

void compare(int64_t oc, int64_t ic, int64_t tiles) {
  const Buffer u(oc * ic), v(ic * tiles), m(oc * tiles);
  // Column by column: 64 output channels × tiles = (64 × input channels) · (input channels ×
  // tiles).
  constexpr int kRows = 64;
  const int ld_a = kRows, ld_b = static_cast<int>(ic), ld_c = kRows;
  const float one = 1, none = 0;
  const libxsmm_smmfunction theirs =
      libxsmm_smmdispatch(kRows, static_cast<int>(tiles), static_cast<int>(ic), &ld_a, &ld_b, &ld_c,
                          &one, &none, nullptr, nullptr);
  if (theirs == nullptr) {
    std::fprintf(stderr, "libxsmm has no kernel for this machine\n");
    std::exit(1);
  }
  const auto times =
      convoy::bench::measure([&] { ours(oc, ic, tiles, u.get(), v.get(), m.get()); },
                             [&] {
                               for (int64_t o = 0; o < oc; o += kRows) {
                                 theirs(u.get() + o * ic, v.get(), m.get() + o * tiles);
                               }
                             },
                             0.5, 20);
  char name[80];
  std::snprintf(name, sizeof name, "%d outputs x %d inputs x %d tiles", static_cast<int>(oc),
                static_cast<int>(ic), static_cast<int>(tiles));
  convoy::bench::print_row(name, 2.0 * static_cast<double>(oc * ic * tiles), times);
}

}  // namespace

int main() {
  std::printf("FMA peak of a core: %.1f GFLOP/s\n", convoy::bench::peak_gflops());
  std::printf("%-44s %s\n", "", "        ours                    libxsmm           ratio");
  for (const int64_t tiles : {48, 96}) {
    for (const int64_t channels : {64, 128, 256, 512}) compare(channels, channels, tiles);
  }
  return 0;
}
