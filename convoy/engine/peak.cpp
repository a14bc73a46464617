#include "convoy/engine/peak.hpp"

#include <algorithm>
#include <cstring>

#include "convoy/base/memory.hpp"
#include "convoy/base/threads.hpp"
#include "convoy/base/units.hpp"
#include "convoy/engine/crew.hpp"
#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::engine {
namespace {

constexpr int kRounds = 5;

/// Best of a few rounds: the machine's limit is what it reaches when nothing disturbs it.
template <typename F>
double best_seconds(Crew& crew, const F& work) {
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    const Seconds before = now();
    crew.run(work);
    best = std::min(best, (now() - before).value);
  }
  return best;
}

/// Seconds of one call, the mean of as many as take half a second.
template <typename F>
double mean_seconds(const F& work) {
  constexpr Seconds kLongEnough{0.5};
  work();
  int calls = 0;
  const Seconds begin = now();
  do {
    work();
    ++calls;
  } while (now() - begin < kLongEnough);
  return (now() - begin).value / calls;
}

}  // namespace

Peak measure_peak(int cores) {
  Peak peak;
  peak.cores = cores;
  const CoreMap map = usable_cores();
  Crew crew(cores, map.may_pin ? map.cores : std::vector<int>{});
  const Kernels& kernels = select_kernels();

  constexpr int64_t kIterations = 5'000'000;
  std::vector<double> sinks(static_cast<size_t>(cores) * 8);
  const double fma = best_seconds(crew, [&](int lane) {
    sinks[static_cast<size_t>(lane) * 8] = kernels.fma_loop(kIterations);
  });
  peak.fma_gflops_per_core = kernels.fma_loop_flops * static_cast<double>(kIterations) / fma / 1e9;

  constexpr int64_t kBytes = int64_t{64} << 20;
  std::vector<AlignedBuffer> buffers;
  buffers.reserve(2 * static_cast<size_t>(cores));
  for (int i = 0; i < 2 * cores; ++i) buffers.emplace_back(Bytes{kBytes});
  const double copy = best_seconds(crew, [&](int lane) {
    const auto at = static_cast<size_t>(lane) * 2;
    std::memcpy(buffers[at].bytes().data(), buffers[at + 1].bytes().data(), kBytes);
  });
  peak.copy_gb_per_second = 2.0 * static_cast<double>(kBytes) * cores / copy / 1e9;
  return peak;
}

ThreadSpeed measure_thread() {
  const Kernels& kernels = select_kernels();
  constexpr int64_t kIterations = 100'000;
  volatile double sink = 0;
  const double fma = mean_seconds([&] { sink = kernels.fma_loop(kIterations); });
  constexpr int64_t kBytes = int64_t{64} << 20;  // more than caches hold
  AlignedBuffer values{Bytes{kBytes}};
  const double passed = mean_seconds([&] {
    for (float& value : values.floats()) value += 1.0F;
  });
  return {kernels.fma_loop_flops * static_cast<double>(kIterations) / fma, 2.0 * kBytes / passed};
}

}  // namespace convoy::engine
