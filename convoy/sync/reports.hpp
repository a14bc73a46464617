#pragma once
// What workers say about their last step, made fit to compute shares with.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/sync/predict/predictor.hpp"

namespace convoy::sync {

/// Of one worker, after a step.
struct WorkerReport {
  int64_t grains = 0;  ///< that it ran
  Seconds compute;     ///< for them; communication and waiting excluded
  Load load;           ///< read just now
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
