#pragma once
// What the machine can do at most, for reading measured speeds against.

namespace convoy::engine {

struct Peak {
  double fma_gflops_per_core = 0;  ///< while all cores run the same loop
  double copy_gb_per_second = 0;   ///< bytes read plus bytes written, all cores together
  int cores = 0;
};

/// Runs a register-only multiply-add loop and a large copy on `cores` pinned threads for about a
/// second.
Peak measure_peak(int cores);

/// What one thread does in the long run, under a quota of its core, too: means over half a second.
struct ThreadSpeed {
  double flops = 0;             ///< a second, of multiply-adds in registers
  double bytes_per_second = 0;  ///< read from memory plus written back
};
ThreadSpeed measure_thread();

}  // namespace convoy::engine
