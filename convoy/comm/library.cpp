// The MPI library's own collectives, as tasks: what they do inside is theirs.

#include <algorithm>

#include "convoy/base/memory.hpp"
#include "convoy/comm/collectives.hpp"
#include "convoy/comm/mpi.hpp"

namespace convoy::comm {

Strips library_strips(int64_t count, int ranks, Edges edges) {
  return even_strips(count, ranks, edges);
}

Task library_part_reduce(Communicator& c, std::span<float> values, Strips strips) {
  const std::span<float> own = at(values, strips[static_cast<size_t>(c.rank())]);
  // In place, the library would put the result at the front.
  AlignedBuffer sum = AlignedBuffer::of_floats(static_cast<int64_t>(own.size()));
  co_await mpi_part_reduce(c, values, sum.floats(), strips);
  std::copy_n(sum.floats().begin(), own.size(), own.begin());
}

Task library_part_broadcast(Communicator& c, std::span<float> values, Strips strips) {
  co_await mpi_part_broadcast(c, values, strips);
}

Task library_allreduce(Communicator& c, std::span<float> values) {
  co_await mpi_allreduce(c, values);
}

}  // namespace convoy::comm
