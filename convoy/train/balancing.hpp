#pragma once
// Shares that follow speeds, in a training: what each worker can take by its memory, what it says
// about its machine, whose shares are decided when, and what a user sees of it.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "convoy/base/load_meter.hpp"
#include "convoy/base/trace.hpp"
#include "convoy/sync/balancer.hpp"
#include "convoy/sync/replay.hpp"
#include "convoy/sync/stepper.hpp"
#include "convoy/sync/team.hpp"
#include "convoy/train/trainer.hpp"

namespace convoy::train {

/// Makes a worker as slow as a trace says, if there is one. What is measured then is emulated.
class SlowDown {
 public:
  /// `what` as sync::Replay reads it; empty: nothing is slowed down.
  SlowDown(const Prepared& prepared, const sync::Team& team, const std::string& what);

  void prepare(sync::StepperOptions& options);
  std::string describe() const { return replay_ ? replay_->describe() : ""; }
  /// What is visible of this worker's machine before a step, if it is emulated.
  std::optional<sync::Load> load(int64_t step) const;

 private:
  std::optional<sync::Replay> replay_;
  int worker_;
  std::vector<sync::Brake> brakes_;  // by lane
};

class Balancing {
 public:
  /// Collective: everybody hears how many grains fit into the others' memory. `slow`, which must
  /// outlive it: loads as in a trace, instead of this machine's.
  Balancing(const Prepared& prepared, const sync::Team& team, const SlowDown& slow);

  /// What a stepper needs to know for shares to change.
  void prepare(sync::StepperOptions& options);
  /// How many steps ahead of the one in use shares must be known.
  void set_lag(int lag);

  /// A step was run. Returns what all workers run in the step after the next `lag`, by rank.
  const std::vector<int64_t>& after_step(const sync::StepResult& result);
  /// What all workers run in the next step.
  const std::vector<int64_t>& next() const { return coming_.front(); }

  /// For the event of a step: shares, speeds, times and who waited since the last one.
  nlohmann::json event();
  /// "shares 11+5, worker 1 slow: throttled", for the line of progress.
  std::string summary() const;
  std::vector<std::string> take_messages() { return balancer_->take_messages(); }
  void trace(Trace& trace) const;

 private:
  Bytes memory_of(int64_t share) const;
  int64_t room_for(Bytes available) const;
  void look(int64_t step, sync::WorkerReport& report);

  const Prepared& p_;
  const sync::Team& team_;
  const SlowDown& slow_;
  int64_t grains_;
  std::vector<Bytes> memory_;  // by share, of this worker
  int64_t largest_ = 0;        // share that this worker had
  std::vector<int64_t> most_;  // by rank
  LoadMeter meter_;
  std::optional<sync::Balancer> balancer_;
  std::deque<std::vector<int64_t>> coming_;  // shares of the steps from the next one on
  std::vector<Seconds> waited_;              // by rank, since the last event
  int64_t steps_ = 0;                        // since the last event
  int64_t told_moves_ = 0;
};

/// True where shares follow speeds: several workers, and a job that leaves them open.
bool balances(const Prepared& prepared, const sync::Team& team);

}  // namespace convoy::train
