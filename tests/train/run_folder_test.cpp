#include "convoy/train/run_folder.hpp"

#include <cmath>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/train/events.hpp"

#include "tests/train/folder.hpp"

namespace convoy::train {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

using Runs = InFolder;
using Events = InFolder;

TEST_F(Runs, CreatesItsFolderAndWritesIntoIt) {
  const auto where = folder_ / "runs/first";
  const RunFolder run = RunFolder::create(where);
  run.write_job("model: lenet\n");
  run.write_plan("lanes: 2\n");
  EXPECT_EQ(content(where / "job.yaml"), "model: lenet\n");
  EXPECT_EQ(content(where / "plan.yaml"), "lanes: 2\n");
  EXPECT_TRUE(std::filesystem::is_directory(run.last_checkpoint().parent_path()));
}

TEST_F(Runs, IsNeverOverwrittenButCanBeResumed) {
  const auto where = folder_ / "run";
  RunFolder::create(where).write_job("model: lenet\n");
  EXPECT_THAT(message_of<InputError>([&] { RunFolder::create(where); }),
              HasSubstr("already holds a run"));
  EXPECT_EQ(RunFolder::resume(where).path(), where);
  EXPECT_EQ(content(where / "job.yaml"), "model: lenet\n");
}

TEST_F(Runs, DoesNotMoveIntoAFolderOfSomethingElse) {
  put(folder_ / "thesis.tex", "years of work");
  EXPECT_THAT(message_of<InputError>([&] { RunFolder::create(folder_); }),
              HasSubstr("not empty and holds no run"));
  EXPECT_THAT(message_of<InputError>([&] { RunFolder::create(folder_ / "thesis.tex"); }),
              HasSubstr("is not a folder"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(Runs, CanTakeTheFolderOfOneThatFailedBeforeItsFirstStep) {
  { const RunFolder failed = RunFolder::create(folder_ / "run"); }
  put(folder_ / "run" / "events.jsonl", "");
  EXPECT_NO_THROW(RunFolder::create(folder_ / "run"));
}

TEST_F(Runs, ClearsAwayWhatAKilledProcessLeftHalfWritten) {
  {
    const RunFolder run = RunFolder::create(folder_ / "run");
    run.write_job("model: lenet");
  }
  const auto left = folder_ / "run/checkpoints/last.safetensors.tmp4711";
  const auto kept = folder_ / "run/checkpoints/mine.tmp.txt";
  put(left, "half");
  put(kept, "whole");
  const RunFolder run = RunFolder::resume(folder_ / "run");
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(kept));
}

TEST_F(Runs, ThatIsNotThereCannotBeResumed) {
  EXPECT_THAT(message_of<InputError>([&] { RunFolder::resume(folder_ / "absent"); }),
              HasSubstr("no folder"));
  EXPECT_THAT(message_of<InputError>([&] { RunFolder::resume(folder_); }),
              HasSubstr("has no job.yaml"));
}

TEST_F(Runs, IsWrittenByOneProcessAtATime) {
  const auto where = folder_ / "run";
  {
    const RunFolder run = RunFolder::create(where);
    run.write_job("model: lenet\n");
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string message = message_of<InputError>([&] { RunFolder::resume(where); });
      const bool named = message.find(std::to_string(::getppid())) != std::string::npos &&
                         message.find("another process") != std::string::npos;
      ::_exit(named ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_NO_THROW(RunFolder::resume(where));
}

TEST_F(Runs, IsNamedAfterModelAndTimeAndNeverTwiceTheSame) {
  const std::time_t when = 1706693400;
  const auto first = default_run_folder("nets/my net.yaml", when, folder_);
  EXPECT_THAT(first.filename().string(), MatchesRegex("nets-my-net-yaml-2024013[01]-[0-9]+"));
  std::filesystem::create_directories(first);
  EXPECT_EQ(default_run_folder("nets/my net.yaml", when, folder_).string(), first.string() + "-2");
}

std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST_F(Events, AreOneJsonObjectPerLineAndReadableAtOnce) {
  EventLog log(folder_ / "events.jsonl");
  log.write("start", {{"model", "lenet"}});
  log.write("step", {{"step", 1}, {"loss", NAN}});
  log.write("stop");
  const auto lines = lines_of(content(folder_ / "events.jsonl"));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].at("event"), "start");
  EXPECT_EQ(lines[0].at("model"), "lenet");
  EXPECT_GT(lines[0].at("time").get<double>(), 1.6e9);
  EXPECT_TRUE(lines[1].at("loss").is_null());
  EXPECT_EQ(lines[2].at("event"), "stop");
}

TEST_F(Events, OfAResumedRunFollowTheOldOnes) {
  const auto path = folder_ / "events.jsonl";
  EventLog(path).write("start");
  put(path, content(path) + R"({"time": 12, "eve)");
  EventLog(path).write("resume", {{"note", "bad utf-8: \xff"}});
  const auto lines = lines_of(content(path));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].at("event"), "resume");
}

TEST_F(Events, LosesOnlyTheHalfLineHoweverLongItIs) {
  const auto path = folder_ / "events.jsonl";
  put(path, "{\"a\":1}\n" + std::string(10000, 'x'));
  EventLog(path).write("resume");
  EXPECT_EQ(lines_of(content(path)).size(), 2U);
  put(path, std::string(10000, 'x'));
  EventLog(path).write("resume");
  EXPECT_EQ(lines_of(content(path)).size(), 1U);
}

TEST_F(Events, SaysWhereItCannotWrite) {
  EXPECT_THAT(message_of<Error>([&] { EventLog(folder_ / "absent/events.jsonl"); }),
              HasSubstr("absent/events.jsonl"));
}

}  // namespace
}  // namespace convoy::train
