// The tuner, on a training whose course is a formula.

#include "convoy/plan/tuner.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/optim/asynchrony.hpp"

namespace convoy::plan {
namespace {

/// A training whose loss is a function of what is set; it writes down what is asked of it.
class Scripted final : public TuneTarget {
 public:
  using Loss = std::function<double(const TuneSetting& setting, Stretch stretch)>;
  Scripted(std::vector<int> groups, Loss loss)
      : groups_(std::move(groups)), loss_(std::move(loss)) {}

  std::vector<int> groups() const override { return groups_; }
  Seconds update_time(int groups) const override { return {1.0 / groups}; }
  Outcome train(const TuneSetting& s, Seconds time, Stretch stretch) override {
    log.push_back({s, stretch, at});
    Outcome outcome;
    outcome.loss = loss_(s, stretch);
    outcome.applied = s.measured ? applied : s.momentum;
    outcome.took = time;
    at += std::isfinite(outcome.loss) ? time.value : std::numeric_limits<double>::quiet_NaN();
    return outcome;
  }
  void keep() override { kept_ = at; }
  void go_back() override { at = kept_; }

  struct Asked {
    TuneSetting setting;
    Stretch stretch;
    double at;  ///< where the model stood
  };
  std::vector<Asked> log;
  double applied = 0.5;  ///< by the loop
  double at = 0;

  /// Of so many groups, in their order.
  std::vector<TuneSetting> trials(int groups) const {
    std::vector<TuneSetting> all;
    for (const Asked& a : log) {
      if (a.stretch == Stretch::trial && a.setting.groups == groups) all.push_back(a.setting);
    }
    return all;
  }

 private:
  std::vector<int> groups_;
  Loss loss_;
  double kept_ = 0;
};

constexpr double kDiverged = std::numeric_limits<double>::infinity();

TuneOptions ending_after(double seconds) {
  TuneOptions options;
  options.trial = {1};
  options.rates = {0.1, 0.01};
  options.most = {seconds};
  return options;
}

/// The distance to the minimum of a quadratic with curvatures from 0.5 to 50 that g groups train.
class Quadratic final : public TuneTarget {
 public:
  explicit Quadratic(double network) : network_(network) {}

  std::vector<int> groups() const override { return {1, 2, 4, 8, 16}; }
  /// 16 workers: computing is shared by those of a group, exchanging is not.
  Seconds update_time(int groups) const override {
    const double together = 16.0 / groups;
    return {(1 / together + (together > 1 ? network_ : 0)) / groups};
  }
  Outcome train(const TuneSetting& s, Seconds time, Stretch) override {
    const double updates = time.value / update_time(s.groups).value;
    double rate = 0;
    Outcome outcome;
    outcome.applied = s.measured ? optim::explicit_momentum(s.momentum, s.groups) : s.momentum;
    for (const double curvature : {0.5, 5.0, 50.0}) {
      rate = std::max(rate, optim::quadratic_rate(optim::implicit_momentum(s.groups),
                                                  outcome.applied, s.learning_rate * curvature));
    }
    outcome.took = time;
    if (rate > 1) return outcome;
    log_loss_ += updates * std::log(rate);
    if (log_loss_ < kGoal) {
      outcome.took = {time.value -
                      (kGoal - log_loss_) / std::log(rate) * -update_time(s.groups).value};
      outcome.reached = true;
    }
    outcome.loss = std::exp(std::max(log_loss_, -600.0));
    return outcome;
  }
  void keep() override { kept_ = log_loss_; }
  void go_back() override { log_loss_ = kept_; }

  double log_loss() const { return log_loss_; }
  static constexpr double kGoal = -40;

 private:
  double network_;
  double log_loss_ = 0;
  double kept_ = 0;
};

TEST(Tuner, StaysWithOneGroupWhereMoreAreNotFaster) {
  Quadratic target(0);
  EXPECT_EQ(fastest_groups(target), 1);
  const Tuned tuned = tune(target, {});
  EXPECT_TRUE(tuned.reached);
  EXPECT_EQ(tuned.setting.groups, 1);
}

TEST(Tuner, TakesGroupsWhereTheyAreWorthIt) {
  Quadratic target(0.5);
  EXPECT_GT(fastest_groups(target), 1);
  TuneOptions options;
  options.momenta = {-0.3, 0, 0.3, 0.6, 0.9};
  const Tuned tuned = tune(target, options);
  EXPECT_TRUE(tuned.reached);
  EXPECT_GT(tuned.setting.groups, 1);
  // Groups bring momentum of their own.
  EXPECT_LT(tuned.setting.momentum, 0.9);
}

TEST(Tuner, SearchesATenthOfTheTimeInTheLongRun) {
  Quadratic target(0.1);
  TuneOptions options;
  options.most = {2000};
  options.trial = {1};
  const Tuned tuned = tune(target, options);
  const double all = (tuned.searching + tuned.training).value;
  EXPECT_LE(tuned.searching.value, 0.11 * all + 60);
  EXPECT_FALSE(tuned.trials.empty());
}

TEST(Tuner, IsWithinItsShareWheneverAStretchEnds) {
  Scripted target({1, 4}, [](const TuneSetting& s, auto) { return 1 + s.learning_rate; });
  TuneOptions options = ending_after(1000);
  const Tuned tuned = tune(target, options);
  EXPECT_LE(tuned.searching.value, 0.1 * (tuned.searching + tuned.training).value);
}

TEST(Tuner, SaysIfNothingConverges) {
  Scripted target({1}, [](auto&, auto) { return kDiverged; });
  EXPECT_THROW(tune(target, {}), Error);
}

TEST(Tuner, LooksFurtherWhereLargeRatesLearnNothing) {
  Scripted target({1}, [](const TuneSetting& s, auto) {
    return s.learning_rate > 0.05 ? 2.3 : s.learning_rate > 0.005 ? 2.299 : 1.0;
  });
  TuneOptions options = ending_after(100);
  options.rates = {0.1, 0.01, 0.001};
  EXPECT_DOUBLE_EQ(tune(target, options).setting.learning_rate, 0.001);
}

TEST(Tuner, GoesBackToWhereAStretchBeganThatDiverged) {
  bool broken = false;
  Scripted target({1}, [&](const TuneSetting& s, TuneTarget::Stretch stretch) {
    if (stretch == TuneTarget::Stretch::training && s.learning_rate > 0.05) {
      broken = true;
      return kDiverged;
    }
    return 2 - s.learning_rate;
  });
  const Tuned tuned = tune(target, ending_after(1000));
  EXPECT_TRUE(broken);
  for (const Scripted::Asked& a : target.log) EXPECT_TRUE(std::isfinite(a.at));
  EXPECT_TRUE(std::isfinite(target.at));
  EXPECT_DOUBLE_EQ(tuned.setting.learning_rate, 0.01);
}

TEST(Tuner, TakesTheLoopWhereItIsAsGoodAndTriesNothingElseThen) {
  Scripted target({1, 4}, [](const TuneSetting& s, auto) {
    return (s.measured ? 1.005 : 1 + std::abs(s.momentum - 0.3)) +
           10 * std::abs(s.learning_rate - 0.1);
  });
  const Tuned tuned = tune(target, ending_after(500));
  EXPECT_TRUE(tuned.setting.measured);
  EXPECT_EQ(tuned.setting.groups, 4);
  const std::vector<TuneSetting> trials = target.trials(4);
  const auto first = std::ranges::find(trials, true, &TuneSetting::measured);
  EXPECT_GT(first - trials.begin(), 2);
  EXPECT_GT(trials.end() - first, 2);
  EXPECT_TRUE(std::all_of(first, trials.end(), [](const TuneSetting& s) { return s.measured; }));
}

TEST(Tuner, StaysWithTheMomentaWhereTheLoopIsWorse) {
  Scripted target({1, 4}, [](const TuneSetting& s, auto) {
    return s.measured ? 1.2 : 1 + std::abs(s.momentum - 0.3);
  });
  const Tuned tuned = tune(target, ending_after(1000));
  EXPECT_FALSE(tuned.setting.measured);
  EXPECT_DOUBLE_EQ(tuned.setting.momentum, 0.3);
  EXPECT_EQ(std::ranges::count(target.trials(4), true, &TuneSetting::measured), 1);
}

TEST(Tuner, TriesATenthOfTheRateAtFirstOnlyWhereTheRateIsTooLarge) {
  const auto least_rate = [](double best_momentum) {
    Scripted target({1, 4}, [=](const TuneSetting& s, auto) {
      return s.measured ? 2 : 1 + std::abs(s.momentum - best_momentum);
    });
    TuneOptions options = ending_after(1000);
    tune(target, options);
    // The first look's trials, up to the loop.
    double least = 1;
    for (const TuneSetting& s : target.trials(4)) {
      if (s.measured) break;
      least = std::min(least, s.learning_rate);
    }
    return least;
  };
  EXPECT_GT(least_rate(0.3), least_rate(0));
}

TEST(Tuner, TriesMomentaAgainIfTheLoopDiverges) {
  Scripted target({1, 4}, [](const TuneSetting& s, TuneTarget::Stretch stretch) {
    if (s.measured) return stretch == TuneTarget::Stretch::training ? kDiverged : 0.5;
    return 1 + std::abs(s.momentum - 0.3);
  });
  const Tuned tuned = tune(target, ending_after(1000));
  EXPECT_FALSE(tuned.setting.measured);
  EXPECT_TRUE(std::isfinite(target.at));
}

TEST(Tuner, HalvesTheGroupsWhereTheLoopComesToApplyTheLeastMomentum) {
  Scripted target({1, 2, 4, 8}, [](const TuneSetting& s, auto) { return s.measured ? 0.9 : 1.0; });
  target.applied = -0.1;
  EXPECT_EQ(tune(target, ending_after(500)).setting.groups, 1);
  target.applied = 0.1;
  EXPECT_EQ(tune(target, ending_after(500)).setting.groups, 8);
}

TEST(Tuner, TriesNothingLargerThanWhatDiverged) {
  Scripted target({1, 4}, [](const TuneSetting& s, auto) {
    return s.groups > 1 && s.momentum >= 0.3 ? kDiverged : 1.0;
  });
  tune(target, ending_after(100));
  for (const TuneSetting& s : target.trials(4)) {
    EXPECT_TRUE(s.measured || s.momentum <= 0.3 || s.learning_rate < 0.1);
  }
}

TEST(Tuner, TakesTheLargerOfThoseWithinAHundredthOfTheBest) {
  // Each within a hundredth of its neighbour, but not all of the best.
  Scripted target({1, 4}, [](const TuneSetting& s, auto) {
    return s.measured ? 2.0 : (1 + 0.02 * s.momentum) * (s.learning_rate < 0.1 ? 2 : 1);
  });
  EXPECT_DOUBLE_EQ(tune(target, ending_after(100)).setting.momentum, 0.3);
}

}  // namespace
}  // namespace convoy::plan
