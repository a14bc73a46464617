// The tuner, on a training whose course is a formula.

#include "convoy/plan/tuner.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/optim/asynchrony.hpp"

namespace convoy::plan {
namespace {

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
    for (const double curvature : {0.5, 5.0, 50.0}) {
      rate = std::max(rate, optim::quadratic_rate(optim::implicit_momentum(s.groups), s.momentum,
                                                  s.learning_rate * curvature));
    }
    Outcome outcome;
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

TEST(Tuner, SaysIfNothingConverges) {
  class Hopeless final : public TuneTarget {
   public:
    std::vector<int> groups() const override { return {1}; }
    Seconds update_time(int) const override { return {1}; }
    Outcome train(const TuneSetting&, Seconds time, Stretch) override {
      Outcome outcome;
      outcome.took = time;
      return outcome;
    }
    void keep() override {}
    void go_back() override {}
  };
  Hopeless target;
  EXPECT_THROW(tune(target, {}), Error);
}

}  // namespace
}  // namespace convoy::plan
