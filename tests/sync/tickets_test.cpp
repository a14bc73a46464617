// Who gets which ticket, who may start and who is late, without messages.

#include "convoy/sync/tickets.hpp"

#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/base/random.hpp"
#include "convoy/sync/staleness.hpp"

namespace convoy::sync {
namespace {

ServerOptions options_of(Scheme scheme, int64_t bound, int backups) {
  ServerOptions options;
  options.scheme = scheme;
  options.bound = bound;
  options.backups = backups;
  return options;
}

TEST(Tickets, GoToWhoeverAsksAndEachOnce) {
  Tickets tickets(options_of(Scheme::asynchronous, 0, 0), 3);
  tickets.begin(10, 13);
  EXPECT_EQ(tickets.next(2), 10);
  EXPECT_EQ(tickets.next(2), 11);
  EXPECT_EQ(tickets.next(0), 12);
  EXPECT_EQ(tickets.next(1), std::nullopt);
  EXPECT_EQ(tickets.unused(), 13);
}

TEST(Tickets, AreNotHandedOutAfterClosing) {
  Tickets tickets(options_of(Scheme::asynchronous, 0, 0), 2);
  tickets.begin(0, 100);
  tickets.next(0);
  tickets.next(1);
  tickets.close();
  EXPECT_EQ(tickets.next(0), std::nullopt);
  EXPECT_EQ(tickets.unused(), 2);
  tickets.begin(2, 4);
  EXPECT_EQ(tickets.next(0), 2);
}

TEST(Tickets, LetNobodyStartWhoIsMoreThanTheBoundAhead) {
  for (const int64_t bound : {0, 1, 3}) {
    Tickets tickets(options_of(Scheme::stale, bound, 0), 3);
    tickets.begin(0, 100);
    for (int64_t clock = 0; clock <= bound; ++clock) {
      EXPECT_TRUE(tickets.may_start(0)) << bound;
      tickets.finish(0);
    }
    EXPECT_FALSE(tickets.may_start(0)) << bound;
    tickets.finish(1);
    EXPECT_FALSE(tickets.may_start(0)) << "worker 2 is at clock 0";
    EXPECT_EQ(tickets.slowest(), std::vector<int>{2});
    EXPECT_TRUE(tickets.may_start(2)) << "the slowest never waits";
    tickets.finish(2);
    EXPECT_TRUE(tickets.may_start(0)) << bound;
  }
}

TEST(Tickets, DoNotWaitForThoseWhoLeft) {
  Tickets tickets(options_of(Scheme::stale, 0, 0), 2);
  tickets.begin(0, 100);
  tickets.finish(0);
  EXPECT_FALSE(tickets.may_start(0));
  tickets.leave(1);
  EXPECT_TRUE(tickets.may_start(0));
  tickets.begin(100, 200);  // and it is back
  tickets.finish(0);
  EXPECT_FALSE(tickets.may_start(0));
}

TEST(Tickets, AcceptTheFirstOfAStepAndTellTheOthersAtOnce) {
  Tickets tickets(options_of(Scheme::backup, 0, 1), 3);
  tickets.begin(5, 8);
  for (const int worker : {0, 1, 2}) EXPECT_EQ(tickets.next(worker), 5);
  tickets.report(2, 5, true);
  EXPECT_EQ(tickets.fate(2), std::nullopt) << "one is not enough";
  tickets.report(0, 5, true);
  EXPECT_EQ(tickets.fate(2), Fate::applied);
  EXPECT_EQ(tickets.fate(0), Fate::applied);
  EXPECT_EQ(tickets.updates(), 1);
  EXPECT_EQ(tickets.next(0), 6);
  tickets.report(1, 5, true);
  EXPECT_EQ(tickets.fate(1), Fate::late);
  EXPECT_EQ(tickets.next(1), 6) << "with the others";
}

TEST(Tickets, LetTheLateSkipStepsEvenIfTheyAskedEarly) {
  Tickets tickets(options_of(Scheme::backup, 0, 1), 2);
  tickets.begin(0, 10);
  tickets.next(1);
  EXPECT_EQ(tickets.next(1), 1) << "early";
  for (int64_t step = 0; step < 4; ++step) {
    EXPECT_EQ(tickets.next(0), step);
    tickets.report(0, step, true);
    EXPECT_EQ(tickets.fate(0), Fate::applied);
  }
  tickets.report(1, 0, true);
  EXPECT_EQ(tickets.fate(1), Fate::late);
  EXPECT_EQ(tickets.next(1), 4);
}

TEST(Tickets, GiveAStepUpWhenTooManyGradientsAreNotFinite) {
  Tickets tickets(options_of(Scheme::backup, 0, 1), 3);
  tickets.begin(0, 10);
  for (const int worker : {0, 1, 2}) tickets.next(worker);
  tickets.report(0, 0, false);
  EXPECT_EQ(tickets.fate(0), std::nullopt) << "the other two can do without it";
  tickets.report(1, 0, true);
  tickets.report(2, 0, false);
  for (const int worker : {0, 1, 2}) EXPECT_EQ(tickets.fate(worker), Fate::refused);
  EXPECT_EQ(tickets.updates(), 0);
  for (const int worker : {0, 1, 2}) EXPECT_EQ(tickets.next(worker), 1);
  tickets.report(0, 1, false);
  tickets.report(1, 1, true);
  tickets.report(2, 1, true);
  EXPECT_EQ(tickets.fate(0), Fate::refused);
  EXPECT_EQ(tickets.fate(1), Fate::applied);
  EXPECT_EQ(tickets.updates(), 1);
}

TEST(Tickets, OfAClosedSegmentStillTakePlaceIfAnybodyHasThem) {
  Tickets tickets(options_of(Scheme::backup, 0, 0), 2);
  tickets.begin(0, 10);
  tickets.next(0);
  EXPECT_EQ(tickets.next(0), 1) << "early";
  tickets.close();
  EXPECT_EQ(tickets.next(0), std::nullopt);
  EXPECT_EQ(tickets.next(1), 0);
  for (const int worker : {0, 1}) tickets.report(worker, 0, true);
  EXPECT_EQ(tickets.next(1), 1);
  for (const int worker : {0, 1}) tickets.report(worker, 1, true);
  EXPECT_EQ(tickets.next(1), std::nullopt);
  EXPECT_EQ(tickets.unused(), 2);
}

TEST(StalenessHistogram, CountsAndAddsUp) {
  Staleness a;
  for (const int64_t updates : {0, 0, 3}) a.record(updates);
  Staleness b;
  b.record(1000);
  a += b;
  EXPECT_EQ(a.total(), 4);
  EXPECT_EQ(a.counts()[0], 2);
  EXPECT_EQ(a.counts()[3], 1);
  EXPECT_EQ(a.counts().back(), 1) << "that stale or more";
  EXPECT_EQ(a.most(), 1000);
  EXPECT_DOUBLE_EQ(a.mean(), 1003.0 / 4);
}

}  // namespace
}  // namespace convoy::sync
