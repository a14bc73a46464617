#pragma once
// From data set to grains: threads that prepare the training stream (prepare.hpp) ahead of the
// lanes, and evaluation in place.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "convoy/base/units.hpp"
#include "convoy/data/dataset.hpp"
#include "convoy/data/feed.hpp"
#include "convoy/data/holders.hpp"
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
  /// The grains of each batch that are wanted here, until set_grains() says otherwise; not set:
  /// all. May be empty, and must be if the feed's steps are announced.
  std::optional<GrainRange> grains;
  uint64_t seed = 1;
  int64_t first_step = 0;  ///< training: where the stream is taken up
  int threads = 1;
  int ahead = 1;  ///< batches prepared ahead of the one in use (at least one)
  int lanes = 1;  ///< that take the grains, each an equal part of them in ascending order
  const job::Augment* augment = nullptr;  ///< copied; null: only normalise
  Seconds deadline{300};                  ///< longest wait of one get()
  /// Where stored samples come from; must outlive the loader. Null: from the training set itself.
  Feed* feed = nullptr;
};

/// Prepares the grains of steps first_step, first_step+1, … on its own threads, each grain in its
/// own slot of as many as ahead+1 batches have, so that a lane that asks for a grain finds it
/// ready.
///
/// Which grains are wanted may change between steps. Of a step of which nothing was said yet, those
/// are prepared that are wanted in the step before it. Where it then turns out otherwise, what is
/// ready and not wanted is thrown away, what is wanted stays, and what is missing is prepared,
/// earliest first. (From a feed whose steps are announced nothing is taken on such a guess.) Slots
/// are made when a share grows; when it shrinks they are given back, but for a quarter more than
/// needed or one grain of each batch.
///
/// Where damaged samples are left out (Source::bad), the nearest sample before it in the grain
/// takes the place of one, or else the nearest behind it: the same on any worker, and batches stay
/// full. get() may be called from any number of lanes at once and in any order within a step; each
/// grain is got once and released once. No lock is held while a grain is prepared. The threads give
/// way to the lanes (niceness +5) and inherit the affinity of the thread that makes the loader.
class TrainLoader {
 public:
  TrainLoader(const Source& source, const LoaderOptions& options);
  ~TrainLoader();
  TrainLoader(const TrainLoader&) = delete;
  TrainLoader& operator=(const TrainLoader&) = delete;

  /// From `step` on, until told otherwise, these grains of each batch are wanted here; none if it
  /// is empty. To be called between steps, by one thread: no lane has got a grain of `step` or a
  /// later one. With a feed whose steps are announced it is called for every step once, in order.
  void set_grains(int64_t step, GrainRange grains);

  /// Grain number `grain` (one of those wanted) of step `step`. Waits if it is not ready; rethrows
  /// an error of a loader thread; throws Error when the deadline passes. Inputs are aligned to 64
  /// bytes and stay valid until release().
  Grain get(int64_t step, int64_t grain);
  /// The lane is done with it; its slot is free for a later grain.
  void release(int64_t step, int64_t grain);
  /// Time that get() spent waiting since the start, over all lanes.
  Seconds waited() const;
  /// One more thread from now on.
  void add_thread();
  int threads() const;

  /// Memory that the slots of a loader with these options will take while the share stays.
  static Bytes memory(const LoaderOptions& options, model::Shape shape);

 private:
  struct Crew;
  std::unique_ptr<Crew> crew_;
};

/// How long one thread takes to prepare a sample, measured on some.
Seconds measure_preparation(const Source& source, const LoaderOptions& options);

/// Grain number `index` of an evaluation over `set` (samples index·grain …), prepared in place by
/// the calling lane into `inputs` and `labels`; returns how many are real samples. Damaged ones are
/// not among them where they are left out.
int64_t eval_grain(const Source& source, const Dataset& set, int64_t index, int64_t grain,
                   std::span<float> inputs, std::span<int32_t> labels);

}  // namespace convoy::data
