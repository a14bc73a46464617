// convoy bench lowering: what lowering many images together and cutting the batch into partitions
// gain (Omnivore, batched CPU execution): the time of a training step with every convolution
// lowered, against b_p images lowered at once and P partitions that run side by side.

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/model/zoo.hpp"
#include "convoy/plan/measurements.hpp"
#include "convoy/plan/step_time.hpp"

#include "app/verbs.hpp"

namespace convoy::app {
namespace {

struct LoweringArguments {
  std::string model = "alexnet";
  int64_t batch = 64;
  int64_t threads = 0;
  bool json = false;
};

/// 1, 4, 16, … and `most`.
std::vector<int64_t> images_together(int64_t most) {
  std::vector<int64_t> all;
  for (int64_t b = 1; b < most; b *= 4) all.push_back(b);
  all.push_back(most);
  return all;
}

/// Seconds of a step: each partition is one grain on a lane of its own, which has its part of the
/// threads.
double step_seconds(const model::Graph& graph, int64_t batch, int partitions, int threads,
                    int64_t together) {
  job::Job job;
  engine::CompileOptions options;
  options.grain = batch / partitions;
  options.threads_per_lane = threads / partitions;
  options.lowered_together = together;
  options.algorithms = engine::wherever_possible(graph, options.grain, engine::select_kernels(),
                                                 engine::Algorithm::lowering);
  const engine::Program program(graph, options);
  const auto optimizer = optim::make_optimizer(job.train);
  sync::StepperOptions stepping;
  stepping.batch = batch;
  stepping.lanes = partitions;
  sync::Stepper stepper(program, *optimizer, stepping);
  engine::initialise(program.arena(), 1, stepper.weights());
  stepper.weights_changed();
  plan::RandomBatch samples(graph, batch, options.grain);
  constexpr int64_t kSteps = 3;
  constexpr double kRate = 1e-6;
  stepper.step(0, kRate, samples);
  std::vector<double> times;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const Seconds before = now();
    stepper.step(step, kRate, samples);
    times.push_back((now() - before).value);
  }
  return plan::median(times);
}

int bench_lowering(const LoweringArguments& a) {
  const model::Graph graph = model::build(a.model);
  const int threads =
      a.threads > 0 ? static_cast<int>(a.threads) : std::max(1, usable_cores().physical);
  nlohmann::json rows = nlohmann::json::array();
  if (!a.json) {
    fmt::print("{}, batch {}, {}; every convolution lowered\n", a.model, a.batch,
               plural(threads, "thread"));
    fmt::print("{:>10} {:>8} {:>10} {:>10} {:>12}\n", "partitions", "b_p", "s/step", "images/s",
               "× per image");
  }
  // One image at a time in one partition: what older systems did.
  double per_image = 0;
  for (int partitions = 1; partitions <= threads; ++partitions) {
    if (threads % partitions != 0) continue;
    if (a.batch % partitions != 0) {
      refuse("--batch {}: cannot be cut into {} equal partitions", a.batch, partitions);
    }
    for (const int64_t together : images_together(a.batch / partitions)) {
      const double seconds = step_seconds(graph, a.batch, partitions, threads, together);
      if (per_image == 0) per_image = seconds;
      const double rate = static_cast<double>(a.batch) / seconds;
      rows.push_back({{"partitions", partitions},
                      {"images_together", together},
                      {"step_seconds", seconds},
                      {"images_per_second", rate},
                      {"times_per_image", per_image / seconds}});
      if (a.json) continue;
      fmt::print("{:>10} {:>8} {:>10.3f} {:>10.1f} {:>12.2f}\n", partitions, together, seconds,
                 rate, per_image / seconds);
      std::fflush(stdout);
    }
  }
  if (a.json) {
    fmt::print("{}\n",
               nlohmann::json{
                   {"model", a.model}, {"batch", a.batch}, {"threads", threads}, {"results", rows}}
                   .dump());
  }
  return 0;
}

}  // namespace

void add_bench_lowering(CLI::App& bench, Run& run) {
  auto* verb = bench.add_subcommand(
      "lowering", "Steps with all convolutions lowered, by images together and partitions");
  auto a = std::make_shared<LoweringArguments>();
  verb->add_option("MODEL", a->model, "Network of the zoo")->capture_default_str();
  verb->add_option("--batch", a->batch, "Samples per step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--threads", a->threads, "Threads in all (default: every usable core)")
      ->check(CLI::PositiveNumber);
  verb->add_flag("--json", a->json, "Print one JSON object");
  verb->callback([&run, a] { run = [a] { return bench_lowering(*a); }; });
}

}  // namespace convoy::app
