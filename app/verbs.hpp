#pragma once
// The verbs of the command line, one file each. Each function adds its subcommand; when the
// subcommand is given, `run` is set to what it does, returning the exit code.

#include <functional>

#include <CLI/CLI.hpp>

#include "convoy/plan/plan.hpp"

namespace convoy::app {

using Run = std::function<int()>;
/// What the program was called with, less what is the launcher's (app/launch/launch.hpp).
using Arguments = std::vector<std::string>;

void add_train(CLI::App& app, Run& run, const Arguments& called);
void add_eval(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run, const Arguments& called);
void add_bench_conv(CLI::App& bench, Run& run);
void add_bench_allreduce(CLI::App& bench, Run& run);
void add_bench_lowering(CLI::App& bench, Run& run);
void add_bench_data(CLI::App& bench, Run& run, const Arguments& called);
void add_bench_predictors(CLI::App& bench, Run& run);
void add_plan(CLI::App& app, Run& run, const Arguments& called);
void add_simulate(CLI::App& app, Run& run);
void add_tune(CLI::App& app, Run& run);
void add_config(CLI::App& app, Run& run);
void add_info(CLI::App& app, Run& run, const Arguments& called);
void add_import_cifar(CLI::App& app, Run& run);
void add_pack(CLI::App& app, Run& run);

/// Planning with its progress shown on stderr.
plan::PlanOptions plan_options();

}  // namespace convoy::app
