// convoy bench allreduce: every way to sum over the ranks of a job, beside the MPI library's own,
// in one run. Started by mpirun; rank 0 prints.

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/base/text.hpp"
#include "convoy/comm/choose.hpp"
#include "convoy/comm/mpi.hpp"
#include "convoy/comm/shared.hpp"
#include "convoy/plan/measurements.hpp"

#include "app/verbs.hpp"

namespace convoy::app {
namespace {

struct AllreduceArguments {
  std::vector<std::string> sizes = {"64KiB", "1MiB", "16MiB", "64MiB"};
  double seconds = 1;
  double patience = 60;
  bool json = false;
};

/// One way to sum, started by all ranks together.
struct Way {
  std::string name;
  std::function<void(std::span<float>)> run;
};

/// Median seconds of a call, as the slowest rank sees it.
double time_of(comm::Communicator& c, const Way& way, std::span<float> values, double budget,
               Seconds patience) {
  std::vector<float> zero(1);
  const auto together = [&] {
    comm::wait(comm::ring_allreduce(c, zero, 1), patience, "starting together");
  };
  std::vector<double> times;
  double spent = 0;
  for (int i = 0; i < 2 || (spent < budget && i < 200); ++i) {
    together();
    const Seconds before = now();
    way.run(values);
    std::vector<float> took = {static_cast<float>((now() - before).value)};
    // The mean over the ranks decides for all of them when it is enough.
    comm::wait(comm::ring_allreduce(c, took, 2), patience, "exchanging times");
    const double mean = static_cast<double>(took[0]) / c.size();
    spent += mean;
    if (i > 0) times.push_back(mean);
  }
  return plan::median(times);
}

int bench_allreduce(const AllreduceArguments& a) {
  comm::MpiSession session;
  comm::Communicator& c = session.world();
  const Seconds patience{a.patience};
  const comm::LinkSpeed link = comm::measure_links(c, patience);
  const bool one_node = std::all_of(c.hosts().begin(), c.hosts().end(),
                                    [&](const std::string& h) { return h == c.hosts().front(); });
  if (c.rank() == 0 && !a.json) {
    fmt::print("{}; a message takes {:.1f} µs + {:.2f} ns per KiB\n", plural(c.size(), "rank"),
               link.latency.value * 1e6, link.per_byte.value * 1e9 * 1024);
    fmt::print("{:>10} {:>10} {:>10} {:>10}   {}\n", "size", "way", "ms", "GB/s", "× MPI's own");
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string& text : a.sizes) {
    const Bytes size = parse_bytes(text);
    const int64_t count = size.value / 4;
    AlignedBuffer buffer = AlignedBuffer::of_floats(count);
    std::optional<comm::SharedSum> shared;
    if (one_node) shared.emplace(c, count);
    std::vector<Way> ways = {
        {"mpi", [&](std::span<float> v) { comm::mpi_blocking_allreduce(c, v); }}};
    for (const comm::Algorithm sum : comm::kAlgorithms) {
      ways.push_back({to_string(sum), [&, sum](std::span<float> v) {
                        comm::wait(
                            comm::allreduce(c, v, 3,
                                            comm::tuned(sum, comm::Form::allreduce, c.size(),
                                                        static_cast<int64_t>(v.size()), link)),
                            patience, to_string(sum));
                      }});
    }
    const comm::Way chosen = comm::fastest(comm::Form::allreduce, c.size(), count, link);
    ways.push_back({"auto", [&, chosen](std::span<float> v) {
                      comm::wait(comm::allreduce(c, v, 3, chosen), patience, "auto");
                    }});
    if (shared) {
      ways.push_back({"shared", [&](std::span<float>) {
                        comm::wait(shared->allreduce(), patience, "shared");
                      }});
    }
    double reference = 0;
    for (const Way& way : ways) {
      std::fill(buffer.floats().begin(), buffer.floats().end(), 1.0F);
      const double seconds = time_of(c, way, buffer.floats(), a.seconds, patience);
      if (reference == 0) reference = seconds;
      rows.push_back({{"bytes", size.value},
                      {"way", way.name},
                      {"seconds", seconds},
                      {"times_mpi", reference / seconds}});
      if (c.rank() != 0 || a.json) continue;
      fmt::print("{:>10} {:>10} {:>10.3f} {:>10.2f}   {:.2f}{}\n", to_string(size), way.name,
                 seconds * 1e3, static_cast<double>(size.value) / seconds / 1e9,
                 reference / seconds,
                 way.name == "auto" ? fmt::format(" ({})", to_string(chosen.algorithm)) : "");
      std::fflush(stdout);
    }
  }
  if (c.rank() == 0 && a.json) {
    fmt::print("{}\n", nlohmann::json{{"ranks", c.size()},
                                      {"latency_seconds", link.latency.value},
                                      {"seconds_per_byte", link.per_byte.value},
                                      {"results", rows}}
                           .dump());
  }
  return 0;
}

}  // namespace

void add_bench_allreduce(CLI::App& bench, Run& run) {
  auto* verb = bench.add_subcommand("allreduce", "Every way to sum over ranks, beside MPI's own");
  auto a = std::make_shared<AllreduceArguments>();
  verb->add_option("--sizes", a->sizes, "Bytes, as 64KiB,16MiB")->delimiter(',');
  verb->add_option("--seconds", a->seconds, "For each way and size")->capture_default_str();
  verb->add_option("--deadline", a->patience, "Seconds that a sum may take")->capture_default_str();
  verb->add_flag("--json", a->json, "Print one JSON object");
  verb->callback([&run, a] { run = [a] { return bench_allreduce(*a); }; });
}

}  // namespace convoy::app
