#include "convoy/plan/tuner.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::plan {
namespace {

constexpr double kTie = 1.01;

class Tuner {
 public:
  Tuner(TuneTarget& target, const TuneOptions& options) : target_(target), o_(options) {}

  Tuned run() {
    cold_start();
    int groups = fastest_groups(target_);
    if (groups > 1 && !over()) warm_up();
    while (!over()) {
      const Seconds before = result_.searching;
      groups = look(groups);
      if (!over()) train_on(result_.searching - before);
    }
    result_.setting = best_;
    return result_;
  }

 private:
  using Stretch = TuneTarget::Stretch;

  struct Found {
    TuneSetting setting;
    double loss = std::numeric_limits<double>::infinity();
    double applied = 0;
    bool learns() const { return std::isfinite(loss); }
  };

  bool over() const {
    const Seconds spent = result_.searching + result_.training;
    return result_.reached || result_.ended || (o_.most.value > 0 && spent >= o_.most);
  }

  void tell(const std::string& line) const {
    if (o_.tell) o_.tell(line);
  }

  /// Long enough to see what a setting does, and for gradients of the first turns to be few.
  Seconds trial_time(int groups) const {
    constexpr int kUpdates = 20;
    constexpr int kTurns = 8;
    if (o_.trial.value > 0) return o_.trial;
    return {(kUpdates + kTurns * groups) * target_.update_time(groups).value};
  }

  /// From where it stands, and back there.
  Found score(const TuneSetting& setting) {
    target_.keep();
    const TuneTarget::Outcome outcome =
        target_.train(setting, trial_time(setting.groups), Stretch::trial);
    target_.go_back();
    result_.searching += outcome.took;
    result_.ended = result_.ended || outcome.ended;
    result_.trials.push_back({setting, outcome.loss, outcome.took, false});
    tell(fmt::format(
        "trial   {}: loss {:.4f}{}", describe(setting), outcome.loss,
        setting.measured ? fmt::format(", came to apply {:.2f}", outcome.applied) : ""));
    return {setting, outcome.loss, outcome.applied};
  }

  /// Large rates first; when one is clearly worse than one before, it only gets slower from there.
  void cold_start() {
    Found best;
    for (const double rate : o_.rates) {
      if (over()) break;
      const Found tried = score({1, o_.total, rate});
      if (best.learns() && tried.loss > kTie * best.loss) break;
      if (tried.loss * kTie < best.loss) best = tried;
    }
    if (!best.learns() && !over()) {
      fail("with every learning rate from {} to {} the training diverged", o_.rates.front(),
           o_.rates.back());
    }
    best_ = best.setting;
  }

  /// Untrained, all settings look alike, and groups diverge that later do not.
  void warm_up() {
    constexpr double kTimes = 3;
    tell(fmt::format("warm-up {}", describe(best_)));
    train_for({kTimes * result_.searching.value});
  }

  /// Of those within a hundredth of the best, the one with the largest rate, then momentum.
  static Found best_of(const std::vector<Found>& tried) {
    const Found none;
    const auto least = std::ranges::min_element(tried, {}, &Found::loss);
    if (least == tried.end() || !least->learns()) return none;
    const Found* best = &*least;
    for (const Found& f : tried) {
      const auto size = [](const Found& of) {
        return std::pair(of.setting.learning_rate, of.setting.momentum);
      };
      if (f.loss <= kTie * least->loss && size(f) > size(*best)) best = &f;
    }
    return *best;
  }

  /// Momenta in this order, until it clearly gets worse; none that is larger than one that
  /// diverged.
  void try_momenta(int groups, double rate, const std::vector<double>& momenta,
                   std::vector<Found>& tried) {
    double least = std::numeric_limits<double>::infinity();
    for (const double momentum : momenta) {
      if (over()) return;
      if (groups == 1 && momentum < 0) continue;  // that is for groups, which bring some
      const auto smaller_diverged = [&](const Found& f) {
        return !f.learns() && momentum >= f.setting.momentum && rate >= f.setting.learning_rate;
      };
      if (std::ranges::any_of(tried, smaller_diverged)) continue;
      tried.push_back(score({groups, momentum, rate}));
      if (tried.back().learns() && tried.back().loss > kTie * least) return;
      least = std::min(least, tried.back().loss);
    }
  }

  std::vector<double> rates() const { return {best_.learning_rate, best_.learning_rate / 10}; }

  /// A tenth of the rate goes with much momentum, if at all. In the first look it is left out
  /// unless the rate is too large: early on a loss falls fast with any small rate, which says
  /// nothing about later.
  Found grid(int groups) {
    std::vector<double> momenta = o_.momenta;
    std::ranges::sort(momenta);
    std::vector<Found> tried;
    try_momenta(groups, rates().front(), momenta, tried);
    const Found best = best_of(tried);
    if (looks_ == 0 && best.learns() && best.setting.momentum > momenta.front()) return best;
    std::ranges::reverse(momenta);
    try_momenta(groups, rates().back(), momenta, tried);
    return best_of(tried);
  }

  Found loop(int groups) {
    std::vector<Found> tried;
    for (const double rate : rates()) {
      if (over() || (looks_ == 0 && !tried.empty() && tried.back().learns())) break;
      tried.push_back(score({groups, o_.total, rate, true}));
    }
    return best_of(tried);
  }

  /// By the loop, the grid, or both to find out which.
  Found best_with(int groups) {
    if (groups == 1 || way_ == Way::grid) return grid(groups);
    if (way_ == Way::loop) return loop(groups);
    const Found fixed = grid(groups);
    if (over()) return fixed;
    const Found measured = loop(groups);
    if (!fixed.learns() && !measured.learns()) return fixed;
    const bool as_good = measured.loss <= kTie * fixed.loss;
    way_ = as_good ? Way::loop : Way::grid;
    tell(fmt::format("momentum {}: a loss of {:.4f} against {:.4f} by the best of the momenta",
                     as_good ? "by the loop from now on" : "by trials from now on", measured.loss,
                     fixed.loss));
    return as_good ? measured : fixed;
  }

  /// Empty: they are not.
  std::string why_too_many(const Found& found) const {
    const double least = *std::ranges::min_element(o_.momenta);
    if (!found.learns()) return "everything diverged";
    if (found.applied > least) return "";
    return found.setting.measured
               ? fmt::format("the loop came to apply {:.2f}, no more than the least momentum",
                             found.applied)
               : "the least momentum was the best";
  }

  /// Returns how many groups it came to.
  int look(int groups) {
    Found found = best_with(groups);
    for (std::string why = why_too_many(found); groups > 1 && !over() && !why.empty();
         why = why_too_many(found)) {
      groups = half(groups);
      tell(fmt::format("groups  {}: fewer, since {}", groups, why));
      found = best_with(groups);
    }
    if (found.learns()) best_ = found.setting;
    for (Trial& t : result_.trials) t.chosen = t.chosen || t.setting == best_;
    tell(fmt::format("taken   {}", describe(best_)));
    ++looks_;
    return groups;
  }

  /// The largest possible number that is not more than half.
  int half(int groups) const {
    int best = 1;
    for (const int g : target_.groups()) {
      if (g <= groups / 2) best = std::max(best, g);
    }
    return best;
  }

  /// So long that all looks, with the next one, are no more than their share.
  void train_on(Seconds looked) {
    const double share = o_.search_share;
    const Seconds looks = result_.searching + looked;
    train_for({looks.value * (1 - share) / share - result_.training.value});
  }

  void train_for(Seconds time) {
    if (o_.most.value > 0) {
      time = std::min(time, o_.most - result_.searching - result_.training);
    }
    target_.keep();
    const TuneTarget::Outcome outcome = target_.train(best_, time, Stretch::training);
    result_.training += outcome.took;
    result_.reached = outcome.reached;
    result_.ended = outcome.ended;
    if (std::isfinite(outcome.loss)) return;
    target_.go_back();
    best_.learning_rate /= 10;
    if (best_.measured) way_ = Way::grid;  // the loop was good for a trial only
    tell(fmt::format("diverged; back to before, on with learning rate {:g}{}", best_.learning_rate,
                     best_.measured ? ", momentum by trials" : ""));
  }

  enum class Way { open, loop, grid };

  TuneTarget& target_;
  const TuneOptions& o_;
  Way way_ = Way::open;
  int looks_ = 0;
  TuneSetting best_;
  Tuned result_;
};

}  // namespace

std::string describe(const TuneSetting& setting) {
  return fmt::format("{}, momentum {}{:g}, learning rate {:g}", plural(setting.groups, "group"),
                     setting.measured ? "measured, towards " : "", setting.momentum,
                     setting.learning_rate);
}

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
