#pragma once
// One sitting of a training, as train() runs it: its steps (trainer.cpp), what it tells while it
// runs (training_tells.cpp), and how it evaluates and saves (training_saves.cpp).

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "convoy/base/trace.hpp"
#include "convoy/optim/schedule.hpp"
#include "convoy/sync/model_servers.hpp"
#include "convoy/train/balancing.hpp"
#include "convoy/train/checkpoint.hpp"
#include "convoy/train/classifier.hpp"
#include "convoy/train/events.hpp"
#include "convoy/train/feeding.hpp"
#include "convoy/train/grouping.hpp"
#include "convoy/train/progress.hpp"
#include "convoy/train/trainer.hpp"

namespace convoy::train {

class Training {
 public:
  Training(Prepared& prepared, RunFolder* folder, const TrainOptions& options,
           const sync::Team& team);

  Summary run();

 private:
  // ---- steps (trainer.cpp)
  sync::StepperOptions stepping(sync::StepperOptions options);
  void loop();
  /// The modes that do not wait for everybody: from one evaluation or checkpoint to the next.
  void loop_without_waiting();
  /// Groups that do not wait for each other: likewise.
  void loop_in_groups();
  /// What a segment came to.
  struct Segment {
    int64_t last = 0;            ///< steps before this one were taken
    bool trained = false;        ///< something became an update
    std::function<void()> tell;  ///< after it
  };
  /// Runs the steps from the present one to before `last`, or as many as anybody wants.
  using RunSegment =
      std::function<Segment(Feeding& feeding, int64_t last, const SegmentCalls& calls)>;
  /// From one evaluation or checkpoint to the next. The stream's steps are of `batch` samples, the
  /// first one's number is `first`.
  void run_segments(int64_t batch, int64_t first, const RunSegment& run);
  /// Who steps together with this worker.
  const sync::Team& steppers() const;
  /// By what workers said of the step that was.
  void move_shares(const sync::StepResult& result, Feeding& feeding);
  bool limit_reached();
  /// What this worker would have all do after the step: 0 go on, 1 stop for the time is up, more:
  /// stop for a signal came. All hear the same in the step's result, and so stop together.
  int64_t own_vote() const;
  /// The step this sitting ends at, unless something stops it earlier.
  int64_t last_step() const;
  Seconds elapsed() const { return elapsed_before_ + (now() - started_); }

  // ---- telling (training_tells.cpp)
  void write_event(std::string_view event, const nlohmann::json& fields);
  void write_start();
  void report(const sync::StepResult& result, double rate);
  void tell(const std::string& line);
  void tell_segment(const sync::SegmentEnd& end);
  void tell_segment(const sync::GroupSegment& end);
  void tell_staleness(nlohmann::json event, const sync::Staleness& staleness);
  /// Damaged samples that were left out since the last time.
  void tell_bad();
  /// What any worker has left out; collective.
  void gather_bad();
  /// Once, when their size is found.
  void tell_buckets();
  /// Of all workers together; collective.
  void write_store(const data::StoreCounters& own);
  /// Before the first and after the last step that is traced; collective.
  void trace_steps();
  /// `what` is no longer a finite number.
  [[noreturn]] void stop_diverged(const char* what);
  /// Of the lanes' time in the steps so far.
  double waited_part() const;
  double images_per_second() const;

  // ---- evaluating and saving (training_saves.cpp)
  void resume(const Checkpoint& saved);
  /// Where worker 0 takes the training up, all do.
  void share_standing();
  void at_boundaries(int64_t before);
  /// The first step after which something else is due.
  int64_t next_boundary() const;
  void evaluate_now();
  /// Writes checkpoint "last" or "best"; collective, worker 0 writes.
  void save(const std::string& which);
  void write_checkpoint(const std::string& which);
  void finish();

  Prepared& p_;
  RunFolder* folder_;
  TrainOptions options_;
  const sync::Team& team_;
  const engine::Program& program_;
  const plan::Plan& plan_;
  int64_t samples_;
  Trace trace_;
  SlowDown slow_;
  std::unique_ptr<Grouping> groups_;  // null: all step together, or each by itself
  Classifier classifier_;
  std::optional<Balancing> balancing_;
  sync::Stepper stepper_;
  std::optional<EventLog> events_;
  Progress progress_;
  optim::ScheduleContext context_;
  int64_t total_steps_ = 0;
  Progression at_;
  std::optional<Checkpoint> saved_;
  int64_t vote_ = 0;
  bool buckets_told_ = false;
  bool trace_written_ = false;
  bool loop_over_ = false;
  Summary summary_;
  Seconds started_;
  Seconds elapsed_before_;
  Seconds training_time_;
  Seconds trained_before_;  // in segments that are over
  Seconds time_balancing_;  // spent on deciding about shares
  Seconds last_event_;
  Seconds told_waited_;  // for data, at the last event
  Standing standing_;
  double mean_loss_ = 0;
  int64_t steps_here_ = 0;
  int64_t evaluated_step_ = -1;
  int64_t saved_step_ = -1;
  double best_saved_ = -std::numeric_limits<double>::infinity();  ///< accuracy of best.safetensors
};

}  // namespace convoy::train
