// Shares over time: found by feedback, not moved by noise, not spoilt by nonsense.

#include <cmath>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/random.hpp"
#include "convoy/sync/reports.hpp"
#include "convoy/sync/share_feedback.hpp"
#include "convoy/sync/steady_shares.hpp"

namespace convoy::sync {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<Seconds> times(const std::vector<int64_t>& shares, const std::vector<double>& speeds) {
  std::vector<Seconds> all;
  for (size_t i = 0; i < shares.size(); ++i) {
    all.push_back({static_cast<double>(shares[i]) / speeds[i]});
  }
  return all;
}

double longest(const std::vector<int64_t>& shares, const std::vector<double>& speeds) {
  const std::vector<Seconds> all = times(shares, speeds);
  return std::max_element(all.begin(), all.end())->value;
}

TEST(ShareFeedback, FindsSharesWithinAFewPercentWithoutKnowingSpeeds) {
  const std::vector<double> speeds{1, 2, 3};
  ShareFeedback feedback({40, 40, 40}, std::vector<ShareBounds>(3));
  for (int step = 0; step < 400; ++step) feedback.took(times(feedback.shares(), speeds));
  EXPECT_LE(longest(feedback.shares(), speeds), 1.05 * 120 / 6);
  EXPECT_EQ(std::accumulate(feedback.shares().begin(), feedback.shares().end(), int64_t{0}), 120);
}

TEST(ShareFeedback, WhenGrainsGoBackItMovesFewerAndWaitsLonger) {
  ShareFeedback feedback({10, 10}, std::vector<ShareBounds>(2),
                         {.move = 8, .window = 2, .longest = 64, .even = 0.02});
  const std::vector<double> speeds{1, 1.25};
  for (int step = 0; step < 2; ++step) feedback.took(times(feedback.shares(), speeds));
  EXPECT_THAT(feedback.shares(), ElementsAre(2, 18)) << "too far";
  for (int step = 0; step < 2; ++step) feedback.took(times(feedback.shares(), speeds));
  EXPECT_EQ(feedback.move(), 4);
  EXPECT_EQ(feedback.window(), 4);
  int moves = 0;
  for (int step = 0; step < 2000; ++step) moves += feedback.took(times(feedback.shares(), speeds));
  EXPECT_LT(moves, 40);
  EXPECT_LE(longest(feedback.shares(), speeds), 10);
}

TEST(ShareFeedback, FollowsWhenSpeedsChange) {
  ShareFeedback feedback({32, 32}, std::vector<ShareBounds>(2));
  for (int step = 0; step < 500; ++step) feedback.took(times(feedback.shares(), {1, 1}));
  EXPECT_THAT(feedback.shares(), ElementsAre(32, 32)) << "equal workers are left alone";
  for (int step = 0; step < 500; ++step) feedback.took(times(feedback.shares(), {1, 3}));
  EXPECT_LE(longest(feedback.shares(), {1, 3}), 17);
}

TEST(ShareFeedback, KeepsBoundsAndIgnoresStepsWithNonsense) {
  std::vector<ShareBounds> bounds(2);
  bounds[0].least = 6;
  bounds[1].most = 12;
  ShareFeedback feedback({10, 10}, bounds);
  for (int step = 0; step < 100; ++step) feedback.took(times(feedback.shares(), {1, 100}));
  EXPECT_THAT(feedback.shares(), ElementsAre(8, 12));
  ShareFeedback other({10, 10}, std::vector<ShareBounds>(2));
  for (int step = 0; step < 100; ++step) {
    EXPECT_FALSE(other.took(std::vector<Seconds>{{kNaN}, {1}}));
    EXPECT_FALSE(other.took(std::vector<Seconds>{{-1}, {1}}));
  }
}

/// A worker's speed is predicted to be its last one, as it was with noise.
class Noisy {
 public:
  explicit Noisy(double noise) : noise_(noise) {}

  /// Moves in so many steps.
  int run(const std::vector<double>& speeds, int steps) {
    int moves = 0;
    const std::vector<ShareBounds> bounds(speeds.size());
    for (int step = 0; step < steps; ++step) {
      if (last_.empty()) last_ = draw(speeds);
      steady_.decide(256, last_, bounds);
      moves += steady_.moved() ? 1 : 0;
      last_ = draw(speeds);
      steady_.came(last_);
    }
    return moves;
  }
  SteadyShares& steady() { return steady_; }

 private:
  std::vector<double> draw(std::vector<double> speeds) {
    for (double& speed : speeds) speed *= std::max(0.1, 1 + noise_ * random_.normal());
    return speeds;
  }

  double noise_;
  Stream random_{4, Purpose::test};
  SteadyShares steady_;
  std::vector<double> last_;
};

TEST(SteadyShares, NoiseDoesNotMoveThem) {
  for (const double noise : {0.01, 0.03, 0.1}) {
    Noisy noisy(noise);
    noisy.run({1, 1, 2, 2}, 100);
    EXPECT_LE(noisy.run({1, 1, 2, 2}, 1000), 20) << noise;
  }
}

TEST(SteadyShares, QuietWorkersAreNeverMoved) {
  Noisy noisy(0.001);
  noisy.run({1, 1.5}, 1);
  EXPECT_EQ(noisy.run({1, 1.5}, 1000), 0);
}

TEST(SteadyShares, ALargeChangeMovesThemAtOnce) {
  Noisy noisy(0.03);
  noisy.run({1, 1, 1}, 200);
  noisy.run({1, 1, 0.5}, 1);  // nobody could know
  EXPECT_EQ(noisy.run({1, 1, 0.5}, 1), 1);
  EXPECT_GT(noisy.steady().gain(), 0.3);
}

TEST(SteadyShares, ASmallChangeThatStaysMovesThemInTime) {
  Noisy noisy(0.05);
  const std::vector<double> after{1, 1, 0.9};
  noisy.run({1, 1, 1}, 200);
  noisy.run(after, 150);
  const std::vector<int64_t> shares =
      noisy.steady().decide(256, after, std::vector<ShareBounds>(3)).grains;
  EXPECT_LE(longest(shares, after), 1.04 * 256 / 2.9);
}

TEST(SteadyShares, AreMadeAnewWhenTheyNoLongerFit) {
  SteadyShares steady;
  const std::vector<double> speeds{1, 1};
  EXPECT_THAT(steady.decide(10, speeds, std::vector<ShareBounds>(2)).grains, ElementsAre(5, 5));
  std::vector<ShareBounds> bounds(2);
  bounds[0].most = 4;
  EXPECT_THAT(steady.decide(10, speeds, bounds).grains, ElementsAre(4, 6));
  EXPECT_TRUE(steady.moved());
  EXPECT_THAT(steady.decide(20, speeds, bounds).grains, ElementsAre(4, 16));
  EXPECT_THAT(steady.decide(3, std::vector<double>{1, 1, 1}, std::vector<ShareBounds>(3)).grains,
              ElementsAre(1, 1, 1));
}

TEST(ReportReader, NamesWhoReportsNonsenseOnceAndForgivesIt) {
  ReportReader reader(3);
  const WorkerReport good{.grains = 4, .compute = {2}, .load = {}};
  for (const double nonsense : {0.0, -1.0, kNaN, std::numeric_limits<double>::infinity()}) {
    const WorkerReport bad{.grains = 4, .compute = {nonsense}, .load = {}};
    const ReportReader::Read first = reader.read(std::vector{good, bad, good});
    EXPECT_THAT(first.ignored, ElementsAre(1));
    ASSERT_THAT(first.messages, SizeIs(1));
    EXPECT_THAT(first.messages[0], HasSubstr("worker 1"));
    EXPECT_THAT(first.messages[0], HasSubstr("4 grains"));
    EXPECT_THAT(first.speeds, ElementsAre(2.0, std::nullopt, 2.0));
    EXPECT_THAT(reader.read(std::vector{good, bad, good}).messages, IsEmpty());
    EXPECT_TRUE(reader.ignored(1));
    const ReportReader::Read after = reader.read(std::vector{good, good, good});
    EXPECT_THAT(after.messages, ElementsAre("worker 1 reports sense again"));
    EXPECT_THAT(after.ignored, IsEmpty());
    EXPECT_FALSE(reader.ignored(1));
  }
}

TEST(ReportReader, NothingToDoIsNoNonsense) {
  ReportReader reader(2);
  const ReportReader::Read read =
      reader.read(std::vector<WorkerReport>{{0, {0}, {}}, {-1, {1}, {}}});
  EXPECT_THAT(read.ignored, ElementsAre(1));
  EXPECT_EQ(read.speeds[0], std::nullopt);
}

}  // namespace
}  // namespace convoy::sync
