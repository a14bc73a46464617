#pragma once
// The end of a network (engine::Tail) computed by others than lanes: what a Stepper knows of it.
// Grains go in rounds: round r takes the r-th grain of every lane of every worker. Lanes wait for
// their round; the last one of a worker drives it, and the others help with its products. A worker
// without grains in a round takes part all the same, in finish().

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "convoy/engine/program.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/gradient_tree.hpp"

namespace convoy::sync {

class TailPart {
 public:
  virtual ~TailPart();

  /// A step begins. `lanes`: by worker, the grains of each of its lanes.
  void begin(int64_t step, double learning_rate, std::vector<std::vector<GrainRange>> lanes);
  /// A lane of this worker has its next grain ready (GrainRun::handover).
  void handover(const float* rows, const int32_t* labels, int64_t grain,
                engine::GrainResult& result, float* gradient);
  /// A lane of this worker cannot go on: those that wait for it throw the same.
  void give_up(std::exception_ptr error);
  /// The worker's lanes are done: takes part in the rounds that are left.
  void finish();

  /// Applies the step's gradients; without it they are dropped. Workers of one host share their
  /// arena, and meet afterwards if that says so.
  virtual void update(const optim::StepContext& context) = 0;
  virtual bool meets_after_update() const = 0;
  /// Waits until nothing of an update is under way.
  virtual void settle() {}
  /// Brings the tail's weights to every worker and, with `states`, the optimizer's state. Workers
  /// of one host meet afterwards.
  virtual void collect(bool states) = 0;

 protected:
  struct Place {
    int64_t grain = 0;
    int worker = 0;  ///< among members()
    int lane = 0;
  };
  /// What a lane has brought.
  struct Brought {
    const float* rows;
    const int32_t* labels;
    engine::GrainResult* result;
    float* gradient;
    int64_t grain;
  };

  /// The workers that take part in the same rounds, and this one's place among them.
  TailPart(std::vector<int> members, int own) : members_(std::move(members)), own_(own) {}

  virtual void begin_step() = 0;
  /// One round. What this worker's lanes have brought: found by grain.
  virtual void run_round(const std::vector<Place>& places) = 0;

  int place() const { return own_; }
  int members() const { return static_cast<int>(members_.size()); }
  int64_t step() const { return step_; }
  double learning_rate() const { return learning_rate_; }
  bool last_round() const { return round_ + 1 == rounds_; }
  const Brought& brought(int64_t grain) const;
  /// Cuts [0, count) among the driver and the lanes that wait; nothing may depend on the cut.
  void in_parallel(int64_t count, const std::function<void(int64_t begin, int64_t end)>& work);

 private:
  struct Work;

  std::vector<Place> places(int64_t round) const;
  size_t own_lanes(int64_t round) const;
  void drive();

  std::vector<int> members_;
  int own_;
  int64_t step_ = 0;
  double learning_rate_ = 0;
  std::vector<std::vector<GrainRange>> lanes_;
  int64_t round_ = 0;
  int64_t rounds_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Brought> waiting_;
  size_t expected_ = 0;  // lanes of this worker in this round
  uint64_t done_rounds_ = 0;
  std::exception_ptr error_;
  std::shared_ptr<Work> work_;  // that waiting lanes may help with
};

}  // namespace convoy::sync
