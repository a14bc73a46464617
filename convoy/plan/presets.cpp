#include "convoy/plan/presets.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/model/zoo.hpp"
#include "convoy/plan/lemmas.hpp"
#include "convoy/plan/search.hpp"

namespace convoy::plan {
namespace {

constexpr const char* kCori = R"(
name: cori
note: >
  Two Xeon E5-2698 v3 in a node: 32 cores at 2.3 GHz with two AVX2 multiply-adds, 2355 GFLOP/s; whole
  networks train at about 55 % of a CPU's peak with good kernels (as they do here), 1300 GFLOP/s.
  Aries takes about 8 GB/s into a node. One thread of a node drives all its messages: matching, packing and
  unpacking takes it about 40 microseconds each; all cores add what arrives. Linear layers are split over
  all nodes, whose activations are few beside their weights at 4 images a node.
adding: 40GB/s
nodes:
- {name: haswell, count: 128, cores: 32, gflops: 1300, memory: 128GiB,
   link: {bandwidth: 8GB/s, latency: 3us, per_message: 40us}}
)";

constexpr const char* kEndeavor = R"(
name: endeavor
note: >
  Two Xeon E5-2697 v3 in a node: 28 cores at 2.6 GHz, 2330 GFLOP/s; large products of matrices reach 60 %
  of it, 1400 GFLOP/s. FDR InfiniBand: 6 GB/s of its 6.8.
nodes:
- {name: haswell, count: 16, cores: 28, gflops: 1400, memory: 64GiB,
   link: {bandwidth: 6GB/s, latency: 3us, per_message: 1us}}
)";

constexpr const char* kAws = R"(
name: aws
note: >
  c4.8xlarge: 18 cores of a Xeon E5-2666 v3 at 2.9 GHz, 1670 GFLOP/s, of which whole networks reach
  55 %, 900 GFLOP/s, as on the other clusters. Ethernet of 10 Gbit/s, 1.1 GB/s without headers, in a virtual machine.
nodes:
- {name: c4.8xlarge, count: 16, cores: 18, gflops: 900, memory: 60GiB,
   link: {bandwidth: 1.1GB/s, latency: 60us, per_message: 10us}}
)";

constexpr const char* kOmnivore = R"(
name: omnivore-cpu-l
note: >
  33 machines of c4.4xlarge: 8 cores of a Xeon E5-2666 v3, 740 GFLOP/s, of which 55 % are 400 GFLOP/s;
  1 Gbit/s between them.
nodes:
- {name: c4.4xlarge, count: 33, cores: 8, gflops: 400, memory: 30GiB,
   link: {bandwidth: 1Gbit/s, latency: 80us, per_message: 10us}}
)";

std::vector<Preset> make_presets() {
  const auto read = [](const char* yaml) { return parse_cluster(yaml, "preset"); };
  return {
      {"das16-cori",
       "Das et al. 2016",
       read(kCori),
       {{"vgg-a", 512, 128, 90}, {"vgg-a", 256, 64, 53}, {"overfeat-fast", 256, 64, 42}},
       "model"},
      {"das16-endeavor", "Das et al. 2016", read(kEndeavor), {{"cd-dnn", 1024, 16, 6.5}}},
      {"das16-aws", "Das et al. 2016", read(kAws), {{"vgg-a", 256, 16, 14}}},
      {"omnivore-cpu-l",
       "Hadjis et al. 2016",
       read(kOmnivore),
       {{"caffenet", 256, 8, 0}, {"caffenet", 256, 32, 0}}},
  };
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> kAll = make_presets();
  return kAll;
}

const Preset& preset(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& p : presets()) {
    if (p.name == name) return p;
    names.push_back(p.name);
  }
  refuse("there is no preset '{}'; there are {}", name, join(names));
}

std::vector<PresetResult> run(const Preset& of) {
  std::vector<PresetResult> results;
  for (const PresetRow& row : of.rows) {
    const Workload workload = workload_of(model::build(row.model));
    SearchOptions options;
    options.statistics.batch = row.batch;
    options.pins.batch = row.batch;
    options.pins.groups = 1;
    PresetResult result;
    result.row = row;
    options.pins.workers = 1;
    options.start.grain = row.batch;  // all at once, on all cores
    options.start.bucket = {0};
    result.one = search(workload, of.cluster, options).best().forecast;
    options.pins.workers = row.workers;
    if (of.classifier != "auto") options.pins.classifier = of.classifier;
    options.start.grain = std::max<int64_t>(1, row.batch / row.workers);
    const SearchResult found = search(workload, of.cluster, options);
    result.configuration = found.best().configuration;
    result.several = found.best().forecast;
    result.speedup = result.one.step.value / result.several.step.value;
    results.push_back(result);
  }
  return results;
}

std::string describe(const Preset& of, const std::vector<PresetResult>& results) {
  std::string text = fmt::format("{} ({}): {}\n{}\n", of.name, of.source,
                                 plural(of.cluster.size(), "node"), of.cluster.note);
  text += fmt::format("{:<16}{:>7}{:>9}{:>12}{:>10}{:>11}  {}\n", "model", "batch", "workers",
                      "step", "speed-up", "published", "classifier");
  for (const PresetResult& r : results) {
    text += fmt::format("{:<16}{:>7}{:>9}{:>12}{:>9.1f}×{:>11}  {}\n", r.row.model, r.row.batch,
                        r.row.workers, to_string(r.several.step), r.speedup,
                        r.row.published > 0 ? fmt::format("{:g}× {:+.0f}%", r.row.published,
                                                          100 * (r.speedup / r.row.published - 1))
                                            : "–",
                        r.configuration.classifier);
  }
  return text;
}

std::string overhead_table() {
  std::string text = fmt::format("{:<12}", "efficiency");
  const std::vector<int> workers = {2, 4, 8, 16};
  for (const int n : workers) text += fmt::format("{:>12}", plural(n, "worker"));
  text += "\n";
  for (const double efficiency : {0.75, 0.8, 0.9}) {
    text += fmt::format("{:<12}", efficiency);
    for (const int n : workers) {
      text += fmt::format("{:>10.2f} %", 100 * allowed_overhead(efficiency, n));
    }
    text += "\n";
  }
  return text;
}

}  // namespace convoy::plan
