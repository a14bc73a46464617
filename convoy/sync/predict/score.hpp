#pragma once
// How good predictors are on a trace: error, cost, and what the error costs a step.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convoy/sync/predict/traces.hpp"

namespace convoy::sync {

struct PredictorScore {
  std::string predictor;
  double rmse = 0;          ///< over all steps of all workers but each one's first
  double to_last = 0;       ///< this over the last value's
  double microseconds = 0;  ///< for one prediction and what is learned from how it came out
  /// Steps with shares in proportion to predicted speeds take Σ max_i x_i / v_i; with the best
  /// shares for the speeds that came, so much less, as a part of the latter.
  double step_loss = 0;
  /// The same with SteadyShares, and the part of steps in which those moved.
  double steady_loss = 0;
  double moved = 0;
};

struct TraceScore {
  std::string trace;
  bool stand_in = false;
  bool made_up = false;
  int64_t workers = 0;
  int64_t steps = 0;      ///< of all workers together
  int64_t group = 0;      ///< workers that step together
  double equal_loss = 0;  ///< step_loss of equal shares: what balancing can gain
  std::vector<PredictorScore> predictors;
};

struct ScoreOptions {
  int64_t group = 4;     ///< workers that step together; fewer if the trace has fewer
  int64_t grains = 256;  ///< of a step
  /// The first worker is left out; NARX starts with what it learned from that one's steps.
  bool warm = false;
};

/// Tries these predictors on each worker of the trace. Groups are of workers that follow each other
/// in the trace, their steps paired by number.
TraceScore score(const Trace& trace, std::span<const std::string> predictors,
                 const ScoreOptions& options);

}  // namespace convoy::sync
