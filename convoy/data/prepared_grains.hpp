#pragma once
// The books of a loader: which grain is to be prepared next, and where those are that were.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "convoy/base/memory.hpp"
#include "convoy/data/holders.hpp"

namespace convoy::data {

/// Room for one grain.
struct GrainSlot {
  AlignedBuffer inputs;
  std::vector<int32_t> labels;
};

/// A grain of the training stream.
struct GrainPlace {
  int64_t step = 0;
  int64_t grain = 0;  ///< of the batch
  bool operator==(const GrainPlace&) const = default;
};

/// Which grains are wanted may change from any step on that no lane has begun. What later steps
/// want is then foreseen by the last range that was given, or (`announced`) not at all.
///
/// Grains are prepared step by step, and those of a step in the order in which `lanes` lanes ask
/// for them if each has an equal part of them. As many grains are prepared or held as make up
/// ahead + 1 batches of the largest share among the steps that are under way and the next one. As
/// many slots are kept, and when shares have become smaller a few more, so that a share that goes
/// up and down by a grain or by a quarter needs no new memory.
///
/// Not thread-safe.
class PreparedGrains {
 public:
  struct Options {
    int64_t grains = 0;  ///< of a batch
    int64_t first_step = 0;
    GrainRange range;  ///< from the first step on; empty with `announced`
    int ahead = 1;
    int lanes = 1;
    bool announced = false;
  };
  /// A grain that somebody fills.
  struct Claim {
    GrainPlace place;
    std::unique_ptr<GrainSlot> slot;  ///< null: to be made by who fills it
    int64_t number = 0;
  };

  explicit PreparedGrains(const Options& options);

  /// From `step` on these grains are wanted. Of those that were prepared, the ones that are wanted
  /// still stay. `announced`: of one step after another.
  void set_range(int64_t step, GrainRange range);

  /// The earliest grain that nobody has filled, if there is one and room for it.
  std::optional<Claim> claim();
  /// It is ready; or, if it is not wanted any more, its slot is free.
  void filled(Claim claim);

  /// For a lane: null until it is ready; from then on it is held until it is released.
  const GrainSlot* get(GrainPlace place);
  void release(GrainPlace place);

  /// For messages: the oldest grain, if it is ready or held and thereby keeps this one from being
  /// filled.
  std::optional<GrainPlace> what_holds_up(GrainPlace place);
  /// Slots that there are, in use or not.
  int64_t slots() const { return used_ + static_cast<int64_t>(free_.size()); }

 private:
  enum class State { missing, filling, ready, held, released };
  struct Entry {
    State state = State::missing;
    int64_t claim = 0;  // by which it is being filled
    std::unique_ptr<GrainSlot> slot;
  };
  struct Step {
    GrainRange range;
    std::vector<Entry> entries;  // by grain of the range
    std::vector<int64_t> order;  // of these, as lanes ask for them
    int64_t missing = 0;
    int64_t unreleased = 0;
  };

  Step make_step(GrainRange range) const;
  void change_range(Step& step, GrainRange range);
  Step& at(int64_t step) { return steps_[static_cast<size_t>(step - oldest_)]; }
  Entry* find(GrainPlace place);  // null: not wanted, or not thought of yet
  void give_back(std::unique_ptr<GrainSlot> slot);
  void close_steps();
  void free_surplus();
  int64_t limit() const;
  int64_t batches() const { return options_.ahead + 1; }
  int64_t end() const { return oldest_ + static_cast<int64_t>(steps_.size()); }

  const Options options_;
  GrainRange range_;        // of the step named last and those after it
  int64_t named_;           // the last step that was given a range
  int64_t oldest_;          // step that is not over
  std::deque<Step> steps_;  // from the oldest to the one named last at least
  std::vector<std::unique_ptr<GrainSlot>> free_;
  int64_t used_ = 0;  // slots that hold a grain or are being filled
  int64_t claims_ = 0;
};

}  // namespace convoy::data
