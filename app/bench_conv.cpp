// convoy bench conv: one convolution by every algorithm: speed and rounding error together.

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convoy/base/error.hpp"
#include "convoy/engine/conv_trial.hpp"
#include "convoy/plan/measurements.hpp"

#include "app/verbs.hpp"

namespace convoy::app {
namespace {

using engine::Algorithm;
using engine::ConvShape;
using engine::Direction;

struct ConvArguments {
  std::string layer;
  int64_t check = 2000;
  int threads = 1;
  bool json = false;
};

/// N,IC,H,OC,K,S,P
ConvShape parse_layer(const std::string& text) {
  std::vector<int64_t> numbers;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int64_t value = 0;
    const auto [rest, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (rest != end && *rest != ',')) break;
    numbers.push_back(value);
    at = rest == end ? end : rest + 1;
  }
  if (at != end || numbers.size() != 7 || *std::min_element(numbers.begin(), numbers.end()) < 0 ||
      numbers[5] == 0) {
    refuse("--layer {}: expected seven numbers N,IC,H,OC,K,S,P such as 16,256,28,256,3,1,1", text);
  }
  ConvShape s;
  s.n = numbers[0], s.ic = numbers[1], s.oc = numbers[3];
  s.ih = s.iw = numbers[2];
  s.kh = s.kw = numbers[4];
  s.stride_h = s.stride_w = numbers[5];
  s.pad_h = s.pad_w = numbers[6];
  s.oh = s.ow = (s.ih + 2 * s.pad_h - s.kh) / s.stride_h + 1;
  if (s.n < 1 || s.ic < 1 || s.oc < 1 || s.kh < 1 || s.ih + 2 * s.pad_h < s.kh) {
    refuse("--layer {}: a kernel of {} does not fit {} pixels with padding {}", text, s.kh, s.ih,
           s.pad_h);
  }
  return s;
}

int bench_conv(const ConvArguments& a) {
  const ConvShape s = parse_layer(a.layer);
  const double flops = engine::conv_work(s).value;
  nlohmann::json rows = nlohmann::json::array();
  if (!a.json) {
    fmt::print("{:<14} {:<17} {:>9} {:>9} {:>10} {:>10} {:>11} {:>11}\n", "algorithm", "direction",
               "ms", "GFLOP/s", "× direct", "workspace", "max error", "mean error");
  }
  double direct[3] = {};
  for (const Algorithm algorithm : engine::kAlgorithms) {
    for (const Direction direction : engine::kDirections) {
      const auto& kernels = engine::select_kernels();
      if (!engine::obstacle(kernels, s, algorithm, direction).empty()) continue;
      engine::ConvAlgorithms algorithms;
      algorithms.of(direction) = algorithm;
      engine::ConvTrial trial(s, algorithms, a.threads);
      trial.fill(1);
      const double seconds = plan::median_seconds([&] { trial.run(direction); });
      if (algorithm == Algorithm::direct) direct[static_cast<size_t>(direction)] = seconds;
      const double ratio = direct[static_cast<size_t>(direction)] / seconds;
      const engine::ConvTrial::Error error = trial.error(direction, a.check);
      const engine::ConvCost cost = engine::conv_cost(kernels, s, algorithm, direction, a.threads);
      rows.push_back({{"algorithm", to_string(algorithm)},
                      {"direction", to_string(direction)},
                      {"kernel", trial.kernel(direction)},
                      {"seconds", seconds},
                      {"gflops", flops / seconds / 1e9},
                      {"times_direct", ratio},
                      {"workspace_bytes", cost.workspace.value},
                      {"kept_bytes", cost.kept.value},
                      {"max_relative_error", error.largest},
                      {"mean_relative_error", error.mean}});
      if (a.json) continue;
      fmt::print("{:<14} {:<17} {:>9.3f} {:>9.1f} {:>10.2f} {:>10} {:>11.1e} {:>11.1e}\n",
                 to_string(algorithm), to_string(direction), seconds * 1e3, flops / seconds / 1e9,
                 ratio, to_string(cost.workspace), error.largest, error.mean);
      std::fflush(stdout);
    }
  }
  if (a.json) fmt::print("{}\n", nlohmann::json{{"layer", a.layer}, {"results", rows}}.dump());
  return 0;
}

}  // namespace

void add_bench_conv(CLI::App& bench, Run& run) {
  auto* verb = bench.add_subcommand("conv", "One convolution by every algorithm");
  auto a = std::make_shared<ConvArguments>();
  verb->add_option("--layer", a->layer,
                   "Images, input channels, pixels, output channels, kernel, "
                   "stride, padding: 16,256,28,256,3,1,1")
      ->type_name("N,IC,H,OC,K,S,P")
      ->required();
  verb->add_option("--threads", a->threads, "Threads that share the work")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb->add_option("--check", a->check, "Values to compare with the definition; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_flag("--json", a->json, "Print one JSON object");
  verb->footer(
      "GFLOP/s count the operations of the definition, whatever the algorithm really does.");
  verb->callback([&run, a] { run = [a] { return bench_conv(*a); }; });
}

}  // namespace convoy::app
