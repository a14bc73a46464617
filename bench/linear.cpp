// bench_linear [FILTER]: fully connected layers, our kernels beside dnnl_sgemm on one thread. The
// ratio is oneDNN's time over ours: above 1 ours is faster.

#include <dnnl.h>
#include <fmt/format.h>
#include <omp.h>

#include "convoy/engine/kernels/kernels.hpp"

#include "bench/beside.hpp"

namespace {

using convoy::bench::Buffer;

void compare(const std::string& filter, int64_t n, int64_t k, int64_t f) {
  const std::string name = fmt::format("{}x{}->{}", n, k, f);
  if (name.find(filter) == std::string::npos) return;
  const auto& kernels = convoy::engine::select_kernels();
  const Buffer x(n * k);
  const Buffer w(f * k);
  const Buffer y(n * f);
  const double flops = 2.0 * static_cast<double>(n * k * f);
  const auto row = [&](const char* what, const auto& ours, const auto& theirs) {
    convoy::bench::print_row(fmt::format("{} {}", name, what), flops,
                             convoy::bench::measure(ours, theirs));
  };
  row(
      "forward",
      [&] { kernels.linear_forward(n, k, f, 0, f, x.get(), w.get(), nullptr, false, y.get()); },
      [&] { dnnl_sgemm('N', 'T', n, f, k, 1, x.get(), k, w.get(), k, 0, y.get(), f); });
  row(
      "backward data",
      [&] { kernels.linear_backward_data(n, k, f, 0, k, y.get(), w.get(), x.get()); },
      [&] { dnnl_sgemm('N', 'N', n, k, f, 1, y.get(), f, w.get(), k, 0, x.get(), k); });
  row(
      "backward weights",
      [&] { kernels.linear_backward_weights(n, k, f, 0, f, x.get(), y.get(), w.get()); },
      [&] { dnnl_sgemm('T', 'N', f, k, n, 1, y.get(), f, x.get(), k, 0, w.get(), k); });
}

}  // namespace

int main(int argc, char** argv) {
  omp_set_num_threads(1);
  const std::string filter = argc < 2 ? "" : argv[1];
  std::printf("peak of a core: %.1f GF/s\n%-44s %19s %25s\n", convoy::bench::peak_gflops(), "layer",
              "ours", "oneDNN");
  const int64_t sizes[][2] = {{25088, 4096}, {9216, 4096}, {4096, 4096}, {4096, 1000},
                              {2048, 2048},  {2048, 1000}, {800, 504},   {500, 16}};
  for (const auto& [k, f] : sizes) {
    for (const int64_t n : {1, 8, 16, 32, 64}) compare(filter, n, k, f);
  }
}
