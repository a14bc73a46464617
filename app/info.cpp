// convoy info: this machine, this build, and the networks it knows.

#include <dnnl_version.h>
#include <fmt/format.h>

#include "convoy/base/memory.hpp"
#include "convoy/base/threads.hpp"
#include "convoy/base/version.hpp"
#include "convoy/engine/kernels/kernels.hpp"
#include "convoy/model/yaml.hpp"
#include "convoy/model/zoo.hpp"

#include "app/verbs.hpp"

namespace convoy::app {
namespace {

struct InfoArguments {
  std::string model;
  bool yaml = false;
};

int machine() {
  const CoreMap cores = usable_cores();
  fmt::print("convoy   {} (oneDNN {}.{}.{}, own kernels for {})\n", version(), DNNL_VERSION_MAJOR,
             DNNL_VERSION_MINOR, DNNL_VERSION_PATCH, engine::select_kernels().isa);
  fmt::print("cpu      {}\n", cpu_name());
  for (const Cache& cache : caches()) {
    fmt::print("cache    L{} {}, shared by {}\n", cache.level, to_string(cache.size), cache.shared);
  }
  fmt::print("{}\n", describe(cores, cores.size(), 1));
  fmt::print("memory   {} available\n", to_string(available_memory()));
  fmt::print("\nmodels   (convoy info --model NAME shows one layer by layer)\n");
  for (const model::ZooEntry& entry : model::zoo()) {
    fmt::print("  {:14} {}\n", entry.name, entry.what);
  }
  return 0;
}

int info_verb(const InfoArguments& a) {
  if (a.model.empty()) return machine();
  const model::Graph graph = model::build(a.model);
  fmt::print("{}", a.yaml ? model::to_yaml(graph) : model::describe(graph));
  return 0;
}

}  // namespace

void add_info(CLI::App& app, Run& run) {
  auto* verb = app.add_subcommand("info", "Show this machine, this build and the model zoo");
  auto a = std::make_shared<InfoArguments>();
  verb->add_option("--model", a->model, "Show a zoo network layer by layer");
  verb->add_flag("--yaml", a->yaml, "With --model: as a graph for a job's `model:`");
  verb->callback([&run, a] { run = [a] { return info_verb(*a); }; });
}

}  // namespace convoy::app
