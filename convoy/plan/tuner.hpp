#pragma once
// Finds groups, momentum and learning rate while training (Omnivore's optimizer): short trials from
// the same checkpoint, compared after equal time; what is chosen trains on until the next look.
//
//   cold start   one group, momentum 0.9: the learning rate, from large to small
//   groups       the fewest that give nearly the most updates by prediction
//   a look       momenta × two learning rates; while the least momentum is the best and there are
//                several groups, half as many, and look again
//   train        ten times as long as the look took at least; then look again, from there

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy::plan {

struct TuneSetting {
  int groups = 1;
  double momentum = 0.9;
  double learning_rate = 0.01;
  bool operator==(const TuneSetting&) const = default;
};

/// What is tuned.
class TuneTarget {
 public:
  virtual ~TuneTarget() = default;
  /// Numbers of groups that are possible, ascending, 1 first.
  virtual std::vector<int> groups() const = 0;
  /// Predicted time between updates.
  virtual Seconds update_time(int groups) const = 0;
  /// Trains for so long from where it stands.
  struct Outcome {
    double loss = std::numeric_limits<double>::infinity();  ///< lately; infinite: it diverged
    bool reached = false;                                   ///< the target; it stopped there
    bool ended = false;                                     ///< it cannot go on, whatever is set
    Seconds took;
  };
  virtual Outcome train(const TuneSetting& setting, Seconds time) = 0;
  /// Keeps where it stands, and goes back there. Time goes on.
  virtual void keep() = 0;
  virtual void go_back() = 0;
};

struct TuneOptions {
  std::vector<double> momenta = {0, 0.3, 0.6, 0.9};
  std::vector<double> rates = {0.1, 0.01, 0.001, 0.0001};  ///< of the cold start
  Seconds trial;              ///< least time of one trial; 0: forty updates of one group
  double search_share = 0.1;  ///< of all the time
  Seconds most;               ///< of everything; 0: until the target
  std::function<void(const std::string& line)> tell = nullptr;
};

struct Trial {
  TuneSetting setting;
  double loss = 0;
  Seconds took;
  bool chosen = false;
};

struct Tuned {
  TuneSetting setting;        ///< in the end
  std::vector<Trial> trials;  ///< in their order
  Seconds searching;
  Seconds training;
  bool reached = false;
  bool ended = false;  ///< the training came to its end before the target
};

/// The fewest groups whose updates come within a tenth as fast as the fastest.
int fastest_groups(const TuneTarget& target);

Tuned tune(TuneTarget& target, const TuneOptions& options);

}  // namespace convoy::plan
