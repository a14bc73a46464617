// The share manager, told of made-up workers.

#include "convoy/sync/balancer.hpp"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/random.hpp"

namespace convoy::sync {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kGrains = 32;

/// Workers with these speeds (grains per second), which report what really happens.
class Workers {
 public:
  explicit Workers(std::vector<double> of, double noise = 0)
      : speeds(std::move(of)), noise_(noise) {}

  std::vector<WorkerReport> run(const std::vector<int64_t>& shares) {
    std::vector<WorkerReport> reports;
    for (size_t i = 0; i < speeds.size(); ++i) {
      WorkerReport r;
      r.grains = shares[i];
      const double speed = speeds[i] * (1 + noise_ * random_.normal());
      if (shares[i] > 0) r.compute = {offset + static_cast<double>(shares[i]) / speed};
      reports.push_back(r);
    }
    return reports;
  }

  Seconds step(const std::vector<int64_t>& shares) const {
    double longest = 0;
    for (size_t i = 0; i < speeds.size(); ++i) {
      longest = std::max(longest, static_cast<double>(shares[i]) / speeds[i]);
    }
    return {longest};
  }

  std::vector<double> speeds;
  double offset = 0;

 private:
  double noise_;
  Stream random_{3, Purpose::test};
};

std::vector<int64_t> equal(size_t workers) {
  return std::vector<int64_t>(workers, kGrains / static_cast<int64_t>(workers));
}

std::vector<ShareBounds> unbounded(size_t workers) {
  return std::vector<ShareBounds>(workers, {.least = 0, .most = kGrains});
}

std::unique_ptr<Balancer> balancer_of(size_t workers, const BalanceOptions& options = {}) {
  return std::make_unique<Balancer>(equal(workers), unbounded(workers), options);
}

void run(Balancer& balancer, Workers& workers, int steps) {
  for (int i = 0; i < steps; ++i) {
    const std::vector<int64_t> shares = balancer.shares();
    balancer.after_step(shares, workers.run(shares));
  }
}

TEST(Balancer, GivesAWorkerOfHalfSpeedHalfAsMuchInThreeSteps) {
  Workers workers({10, 5});
  const auto balancer = balancer_of(2);
  run(*balancer, workers, 3);
  EXPECT_THAT(balancer->shares(), testing::AnyOf(ElementsAre(21, 11), ElementsAre(22, 10)));
}

TEST(Balancer, FollowsAWorkerThatSlowsDownAndRecovers) {
  for (const std::string& predictor : predictor_names()) {
    SCOPED_TRACE(predictor);
    BalanceOptions options;
    options.predictor = predictor;
    Workers workers({10, 10});
    const auto balancer = balancer_of(2, options);
    run(*balancer, workers, 20);
    EXPECT_THAT(balancer->shares(), ElementsAre(16, 16));
    workers.speeds[1] = 10.0 / 3;
    run(*balancer, workers, 20);
    EXPECT_NEAR(static_cast<double>(balancer->shares()[1]), 8, 1);
    workers.speeds[1] = 10;
    run(*balancer, workers, 30);
    EXPECT_NEAR(static_cast<double>(balancer->shares()[1]), 16, 1);
  }
}

TEST(Balancer, LeavesEqualWorkersAloneWhoseTimesAreNoisy) {
  Workers workers({10, 10, 10, 10}, 0.02);
  const auto balancer = balancer_of(4);
  run(*balancer, workers, 300);
  EXPECT_LT(balancer->moves(), 30);
  EXPECT_LT(workers.step(balancer->shares()).value, 1.13 * workers.step(equal(4)).value);
}

TEST(Balancer, DecidesAlikeEverywhere) {
  Workers workers({10, 7, 3, 1}, 0.1);
  const auto one = balancer_of(4);
  const auto another = balancer_of(4);
  for (int i = 0; i < 100; ++i) {
    const std::vector<int64_t> shares = one->shares();
    const std::vector<WorkerReport> reports = workers.run(shares);
    EXPECT_EQ(one->after_step(shares, reports), another->after_step(shares, reports));
    ASSERT_EQ(one->shares(), another->shares());
    EXPECT_EQ(std::accumulate(one->shares().begin(), one->shares().end(), int64_t{0}), kGrains);
  }
}

TEST(Balancer, GivesAnEqualShareToAWorkerThatReportsNonsense) {
  Workers workers({10, 5});
  const auto balancer = balancer_of(2);
  run(*balancer, workers, 10);
  EXPECT_TRUE(balancer->take_messages().empty());
  for (const double nonsense : {std::nan(""), -1.0, 0.0, HUGE_VAL}) {
    std::vector<WorkerReport> reports = workers.run(balancer->shares());
    reports[1].compute = {nonsense};
    balancer->after_step(balancer->shares(), reports);
    EXPECT_THAT(balancer->shares(), ElementsAre(16, 16)) << nonsense;
  }
  const std::vector<std::string> messages = balancer->take_messages();
  ASSERT_EQ(messages.size(), 1U) << "it is named once";
  EXPECT_THAT(messages[0], HasSubstr("worker 1"));
  run(*balancer, workers, 5);
  EXPECT_THAT(balancer->take_messages(), ElementsAre(HasSubstr("sense again")));
  EXPECT_NEAR(static_cast<double>(balancer->shares()[1]), 11, 1);
}

TEST(Balancer, KeepsSharesWithinMemoryAndSaysSo) {
  Workers workers({10, 2});
  Balancer balancer(equal(2), {{.least = 0, .most = 20}, {.least = 0, .most = kGrains}}, {});
  run(balancer, workers, 5);
  EXPECT_THAT(balancer.shares(), ElementsAre(20, 12));
  EXPECT_THAT(balancer.take_messages(), ElementsAre(HasSubstr("worker 0 has memory for 20")));
  run(balancer, workers, 5);
  EXPECT_TRUE(balancer.take_messages().empty()) << "it is said once";
}

TEST(Balancer, TakesGrainsFromAWorkerWhoseMemoryIsGoing) {
  Workers workers({10, 10});
  const auto balancer = balancer_of(2);
  run(*balancer, workers, 5);
  for (int i = 0; i < 2; ++i) {
    std::vector<WorkerReport> reports = workers.run(balancer->shares());
    reports[0].most = 9;
    balancer->after_step(balancer->shares(), reports);
  }
  EXPECT_THAT(balancer->shares(), ElementsAre(9, 23));
  std::vector<WorkerReport> reports = workers.run(balancer->shares());
  for (WorkerReport& r : reports) r.most = 1;  // nobody has any: what was planned stands
  balancer->after_step(balancer->shares(), reports);
  EXPECT_EQ(balancer->shares()[0] + balancer->shares()[1], kGrains);
}

TEST(Balancer, TriesAWorkerWithoutGrainsAgain) {
  Workers workers({10, 0.1});
  const auto balancer = balancer_of(2);
  run(*balancer, workers, 10);
  EXPECT_THAT(balancer->shares(), ElementsAre(32, 0));
  workers.speeds[1] = 10;
  run(*balancer, workers, 60);
  EXPECT_NEAR(static_cast<double>(balancer->shares()[1]), 16, 1);
}

TEST(Balancer, FindsSharesByFeedbackToo) {
  BalanceOptions options;
  options.solver = BalanceOptions::Solver::feedback;
  Workers workers({10, 5}, 0.01);
  const auto balancer = balancer_of(2, options);
  run(*balancer, workers, 200);
  EXPECT_NEAR(static_cast<double>(balancer->shares()[1]), 11, 1);
}

TEST(Balancer, LearnsWhatAWorkerTakesForAnyNumberOfGrains) {
  // Both take half a second besides: in proportion to measured speed the slow one would get less.
  BalanceOptions options;
  options.solver = BalanceOptions::Solver::profile;
  Workers workers({10, 5});
  workers.offset = 0.5;
  const auto balancer = balancer_of(2, options);
  run(*balancer, workers, 60);
  EXPECT_NEAR(static_cast<double>(balancer->shares()[1]), 11, 1);
}

TEST(Balancer, NamesTheSlowestWorkerAndWhy) {
  Workers workers({10, 10, 4});
  Balancer balancer({11, 11, 10}, unbounded(3), {});
  std::vector<WorkerReport> reports = workers.run(balancer.shares());
  const std::vector<std::pair<Cause, std::function<void(WorkerReport&)>>> causes = {
      {Cause::computing, [](WorkerReport&) {}},
      {Cause::throttled, [](WorkerReport& r) { r.throttled = 0.5; }},
      {Cause::other_programs, [](WorkerReport& r) { r.others = 0.5; }},
      {Cause::data, [](WorkerReport& r) { r.data = {1}; }},
      {Cause::network, [](WorkerReport& r) { r.weights = {100}; }},
  };
  for (const auto& [cause, make] : causes) {
    std::vector<WorkerReport> now = reports;
    make(now[2]);
    balancer.after_step(std::vector<int64_t>{11, 11, 10}, now);
    ASSERT_EQ(balancer.slowest(), 2);
    EXPECT_EQ(to_string(balancer.standings()[2].cause), to_string(cause));
  }
  EXPECT_EQ(balancer.standings()[2].waited.value, 0);
  EXPECT_GT(balancer.standings()[0].waited.value, 1);
}

TEST(Balancer, NamesNobodyWhereAllAreAboutAsFast) {
  Workers workers({10, 9.5});
  const auto balancer = balancer_of(2);
  run(*balancer, workers, 5);
  EXPECT_EQ(balancer->slowest(), std::nullopt);
}

TEST(ProfileFit, FindsOffsetAndSlope) {
  ProfileFit fit;
  for (const int64_t x : {4, 8, 12, 6, 10}) {
    fit.observe(x, {0.5 + 0.1 * static_cast<double>(x)});
  }
  // As fast as in the last step, with ten grains.
  const TimeProfile profile = fit.profile(10 / 1.5);
  EXPECT_NEAR(profile.at(4).value, 0.9, 1e-9);
  EXPECT_NEAR(profile.at(20).value, 2.5, 1e-9);
  // Half as fast altogether.
  EXPECT_NEAR(fit.profile(5 / 1.5).at(20).value, 5, 1e-9);
}

TEST(ProfileFit, GoesByTheSpeedAloneWhereSharesNeverChanged) {
  ProfileFit fit(4);
  for (int i = 0; i < 10; ++i) fit.observe(8, {2});
  EXPECT_NEAR(fit.profile(4).at(16).value, 4, 1e-9);
  EXPECT_NEAR(fit.profile(4).at(1).value, 1, 1e-9) << "one grain takes as long as one on each lane";
}

}  // namespace
}  // namespace convoy::sync
