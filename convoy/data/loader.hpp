#pragma once
// From data set to grains: the training stream, its augmentation, and threads that stay ahead.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/data/dataset.hpp"

namespace convoy::data {

/// The endless training stream: epoch permutations one after the other. Position p of the stream
/// is sample `sample` in epoch `epoch`; a pure function of (size, seed, p), so every batch is full
/// and any worker can compute any part of it.
struct StreamSample {
  int64_t sample = 0;
  int64_t epoch = 0;
};
StreamSample stream_at(int64_t position, int64_t size, uint64_t seed);

/// Writes one sample, augmented and normalised, as floats in channel-major order. The random
/// choices depend only on (seed, epoch, sample). With `augment` null only normalises.
void prepare(const Source& source, const Dataset& set, StreamSample which, uint64_t seed,
             const job::Augment* augment, std::span<float> out);

/// The inputs of one grain: `count` real samples (fewer than the grain only at the end of an
/// evaluation; the rest is zeros with label −1).
struct Grain {
  std::span<const float> inputs;    ///< grain × shape.size(), NCHW
  std::span<const int32_t> labels;  ///< grain
  int64_t count = 0;
};

/// Which part of the data a loader walks through.
struct LoaderOptions {
  int64_t batch = 0;
  int64_t grain = 0;
  uint64_t seed = 1;
  int64_t first_step = 0;     ///< training: where the stream is taken up
  int threads = 1;
  int ahead = 2;              ///< batches prepared ahead of the one in use (at least one)
  const job::Augment* augment = nullptr;
};

/// Prepares the grains of steps first_step, first_step+1, … on its own threads, each grain
/// in its own slot of a ring, so that a lane that asks for a grain finds it ready.
/// get() may be called from any number of lanes at once; each grain is got once and released once.
class TrainLoader {
 public:
  TrainLoader(const Source& source, const LoaderOptions& options);
  ~TrainLoader();
  TrainLoader(const TrainLoader&) = delete;
  TrainLoader& operator=(const TrainLoader&) = delete;

  /// Grain number `grain` (0 … batch/grain − 1) of step `step`. Waits if it is not ready; rethrows
  /// an error of a loader thread.
  Grain get(int64_t step, int64_t grain);
  /// The lane is done with it; its slot is filled with a later grain.
  void release(int64_t step, int64_t grain);
  /// Time that get() spent waiting since the start, over all lanes.
  Seconds waited() const;

  /// Memory that the ring of a loader with these options will take.
  static Bytes memory(const LoaderOptions& options, model::Shape shape);

 private:
  struct Ring;
  std::unique_ptr<Ring> ring_;
};

/// Grain number `index` of an evaluation over `set` (samples index·grain …), prepared in place by
/// the calling lane into `inputs` and `labels`; returns how many are real samples.
int64_t eval_grain(const Source& source, const Dataset& set, int64_t index, int64_t grain,
                   std::span<float> inputs, std::span<int32_t> labels);

}  // namespace convoy::data
