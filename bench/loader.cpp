// How fast one loader thread prepares images, beside what the memory can do.
//   CONVOY_DATA=DIR build/release/bench_loader
// prints images/s of prepare() with flip, pad_crop 4 and normalisation over CIFAR-10 (synthetic
// images of the same shape without it), and the bandwidth of memcpy into the same buffer. A batch
// of either runs in turn, the median counts. Expect more than 100,000 images/s.

#include "convoy/data/loader.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "convoy/base/units.hpp"

namespace {

using namespace convoy;

job::Data choose_data() {
  const char* root = std::getenv("CONVOY_DATA");
  const std::filesystem::path cifar =
      std::filesystem::path(root != nullptr ? root : "data") / "cifar10";
  job::Data options;
  if (std::filesystem::exists(cifar)) {
    options.kind = "cifar10";
    options.path = cifar.string();
  } else {
    options.kind = "synthetic";
    options.shape = {3, 32, 32};
    options.size = 10000;
  }
  return options;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

template <typename Action>
double seconds(const Action& action) {
  const Seconds start = now();
  action();
  benchmark::ClobberMemory();
  return (now() - start).value;
}

}  // namespace

int main() {
  constexpr int64_t kBatch = 1024;
  constexpr int kRounds = 60;
  const job::Data options = choose_data();
  data::Source source;
  const double opening = seconds([&] { source = data::open(options); });
  const auto values = static_cast<size_t>(source.train->shape().size());
  std::vector<float> from(kBatch * values, 1.0F);
  std::vector<float> to(kBatch * values);
  job::Augment augment;
  augment.flip = true;
  augment.pad_crop = 4;
  data::Preparer preparer(source, source.train->shape(), &augment);
  std::vector<double> prepare_times;
  std::vector<double> copy_times;
  for (int round = 0; round < kRounds; ++round) {
    prepare_times.push_back(seconds([&] {
      for (int64_t i = 0; i < kBatch; ++i) {
        const auto which = data::stream_at(round * kBatch + i, source.train->size(), 1);
        preparer.prepare(source.train->sample(which.sample), which, 1,
                         std::span(to).subspan(static_cast<size_t>(i) * values, values));
      }
    }));
    copy_times.push_back(
        seconds([&] { std::memcpy(to.data(), from.data(), to.size() * sizeof(float)); }));
  }
  const double written = static_cast<double>(to.size() * sizeof(float));
  fmt::print("data       {} ({} samples), opened in {}\n", options.kind, source.train->size(),
             to_string(Seconds{opening}));
  fmt::print("prepare    {:.0f} images/s, writes {:.2f} GB/s\n", kBatch / median(prepare_times),
             written / median(prepare_times) * 1e-9);
  fmt::print("memcpy     {:.2f} GB/s written\n", written / median(copy_times) * 1e-9);
  return 0;
}
