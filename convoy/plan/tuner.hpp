#pragma once
// Finds groups, momentum and learning rate while training (Omnivore's optimizer): short trials from
// the same checkpoint, compared after equal time; what is chosen trains on until the next look.
//
//   cold start   one group, momentum 0.9: the learning rate, from large to small
//   groups       the fewest that give nearly the most updates by prediction; if there are several,
//                first a warm-up with one, three times as long as the cold start, since untrained
//                all settings look alike
//   a look       momenta × two learning rates (the first time with the larger, unless that is too
//                large), until it gets worse, and what is larger than what diverged left out; while
//                the least momentum is the best and there are several groups, half as many
//   train        so long that the looks, with the next one, are a tenth of it all; then look again,
//                from there. If it diverged: back to where the stretch began, with a tenth of the
//                learning rate
//
// Of settings as good as each other within a hundredth, the larger is taken.
//
// Servers can find the momentum themselves, by measuring (optim::MomentumLoop). The first look with
// several groups tries that beside the momenta; if it is as good as the best of them, later looks
// try nothing else, and are a fifth as long. Then there are too many groups where the loop has come
// to apply the least momentum or less. If training on with it diverges, momenta are tried again.
//
// Omnivore doubles groups from one on and leaves out pairs above the best before, until updates
// come no faster. Here predictions say where that is, so that the search begins there, below one
// group's 0.9, above which nothing is tried anyway.

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
  double momentum = 0.9;  ///< applied by the servers
  double learning_rate = 0.01;
  bool measured = false;  ///< servers apply what brings the momentum in force to `momentum`
  bool operator==(const TuneSetting&) const = default;
};

/// "8 groups, momentum 0.3, learning rate 0.01".
std::string describe(const TuneSetting& setting);

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
    double applied = 0;                                     ///< momentum, in the end
    Seconds took;
  };
  enum class Stretch {
    trial,     ///< undone afterwards; only the loss is wanted
    training,  ///< it stops at the target
  };
  virtual Outcome train(const TuneSetting& setting, Seconds time, Stretch stretch) = 0;
  /// Keeps where it stands, and goes back there. Time goes on.
  virtual void keep() = 0;
  virtual void go_back() = 0;
};

struct TuneOptions {
  std::vector<double> momenta = {0, 0.3, 0.6, 0.9};
  std::vector<double> rates = {0.1, 0.01, 0.001, 0.0001};  ///< of the cold start
  double total = 0.9;         ///< momentum of the cold start, and that the loop is to bring about
  Seconds trial;              ///< least time of one trial; 0: twenty updates and eight turns
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
