#pragma once
// How fast will a worker be in the next step? Asked before every step, answered in microseconds.
//
//   predict(load read just now) ──► speed of the coming step     shares are made of it
//   … the step runs …
//   observe(speed it had, load read before it)                   the predictor learns from it
//
// Speeds are grains per second, or any other unit: predictors do not know. All are deterministic:
// workers that are told the same predict the same bits.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace convoy::sync {

/// What a worker could have of its machine when it looked: parts of the whole, 1 when all is free
/// or when nothing is known.
struct Load {
  double cpu = 1;
  double memory = 1;
};

/// A step that was: its speed, and the load that was read before it began.
struct Observation {
  double speed = 0;
  Load load;
};

class SpeedPredictor {
 public:
  virtual ~SpeedPredictor() = default;

  virtual std::string_view name() const = 0;
  /// Of the step that begins now; 0 as long as nothing was observed.
  virtual double predict(const Load& now) const = 0;
  /// Learns from the step that ended. Takes bounded time, however many came before. A speed that
  /// is not a positive number is left out, as if the step had not been.
  virtual void observe(const Observation& step) = 0;
  /// The same predictor with all that it learned and saw.
  virtual std::unique_ptr<SpeedPredictor> clone() const = 0;
};

/// True for what can be learned from.
inline bool sane_speed(double speed) {
  return std::isfinite(speed) && speed > 0;
}

/// A load with what is not a number, or outside of 0 … 1, put right.
inline Load sane_load(Load load) {
  load.cpu = std::isfinite(load.cpu) ? std::clamp(load.cpu, 0.0, 1.0) : 1.0;
  load.memory = std::isfinite(load.memory) ? std::clamp(load.memory, 0.0, 1.0) : 1.0;
  return load;
}

/// The speeds that a worker had, so that a model gone astray predicts none beyond them.
class SeenSpeeds {
 public:
  void add(double speed) {
    least_ = std::min(least_, speed);
    most_ = std::max(most_, speed);
  }
  /// The nearest to `speed` that is not far outside of what was seen.
  double within(double speed) const { return std::clamp(speed, 0.9 * least_, 1.1 * most_); }

 private:
  double least_ = std::numeric_limits<double>::max();
  double most_ = 0;
};

/// last, average, arima, recurrent, narx, and auto, which picks among them.
const std::vector<std::string>& predictor_names();
/// By name; refuses one that there is not, with the nearest.
std::unique_ptr<SpeedPredictor> make_predictor(std::string_view name);

}  // namespace convoy::sync
