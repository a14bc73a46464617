#pragma once
// What workers say about their last step, made fit to compute shares with.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/sync/predict/predictor.hpp"

namespace convoy::sync {

/// Of one worker, after a step. Plain bytes: it is sent as it is.
struct WorkerReport {
  int64_t grains = 0;    ///< that it ran
  Seconds compute;       ///< for them, by all its lanes; communication and waiting excluded
  Load load{};           ///< read just now
  Seconds data{};        ///< that its lanes waited for samples, on average
  Seconds weights{};     ///< … for weights of other hosts
  double throttled = 0;  ///< part of the time in which its CPU quota stopped it
  double others = 0;     ///< part of its cores' time that other programs took
  /// Grains that it could run with the memory it has now.
  int64_t most = std::numeric_limits<int64_t>::max();
};

/// Remembers who reported nonsense: a time that is zero, negative or no number for grains that were
/// run, or a negative number of grains. Such a report is ignored and the worker named, once; its
/// speed is not known, which is an equal share (proportional_shares), until it reports sense again.
/// A worker that ran no grains has no speed to report, which is no nonsense.
class ReportReader {
 public:
  explicit ReportReader(int workers) : ignored_(static_cast<size_t>(workers)) {}

  struct Read {
    /// Grains per second by worker; none where there is nothing to learn from.
    std::vector<std::optional<double>> speeds;
    /// Workers whose report was ignored, ascending.
    std::vector<int> ignored;
    /// What to tell the user: who is ignored from now on and why, who recovered.
    std::vector<std::string> messages;
  };
  Read read(std::span<const WorkerReport> reports);

  /// True from a report that was ignored to the next that was not.
  bool ignored(int worker) const { return ignored_[static_cast<size_t>(worker)]; }

 private:
  std::vector<bool> ignored_;
};

}  // namespace convoy::sync
