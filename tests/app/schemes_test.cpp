// Modes that do not wait for everybody, through the command line, as real processes.

#include <csignal>

#include <gmock/gmock.h>

#include "tests/app/workers.hpp"

namespace convoy::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Schemes : public Workers {
 protected:
  Outcome train_by(const std::string& mode, int workers, const std::string& run,
                   std::vector<std::string> settings = {},
                   const std::vector<std::string>& words = {}) const {
    settings.push_back("sync.mode=" + mode);
    std::vector<std::string> all = arguments(workers, run, settings);
    all.insert(all.end(), words.begin(), words.end());
    return convoy(all, {kNoLeaks});
  }

  /// Added up over the segments of a run.
  int64_t sum(const std::string& run, const char* what) const {
    int64_t all = 0;
    for (const nlohmann::json& event : events(run, "segment")) all += event.at(what).get<int64_t>();
    return all;
  }
};

TEST_F(Schemes, MakeEveryUpdateOnceWhoeverMakesIt) {
  for (const std::string mode : {"stale", "asynchronous", "backup"}) {
    for (const int workers : {2, 3}) {
      const std::string run = mode + std::to_string(workers);
      const Outcome outcome = train_by(mode, workers, run, {"sync.backups=1"});
      ASSERT_EQ(outcome.code, 0) << outcome.all();
      EXPECT_EQ(sum(run, "updates"), 24) << run;
      EXPECT_THAT(outcome.out,
                  AllOf(HasSubstr(mode), HasSubstr("finished: 3.00 epochs, 24 steps")));
      EXPECT_LT(events(run, "eval").back().at("loss").get<double>(),
                1.05 * events(run, "eval").front().at("loss").get<double>());
      EXPECT_EQ(events(run, "eval").back().at("samples").get<int64_t>(), 64);
    }
  }
}

TEST_F(Schemes, GiveTheBitsOfOneWhereThereIsOne) {
  ASSERT_EQ(train_on(1, "one").code, 0);
  for (const std::string mode : {"bsp", "balanced", "stale", "asynchronous", "backup"}) {
    ASSERT_EQ(train_by(mode, 1, mode).code, 0);
    EXPECT_TRUE(tensors(mode) == tensors("one")) << mode;
  }
}

TEST_F(Schemes, KeepUpdatesAsFreshAsTheBoundSays) {
  const Outcome outcome =
      train_by("stale", 3, "run", {"sync.bound=1"}, {"--replay", "constant:1,1,0.1"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  for (const nlohmann::json& event : events("run", "segment")) {
    // Two others may make two updates each while a worker computes one.
    EXPECT_LE(event.at("most_staleness").get<int64_t>(), 4);
  }
}

TEST_F(Schemes, DropWhoComesTooLate) {
  const Outcome outcome =
      train_by("backup", 2, "run", {"sync.backups=1"}, {"--replay", "constant:1,0.05"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_GT(sum("run", "late"), 0);
  EXPECT_THAT(outcome.out, HasSubstr("came too late and were dropped"));
}

TEST_F(Schemes, GoOnAfterAStop) {
  ASSERT_EQ(train_by("asynchronous", 2, "run", {"train.max_steps=10"}).code, 0);
  const Outcome rest = resume_on(2, "run", "train.max_steps=off");
  ASSERT_EQ(rest.code, 0) << rest.all();
  EXPECT_THAT(rest.out, HasSubstr("24 steps"));
}

TEST_F(Schemes, RefuseBackupsThatCannotBe) {
  for (const std::string backups : {"2", "3"}) {
    const Outcome outcome = train_by("backup", 2, "run", {"sync.backups=" + backups});
    EXPECT_EQ(outcome.code, 2) << outcome.all();
    EXPECT_THAT(outcome.err, HasSubstr("sync.backups: " + backups));
  }
  // 8 grains among three.
  const Outcome outcome = train_by("backup", 4, "run", {"sync.backups=1"});
  EXPECT_EQ(outcome.code, 2) << outcome.all();
  EXPECT_THAT(outcome.err, HasSubstr("cannot be parted evenly"));
}

TEST_F(Schemes, StopAtTheTarget) {
  const Outcome outcome = train_by("balanced", 2, "run", {"train.target=0.01"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, HasSubstr("reached train.target: 1.00 epochs"));
}

}  // namespace
}  // namespace convoy::app
