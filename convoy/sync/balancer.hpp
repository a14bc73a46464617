#pragma once
// The share manager (LB-BSP): after each step it hears from every worker how fast it was and what
// its machine has to give now, and says how many grains each gets next.
//
//   reports ──► speeds            what is nonsense is left out, and its worker named
//           ──► predictors        one for each worker: how fast will it be?
//           ──► shares            all finish together; they move only where that is worth it
//
// It is no process of its own: every worker has one and tells it the same, so all decide alike, and
// the answer takes no message. The reports travel with the last gradients of a step, which
// everybody has to wait for anyway.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/sync/predict/predictor.hpp"
#include "convoy/sync/profile_fit.hpp"
#include "convoy/sync/reports.hpp"
#include "convoy/sync/share_feedback.hpp"
#include "convoy/sync/shares.hpp"
#include "convoy/sync/steady_shares.hpp"

namespace convoy::sync {

struct BalanceOptions {
  std::string predictor = "auto";  ///< one of predictor_names()
  /// From predicted speeds, time being proportional to grains; from predicted speeds and each
  /// worker's measured profile; or by trying, without a model of anybody's speed.
  enum class Solver { proportional, profile, feedback };
  Solver solver = Solver::proportional;
  std::vector<int64_t> lanes;  ///< of each worker
};

/// Why a worker is the slowest.
enum class Cause { computing, throttled, other_programs, data, network };
std::string to_string(Cause cause);

class Balancer {
 public:
  /// Starts with these shares; workers may get at most what `bounds` say.
  Balancer(std::vector<int64_t> shares, std::vector<ShareBounds> bounds,
           const BalanceOptions& options);

  Balancer(const Balancer&) = delete;
  Balancer& operator=(const Balancer&) = delete;

  /// A step was run with shares `ran`. True if shares() are others now.
  bool after_step(std::span<const int64_t> ran, std::span<const WorkerReport> reports);
  /// By worker, for the next step.
  const std::vector<int64_t>& shares() const { return shares_; }
  int64_t moves() const { return moves_; }

  /// What is known of a worker, for showing.
  struct Standing {
    double speed = 0;   ///< grains per second in the last step; 0: it ran none
    Seconds expected;   ///< for its grains in the next step; 0: not known yet
    Seconds took;       ///< for its grains in the last step
    Seconds predicted;  ///< what was expected of that
    Seconds waited;     ///< for the slowest in the last step
    Cause cause = Cause::computing;
  };
  const std::vector<Standing>& standings() const { return standings_; }
  /// The one with the lowest speed, if one is slower than the fastest by more than a tenth.
  std::optional<int> slowest() const;

  /// What a user should know, since the last call: nonsense, recovery, lack of memory.
  std::vector<std::string> take_messages();

 private:
  std::vector<ShareBounds> bounds_now(std::span<const WorkerReport> reports);
  std::vector<double> predicted(std::span<const WorkerReport> reports) const;
  void learn(std::span<const WorkerReport> reports, const ReportReader::Read& read);
  void show(std::span<const WorkerReport> reports, const ReportReader::Read& read);
  void decide(std::span<const WorkerReport> reports, const ReportReader::Read& read);
  void tell_clamped(const Shares& shares);
  int64_t grains() const;

  BalanceOptions options_;
  std::vector<int64_t> shares_;
  std::vector<ShareBounds> bounds_;
  ReportReader reader_;
  std::vector<std::unique_ptr<SpeedPredictor>> predictors_;  // by worker
  std::vector<ProfileFit> profiles_;                         // by worker
  std::vector<Load> loads_;                                  // read before the last step
  std::vector<int64_t> idle_;                                // steps without grains, by worker
  std::vector<int64_t> probe_after_;  // so many of them it gets one, to see how fast it is now
  SteadyShares steady_;
  std::optional<ShareFeedback> feedback_;
  std::vector<Standing> standings_;
  std::vector<std::string> messages_;
  std::vector<bool> clamped_;  // and told so
  int64_t steps_ = 0;
  int64_t moves_ = 0;
};

}  // namespace convoy::sync
