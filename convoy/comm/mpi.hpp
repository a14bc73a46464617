#pragma once
// MPI: start, end, and the Communicator over it. Nothing here is particular to one library.

#include <memory>

#include "convoy/comm/collectives.hpp"
#include "convoy/comm/communicator.hpp"

namespace convoy::comm {

/// Starts MPI, once for a process, and ends it. `world()` is all ranks of the job.
class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  Communicator& world() { return *world_; }
  /// Ends all ranks at once, whatever they are doing; does not return.
  [[noreturn]] void abort(int code);

 private:
  std::unique_ptr<Communicator> world_;
};

/// True if this process was started by mpirun, srun or the like.
bool started_by_launcher();

// The library's own collectives (see collectives.hpp), started: in the same order by all ranks.
// They cannot be given up before they are done. Throw Error if the communicator is not MPI's.
std::unique_ptr<Request> mpi_allreduce(Communicator& c, std::span<float> values);
/// `sum` takes this rank's strip.
std::unique_ptr<Request> mpi_part_reduce(Communicator& c, std::span<const float> values,
                                         std::span<float> sum, const Strips& strips);
std::unique_ptr<Request> mpi_part_broadcast(Communicator& c, std::span<float> values,
                                            const Strips& strips);
/// The sum as most programs call it, for comparison: blocks, and has no deadline.
void mpi_blocking_allreduce(Communicator& c, std::span<float> values);

}  // namespace convoy::comm
