#pragma once
// MPI: start, end, and the Communicator over it. Nothing here is particular to one library.

#include <memory>

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

/// The library's own sum, for comparison: blocks.
void mpi_allreduce(Communicator& c, std::span<float> values);

}  // namespace convoy::comm
