#pragma once
// Measures two ways to do the same thing, alternately, so that a busy machine slows both alike.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace convoy::bench {

/// 64-byte aligned floats with small reproducible values.
class Buffer {
 public:
  explicit Buffer(int64_t count)
      : data_(static_cast<float*>(std::aligned_alloc(64, (count * 4 + 127) / 64 * 64))) {
    for (int64_t i = 0; i < count; ++i)
      data_.get()[i] = static_cast<float>(i * 37 % 101) / 101 - 0.5F;
  }
  float* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float[], Free> data_;
};

struct Pair {
  double ours, theirs;  // seconds, the medians
};

/// Processor time of this thread: what others run meanwhile does not count.
inline double seconds_of(const std::function<void()>& f) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const double start = now();
  f();
  return now() - start;
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// Alternates for about `budget` seconds, at least `least` times each.
inline Pair measure(const std::function<void()>& ours, const std::function<void()>& theirs,
                    double budget = 0.3, int least = 5) {
  ours();
  theirs();
  std::vector<double> a;
  std::vector<double> b;
  double spent = 0;
  while (spent < budget || static_cast<int>(a.size()) < least) {
    a.push_back(seconds_of(ours));
    b.push_back(seconds_of(theirs));
    spent += a.back() + b.back();
  }
  return {median(a), median(b)};
}

/// GFLOP/s of twelve independent chains of multiply-adds in registers: what a core can do at most.
inline double peak_gflops() {
#if defined(__x86_64__)
  constexpr int64_t kSteps = 2'000'000;
  std::vector<double> times(9);
  for (double& time : times) {
    time = seconds_of([] {
      int64_t left = kSteps;
      asm volatile(
          "1:\n"
          "vfmadd231ps %%ymm0, %%ymm0, %%ymm1\n vfmadd231ps %%ymm0, %%ymm0, %%ymm2\n"
          "vfmadd231ps %%ymm0, %%ymm0, %%ymm3\n vfmadd231ps %%ymm0, %%ymm0, %%ymm4\n"
          "vfmadd231ps %%ymm0, %%ymm0, %%ymm5\n vfmadd231ps %%ymm0, %%ymm0, %%ymm6\n"
          "vfmadd231ps %%ymm0, %%ymm0, %%ymm7\n vfmadd231ps %%ymm0, %%ymm0, %%ymm8\n"
          "vfmadd231ps %%ymm0, %%ymm0, %%ymm9\n vfmadd231ps %%ymm0, %%ymm0, %%ymm10\n"
          "vfmadd231ps %%ymm0, %%ymm0, %%ymm11\n vfmadd231ps %%ymm0, %%ymm0, %%ymm12\n"
          "dec %0\n jnz 1b\n vzeroupper\n"
          : "+r"(left)
          :
          : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
            "xmm10", "xmm11", "xmm12");
    });
  }
  return kSteps * 12.0 * 16 / *std::min_element(times.begin(), times.end()) / 1e9;
#else
  return 0;
#endif
}

inline void print_row(const std::string& name, double flops, const Pair& times) {
  std::printf("%-44s %8.2f ms %7.1f GF/s %8.2f ms %7.1f GF/s  %5.2f\n", name.c_str(),
              times.ours * 1e3, flops / times.ours / 1e9, times.theirs * 1e3,
              flops / times.theirs / 1e9, times.theirs / times.ours);
  std::fflush(stdout);
}

}  // namespace convoy::bench
