// convoy bench allreduce: every way to sum over the ranks of a job, beside the MPI library's own,
// in one run. Started by mpirun; rank 0 prints.

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/comm/mpi.hpp"

#include "app/allreduce_table.hpp"
#include "app/verbs.hpp"

namespace convoy::app {

void add_bench_allreduce(CLI::App& bench, Run& run) {
  auto* verb = bench.add_subcommand("allreduce", "Every way to sum over ranks, beside MPI's own");
  auto a = std::make_shared<AllreduceArguments>();
  add_allreduce_options(*verb, *a);
  verb->callback([&run, a] {
    run = [a] {
      comm::MpiSession session;
      try {
        return compare_allreduce(session.world(), *a, nullptr);
      } catch (const InputError&) {
        throw;  // which all ranks do alike
      } catch (const std::exception& error) {
        // The others may wait for this rank, so it cannot just leave.
        fmt::print(stderr, "convoy: rank {}: {}\n", session.world().rank(), error.what());
        session.abort(1);
      }
    };
  });
}

}  // namespace convoy::app
