#pragma once
// Every way to sum over the ranks of a job, measured side by side in one run: behind `convoy bench
// allreduce`, and behind bench_allreduce, which sets other libraries beside them.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "convoy/comm/communicator.hpp"

namespace convoy::app {

struct AllreduceArguments {
  std::vector<std::string> sizes = {"64KiB", "1MiB", "16MiB", "64MiB"};
  std::vector<std::string> ways;  ///< empty: all
  int colors = 0;                 ///< 0: the best of some tried
  std::string chunk;              ///< of colors; empty: likewise
  double seconds = 1;             ///< for each way and size
  double patience = 60;           ///< that one sum may take
  bool json = false;
};
void add_allreduce_options(CLI::App& verb, AllreduceArguments& a);

/// One way to sum `values`, which are the same at each call.
struct AllreduceWay {
  std::string name;
  std::span<float> values;
  std::function<void()> run;
  std::string note = "";  ///< printed behind it: what an automatic choice has taken
};

/// Another library's ways for `values`; on all ranks the same.
using AllreducePeers = std::function<std::vector<AllreduceWay>(std::span<float> values)>;

/// Measures and prints, on rank 0. The ways take turns, so that what else the machine does hits all
/// alike; a time is that of the slowest rank, and the table has the median.
int compare_allreduce(comm::Communicator& c, const AllreduceArguments& a,
                      const AllreducePeers& peers);

}  // namespace convoy::app
