#pragma once
// From data set to grains: threads that prepare the training stream (prepare.hpp) ahead of the
// lanes, and evaluation in place.

#include <cstdint>
#include <memory>
#include <span>

#include "convoy/base/units.hpp"
#include "convoy/data/dataset.hpp"
#include "convoy/data/feed.hpp"
#include "convoy/data/prepare.hpp"

namespace convoy::data {

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
  int64_t grain = 0;  ///< divides the batch
  /// The grains of each batch that are wanted here, [first, last); 0, 0: all.
  int64_t first_grain = 0;
  int64_t last_grain = 0;
  uint64_t seed = 1;
  int64_t first_step = 0;  ///< training: where the stream is taken up
  int threads = 1;
  int ahead = 1;  ///< batches prepared ahead of the one in use (at least one)
  const job::Augment* augment = nullptr;  ///< copied; null: only normalise
  Seconds deadline{300};                  ///< longest wait of one get()
  /// Where stored samples come from; must outlive the loader. Null: from the training set itself.
  Feed* feed = nullptr;
};

/// Prepares the grains of steps first_step, first_step+1, … on its own threads, each grain in its
/// own slot of a ring of ahead+1 batches, so that a lane that asks for a grain finds it ready.
/// Where damaged samples are left out (Source::bad), the nearest sample before it in the grain
/// takes the place of one, or else the nearest behind it: the same on any worker, and batches stay
/// full. get() may be called from any number of lanes at once and in any order within the ring;
/// each grain is got once and released once. No lock is held while a grain is prepared. The threads
/// give way to the lanes (niceness +5) and inherit the affinity of the thread that makes the
/// loader.
class TrainLoader {
 public:
  TrainLoader(const Source& source, const LoaderOptions& options);
  ~TrainLoader();
  TrainLoader(const TrainLoader&) = delete;
  TrainLoader& operator=(const TrainLoader&) = delete;

  /// Grain number `grain` (one of those wanted) of step `step`. Waits if it is not ready; rethrows
  /// an error of a loader thread; throws Error when the deadline passes. Inputs are aligned to 64
  /// bytes and stay valid until release().
  Grain get(int64_t step, int64_t grain);
  /// The lane is done with it; its slot is filled with a later grain.
  void release(int64_t step, int64_t grain);
  /// Time that get() spent waiting since the start, over all lanes.
  Seconds waited() const;
  /// One more thread from now on.
  void add_thread();
  int threads() const;

  /// Memory that the ring of a loader with these options will take.
  static Bytes memory(const LoaderOptions& given, model::Shape shape);

 private:
  struct Ring;
  std::unique_ptr<Ring> ring_;
};

/// How long one thread takes to prepare a sample, measured on some.
Seconds measure_preparation(const Source& source, const LoaderOptions& options);

/// Grain number `index` of an evaluation over `set` (samples index·grain …), prepared in place by
/// the calling lane into `inputs` and `labels`; returns how many are real samples. Damaged ones are
/// not among them where they are left out.
int64_t eval_grain(const Source& source, const Dataset& set, int64_t index, int64_t grain,
                   std::span<float> inputs, std::span<int32_t> labels);

}  // namespace convoy::data
