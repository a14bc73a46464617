#pragma once
// How fast records change hands between the workers of a job, beside what MPI moves between the
// same ranks: behind `convoy bench data` with several workers.

#include <cstdint>

#include "convoy/base/units.hpp"
#include "convoy/data/dataset.hpp"
#include "convoy/sync/team.hpp"

namespace convoy::app {

struct ShuffleOptions {
  Bytes segment{0};  ///< all buffers of a worker while records change hands; 0: by the data
  int threads = 1;   ///< that read the file
  Seconds budget{1};
};

struct ShuffleSpeed {
  int64_t images = 0;
  Bytes held;     ///< by all workers together
  Bytes segment;  ///< longest message
  int64_t shuffles = 0;
  Bytes moved;                ///< by one shuffle, between all workers; a mean
  double per_second = 0;      ///< bytes that a worker receives in a shuffle, the median
  double mpi_per_second = 0;  ///< the same for as many bytes in messages of a segment
  double ratio = 0;           ///< within a turn: median, least and largest
  double least_ratio = 0;
  double largest_ratio = 0;
};

/// Collective. A shuffle and MPI take turns; a time is that of the slowest worker.
ShuffleSpeed measure_shuffle(const data::Source& source, const sync::Team& team,
                             const ShuffleOptions& options);

}  // namespace convoy::app
