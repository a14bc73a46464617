#pragma once
// The data side of a sitting: the store of packed samples, the loader that prepares them, and how
// many threads it needs for the lanes not to wait.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convoy/data/loader.hpp"
#include "convoy/data/store.hpp"
#include "convoy/plan/loader_source.hpp"
#include "convoy/sync/stepper.hpp"
#include "convoy/sync/team.hpp"
#include "convoy/train/trainer.hpp"

namespace convoy::train {

/// The options of a store for this job, but for copies and shuffles, which are planned.
data::StoreOptions store_options(const job::Job& job, const plan::Plan& plan,
                                 const data::Source& source, const sync::Team& team);

struct FeedingOptions {
  int64_t batch = 0;                     ///< samples of a step of the stream
  std::vector<sync::GrainRange> ranges;  ///< the grains of each worker, by rank
  /// They may change, and every step's are announced.
  bool moving = false;
  int64_t first_step = 0;
};

/// What those who train by segments, without common steps, ask and tell the training.
struct SegmentCalls {
  std::function<double(int64_t step)> learning_rate;
  /// After each gradient of this worker, or of its group.
  std::function<void(int64_t step, const sync::StepResult& result, Seconds took)> after_step;
  /// What this worker would have all do: other than 0, nobody begins another step.
  std::function<int64_t()> vote;
};

class Feeding {
 public:
  /// Reads this worker's part of packed samples; collective. `say` gets a line about what takes
  /// long.
  Feeding(const Prepared& prepared, const FeedingOptions& options, const sync::Team& team,
          const std::function<void(const std::string&)>& say);
  ~Feeding();

  /// Where ranges may change: those of step `step`, by rank, and of all after it until more is
  /// said, at least `lag` steps before it begins. With a lag, of every step once and in their
  /// order.
  void announce(int64_t step, const std::vector<sync::GrainRange>& ranges);
  int lag() const { return store_ ? store_->lag() : 0; }

  sync::GrainSource& source() { return source_; }
  /// By all lanes since the beginning.
  Seconds waited() const { return loader_ ? loader_->waited() : Seconds{}; }
  /// To be called after every step, which took so long: one more thread if lanes wait. Returns a
  /// line about it, or "".
  std::string after_step(Seconds took);
  /// The orderly end; collective.
  void finish();
  data::StoreCounters counters() const;

 private:
  int first_threads(const data::LoaderOptions& loading) const;

  const Prepared& p_;
  size_t worker_;
  std::unique_ptr<data::Store> store_;
  std::optional<data::TrainLoader> loader_;  // none without grains
  plan::LoaderSource source_;
  int64_t steps_ = 0;  // since the threads were looked at
  Seconds time_;
  Seconds waited_;  // when they were
};

}  // namespace convoy::train
