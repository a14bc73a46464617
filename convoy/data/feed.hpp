#pragma once
// Brings stored samples to the worker that will train on them.

#include <cstdint>
#include <vector>

#include "convoy/data/dataset.hpp"

namespace convoy::data {

/// The samples of a worker's grains, in the order of the training stream. Called by the threads of
/// a loader, which take every grain of the worker once, in about the order of the stream, and each
/// thread one at a time.
class Feed {
 public:
  virtual ~Feed() = default;
  /// Only the worker's own grains can be taken, so a loader must know them: it keeps to the steps
  /// that were announced to it. Else any grain can be.
  virtual bool is_announced() const { return false; }
  /// The samples of grain `grain` of step `step`. Waits until they are here; throws when that takes
  /// too long, or cannot be any more. The bytes stay until the grain is released.
  virtual std::vector<Stored> take(int64_t step, int64_t grain) = 0;
  virtual void release(int64_t step, int64_t grain) = 0;
  /// Nothing will be taken any more: whoever waits in take() is sent away with an error. Grains
  /// that were taken can still be released.
  virtual void stop() = 0;
};

}  // namespace convoy::data
