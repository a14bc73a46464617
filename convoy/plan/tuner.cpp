#include "convoy/plan/tuner.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::plan {
namespace {

constexpr double kTie = 1.01;
constexpr int64_t kTrialUpdates = 40;

class Tuner {
 public:
  Tuner(TuneTarget& target, const TuneOptions& options) : target_(target), o_(options) {
    trial_ = o_.trial.value > 0
                 ? o_.trial
                 : Seconds{static_cast<double>(kTrialUpdates) * target.update_time(1).value};
  }

  Tuned run() {
    cold_start();
    int groups = fastest_groups(target_);
    while (!over()) {
      const Seconds before = result_.searching;
      groups = look(groups);
      if (over()) break;
      const Seconds looked = result_.searching - before;
      train_on(looked);
    }
    result_.setting = best_;
    return result_;
  }

 private:
  bool over() const {
    const Seconds spent = result_.searching + result_.training;
    return result_.reached || result_.ended || (o_.most.value > 0 && spent >= o_.most);
  }

  void tell(const std::string& line) const {
    if (o_.tell) o_.tell(line);
  }

  /// From where it stands, and back there.
  double score(const TuneSetting& setting) {
    target_.keep();
    const TuneTarget::Outcome outcome = target_.train(setting, trial_);
    target_.go_back();
    result_.searching += outcome.took;
    result_.ended = result_.ended || outcome.ended;
    result_.trials.push_back({setting, outcome.loss, outcome.took, false});
    tell(fmt::format("trial   {}, momentum {:g}, learning rate {:g}: loss {:.4f}",
                     plural(setting.groups, "group"), setting.momentum, setting.learning_rate,
                     outcome.loss));
    return outcome.loss;
  }

  /// Large rates first: of those that learn, as good as the best within a hundredth.
  void cold_start() {
    TuneSetting setting{1, 0.9, o_.rates.front()};
    double least = std::numeric_limits<double>::infinity();
    for (const double rate : o_.rates) {
      if (over()) break;
      setting.learning_rate = rate;
      const double loss = score(setting);
      if (loss * kTie >= least) {
        if (std::isfinite(least)) break;  // it only gets slower from here
        continue;
      }
      least = loss;
      best_ = setting;
    }
    if (!std::isfinite(least) && !over()) {
      fail("with every learning rate from {} to {} the training diverged", o_.rates.front(),
           o_.rates.back());
    }
  }

  struct Found {
    TuneSetting setting;
    double loss = std::numeric_limits<double>::infinity();
  };

  /// Momenta × {the rate before, a tenth}; what is larger than what diverged is not tried.
  Found grid(int groups) {
    std::vector<TuneSetting> settings;
    for (const double rate : {best_.learning_rate, best_.learning_rate / 10}) {
      for (const double momentum : o_.momenta) settings.push_back({groups, momentum, rate});
    }
    std::optional<TuneSetting> diverged;
    Found found;
    for (const TuneSetting& s : settings) {
      if (over()) break;
      if (groups == 1 && s.momentum < 0) continue;  // that is for groups, which bring some
      if (diverged && s.momentum >= diverged->momentum &&
          s.learning_rate >= diverged->learning_rate) {
        continue;
      }
      const double loss = score(s);
      if (!std::isfinite(loss)) {
        diverged = s;
        continue;
      }
      // Of those as good as each other, the larger momentum or rate.
      const bool larger =
          s.learning_rate > found.setting.learning_rate ||
          (s.learning_rate == found.setting.learning_rate && s.momentum > found.setting.momentum);
      if (loss * kTie < found.loss || (loss < kTie * found.loss && larger)) found = {s, loss};
    }
    return found;
  }

  /// Returns how many groups it came to.
  int look(int groups) {
    const double least = *std::ranges::min_element(o_.momenta);
    for (;;) {
      const Found found = grid(groups);
      const bool too_many = !std::isfinite(found.loss) || found.setting.momentum <= least;
      if (too_many && groups > 1 && !over()) {
        groups = half(groups);
        tell(fmt::format("groups  {}: fewer, since the least momentum was the best", groups));
        continue;
      }
      if (std::isfinite(found.loss)) best_ = found.setting;
      for (Trial& t : result_.trials) t.chosen = t.chosen || t.setting == best_;
      tell(fmt::format("taken   {}, momentum {:g}, learning rate {:g}",
                       plural(best_.groups, "group"), best_.momentum, best_.learning_rate));
      return groups;
    }
  }

  /// The largest possible number that is not more than half.
  int half(int groups) const {
    int best = 1;
    for (const int g : target_.groups()) {
      if (g <= groups / 2) best = std::max(best, g);
    }
    return best;
  }

  /// So long that all looks together are no more than their share.
  void train_on(Seconds looked) {
    const double share = o_.search_share;
    const double owed = result_.searching.value * (1 - share) / share - result_.training.value;
    Seconds time{std::max(owed, looked.value * (1 - share) / share)};
    if (o_.most.value > 0) {
      time = std::min(time, o_.most - result_.searching - result_.training);
    }
    const TuneTarget::Outcome outcome = target_.train(best_, time);
    result_.training += outcome.took;
    result_.reached = outcome.reached;
    result_.ended = outcome.ended;
    if (!std::isfinite(outcome.loss)) {
      // What was right for a while is not any more.
      best_.learning_rate /= 10;
      tell(fmt::format("diverged; on with learning rate {:g}", best_.learning_rate));
    }
  }

  TuneTarget& target_;
  const TuneOptions& o_;
  Seconds trial_;
  TuneSetting best_;
  Tuned result_;
};

}  // namespace

int fastest_groups(const TuneTarget& target) {
  constexpr double kHardly = 1.1;
  const std::vector<int> all = target.groups();
  Seconds least = target.update_time(1);
  for (const int g : all) least = std::min(least, target.update_time(g));
  for (const int g : all) {
    if (target.update_time(g).value <= kHardly * least.value) return g;
  }
  return 1;
}

Tuned tune(TuneTarget& target, const TuneOptions& options) {
  check(!options.momenta.empty() && !options.rates.empty(), "there is something to try");
  check(options.search_share > 0 && options.search_share < 1, "a share is a part");
  return Tuner(target, options).run();
}

}  // namespace convoy::plan
