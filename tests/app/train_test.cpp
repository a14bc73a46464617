// Training through the command line: the same bits however it is run, stops in order, run folders.

#include <algorithm>

#include <gmock/gmock.h>
#include <yaml-cpp/yaml.h>

#include "tests/app/program.hpp"

namespace convoy::app {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Training : public Program {
 protected:
  /// Runs the job with these settings, interrupted after each of `stops` steps.
  void train_in_parts(const std::string& run, const std::vector<int>& stops,
                      std::vector<std::string> settings = {}) {
    settings.push_back("train.max_steps=" + std::to_string(stops.at(0)));
    ASSERT_EQ(train(run, settings).code, 0);
    for (size_t i = 1; i < stops.size(); ++i) {
      ASSERT_EQ(resume(run, {"train.max_steps=" + std::to_string(stops[i])}).code, 0);
    }
    const Outcome end = resume(run, {"train.max_steps=off"});
    ASSERT_EQ(end.code, 0) << end.all();
  }

  /// Sends `signal` once the first step is in the events.
  Outcome interrupt(const std::string& run, const std::vector<std::string>& settings, int signal) {
    Process process(folder_, train_arguments(run, settings));
    constexpr int kMostPolls = 30'000;
    for (int i = 0; i < kMostPolls; ++i) {
      if (content(folder_ / run / "events.jsonl").find(R"("event":"step")") != std::string::npos) {
        break;
      }
      ::usleep(1000);
    }
    process.send(signal);
    return process.wait();
  }
};

TEST_F(Training, PrintsPlanProgressAndResult) {
  const Outcome outcome = train("run");
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.err, IsEmpty());
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("batch 32 in 4 grains of 8 on 2 lanes"),
                                 HasSubstr("step 24/24"), HasSubstr("finished: 3.00 epochs"),
                                 HasSubstr("written to run"), Not(HasSubstr("0 µs left"))));
}

TEST_F(Training, WritesARunFolderWithEveryEvent) {
  ASSERT_EQ(train("run").code, 0);
  for (const char* file :
       {"job.yaml", "plan.yaml", "checkpoints/best.safetensors", "checkpoints/last.safetensors"}) {
    EXPECT_TRUE(std::filesystem::exists(folder_ / "run" / file)) << file;
  }
  const auto start = events("run", "start");
  ASSERT_EQ(start.size(), 1U);
  EXPECT_EQ(start[0].at("total_steps"), 24);
  EXPECT_GE(events("run", "step").size(), 2U);
  EXPECT_EQ(events("run", "step").back().at("step"), 24);
  ASSERT_EQ(events("run", "eval").size(), 3U);
  EXPECT_EQ(events("run", "eval")[1].at("step"), 16);
  EXPECT_GE(events("run", "checkpoint").size(), 3U);
  ASSERT_EQ(events("run", "stop").size(), 1U);
  EXPECT_EQ(events("run", "stop")[0].at("ending"), "finished");
}

TEST_F(Training, LearnsToTellThePatternsApart) {
  ASSERT_EQ(train("run", {"train.epochs=20", "train.eval_every=off"}).code, 0);
  EXPECT_GT(events("run", "eval").back().at("accuracy"), 0.5);
}

TEST_F(Training, WithJsonPrintsNothingButJsonLines) {
  auto arguments = train_arguments("run", {});
  arguments.emplace_back("--json");
  const Outcome outcome = convoy(arguments);
  ASSERT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, IsEmpty());
  std::vector<std::string> kinds;
  for (const auto& line : json_lines(outcome.out)) kinds.push_back(line.at("event"));
  EXPECT_THAT(kinds, AllOf(Contains("progress"), Contains("eval")));
  ASSERT_FALSE(kinds.empty());
  EXPECT_EQ(kinds.back(), "stop");
}

TEST_F(Training, GoesOnWhenNobodyReadsItsOutputAnyMore) {
  std::string command = "cd '" + folder_.string() + "' && (" CONVOY_BINARY_DIR "/convoy";
  for (const std::string& argument : train_arguments("run", {})) command += " '" + argument + "'";
  command += "; echo $? > code) | true";
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (int i = 0; i < 30'000 && content(folder_ / "code").empty(); ++i) ::usleep(1000);
  EXPECT_EQ(content(folder_ / "code"), "0\n");
  EXPECT_EQ(events("run", "stop").size(), 1U);
}

TEST_F(Training, KilledBeforeItsFirstCheckpointStartsAgain) {
  ASSERT_EQ(train("whole").code, 0);
  ASSERT_EQ(train("killed", {"train.max_steps=1"}).code, 0);
  std::filesystem::remove(folder_ / "killed/checkpoints/last.safetensors");
  const Outcome again = resume("killed", {"train.max_steps=off"});
  ASSERT_EQ(again.code, 0) << again.all();
  EXPECT_TRUE(tensors("killed") == tensors("whole"));
}

TEST_F(Training, RefusedForItsScheduleLeavesNoFolderBehind) {
  const Outcome refused = train("run", {"train.lr.warmup_epochs=50"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("longer than the whole training"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(Training, OnAnyNumberOfLanesGivesTheSameBits) {
  ASSERT_EQ(train("one", {"engine.lanes=1"}).code, 0);
  ASSERT_EQ(train("two", {"engine.lanes=2"}).code, 0);
  ASSERT_EQ(train("three", {"engine.lanes=3"}).code, 0);
  ASSERT_FALSE(tensors("one").empty());
  EXPECT_TRUE(tensors("one") == tensors("two"));
  EXPECT_TRUE(tensors("one") == tensors("three"));
}

TEST_F(Training, WithAnotherSeedGivesOtherBits) {
  ASSERT_EQ(train("one", {"train.max_steps=1"}).code, 0);
  ASSERT_EQ(train("two", {"train.max_steps=1", "train.seed=2"}).code, 0);
  EXPECT_FALSE(tensors("one") == tensors("two"));
}

TEST_F(Training, StoppedAndResumedGivesTheSameBits) {
  for (const std::string optimizer : {"sgd", "adam"}) {
    const std::string setting = "train.optimizer=" + optimizer;
    ASSERT_EQ(train(optimizer, {setting}).code, 0);
    train_in_parts(optimizer + "-parts", {5, 6, 19}, {setting});
    EXPECT_TRUE(tensors(optimizer) == tensors(optimizer + "-parts")) << optimizer;
  }
  EXPECT_EQ(events("sgd-parts", "resume").size(), 3U);
}

TEST_F(Training, ResumedOnOtherLanesKeepsItsGrainAndTheSameBits) {
  ASSERT_EQ(train("whole", {"engine.grain=auto"}).code, 0);
  ASSERT_EQ(train("parts", {"engine.grain=auto", "train.max_steps=7"}).code, 0);
  const Outcome rest = resume("parts", {"engine.lanes=1", "train.max_steps=off"});
  ASSERT_EQ(rest.code, 0) << rest.all();
  EXPECT_THAT(rest.out, HasSubstr("on 1 lane"));
  EXPECT_TRUE(tensors("whole") == tensors("parts"));
}

TEST_F(Training, WithMeasuredAlgorithmsGivesTheSameBitsOnAnyLanesAndResumed) {
  const std::string automatic = "engine.algorithms=auto";
  ASSERT_EQ(train("one", {automatic, "engine.lanes=1"}).code, 0);
  ASSERT_EQ(train("two", {automatic, "engine.lanes=2"}).code, 0);
  EXPECT_TRUE(tensors("one") == tensors("two"));
  train_in_parts("parts", {5, 19}, {automatic});
  EXPECT_TRUE(tensors("one") == tensors("parts"));
}

TEST_F(Training, ChoosesItsBatchAndSaysWhy) {
  const std::vector<std::string> settings{"train.batch=auto", "train.lr.base_batch=32",
                                          "train.epochs=1"};
  const Outcome outcome = train("run", settings);
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  const YAML::Node plan = YAML::LoadFile((folder_ / "run/plan.yaml").string());
  EXPECT_THAT(plan["reasons"][0].Scalar(), HasSubstr("gradient noise scale"));
  EXPECT_THAT(plan["reasons"][1].Scalar(), HasSubstr("batch    16: "));
  const YAML::Node job = YAML::LoadFile((folder_ / "run/job.yaml").string());
  EXPECT_EQ(job["train"]["batch"].Scalar(), plan["batch"].Scalar());
}

TEST_F(Training, RefusesToChooseABatchForALearningRateOfNone) {
  const Outcome refused = train("run", {"train.batch=auto"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("train.lr.base_batch"));
}

TEST_F(Training, StoppedByASignalSavesAndResumesToTheSameBits) {
  // Long enough that the signal always comes in the middle.
  const std::vector<std::string> settings{"train.epochs=200", "train.eval_every=off",
                                          "train.checkpoint_every=off"};
  ASSERT_EQ(train("whole", settings).code, 0);
  for (const auto& [run, signal] : {std::pair{"int", SIGINT}, std::pair{"term", SIGTERM}}) {
    const Outcome stopped = interrupt(run, settings, signal);
    EXPECT_EQ(stopped.code, 128 + signal) << stopped.all();
    EXPECT_THAT(stopped.out, HasSubstr(std::string("convoy train --resume ") + run));
    ASSERT_EQ(events(run, "stop").size(), 1U);
    EXPECT_LT(events(run, "stop")[0].at("step"), 1600);
    EXPECT_FALSE(tensors(run) == tensors("whole"));
    ASSERT_EQ(resume(run).code, 0);
    EXPECT_TRUE(tensors(run) == tensors("whole")) << run;
  }
}

TEST_F(Training, OfTheSavedJobGivesTheSameBits) {
  ASSERT_EQ(train("first", {"train.epochs=1", "train.lr.peak=0.0123"}).code, 0);
  ASSERT_EQ(convoy({"train", "first/job.yaml", "--run", "again"}).code, 0);
  EXPECT_TRUE(tensors("first") == tensors("again"));
  EXPECT_EQ(content(folder_ / "first/job.yaml"), content(folder_ / "again/job.yaml"));
}

TEST_F(Training, StopsEarlyWhenPatienceRunsOut) {
  const std::vector<std::string> settings{"train.epochs=100", "train.patience=2"};
  const Outcome outcome = train("run", settings);
  ASSERT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("stopped early"));
  const auto evals = events("run", "eval");
  ASSERT_GE(evals.size(), 3U);
  EXPECT_LT(evals.size(), 100U);
  EXPECT_TRUE(evals[evals.size() - 3].at("best"));
  EXPECT_FALSE(evals[evals.size() - 2].at("best"));
  EXPECT_FALSE(evals[evals.size() - 1].at("best"));
}

TEST_F(Training, InterruptedIsNotLessPatient) {
  const std::vector<std::string> settings{"train.epochs=100", "train.patience=2"};
  ASSERT_EQ(train("whole", settings).code, 0);
  train_in_parts("parts", {1, 9, 10, 11}, settings);
  EXPECT_EQ(events("whole", "stop").back().at("step"), events("parts", "stop").back().at("step"));
  EXPECT_TRUE(tensors("whole") == tensors("parts"));
}

TEST_F(Training, StopsWhenItsTimeIsUp) {
  const Outcome outcome =
      train("run", {"train.epochs=1000000", "train.eval_every=off", "train.max_time=0.05"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, HasSubstr("reached train.max_time"));
  EXPECT_TRUE(std::filesystem::exists(last("run")));
}

TEST_F(Training, ThatDivergesNamesTheStepAndKeepsTheLastCheckpoint) {
  ASSERT_EQ(train("run", {"train.max_steps=8"}).code, 0);
  const std::string good = content(last("run"));
  const Outcome outcome = resume("run", {"train.max_steps=off", "train.lr.peak=1e10"});
  EXPECT_EQ(outcome.code, 1) << outcome.all();
  EXPECT_THAT(outcome.err,
              AllOf(ContainsRegex("step [0-9]+: .*not finite"),
                    HasSubstr("run/checkpoints/last.safetensors"), HasSubstr("train.lr.peak")));
  EXPECT_EQ(content(last("run")), good);
  EXPECT_EQ(events("run", "diverged").size(), 1U);
  EXPECT_EQ(convoy({"eval", "run", "--which", "last"}).code, 0);
}

TEST_F(Training, NeverSavesWeightsThatAreNotFinite) {
  // The first loss is finite, the update after it overflows.
  const Outcome outcome = train("run", {"train.lr={peak: 1e40}", "train.checkpoint_every=0.125"});
  EXPECT_EQ(outcome.code, 1) << outcome.all();
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("weights"), HasSubstr("no checkpoint yet")));
  EXPECT_FALSE(std::filesystem::exists(last("run")));
}

TEST_F(Training, OfAFolderIsDoneByOneProcessAtATime) {
  Process first(folder_, train_arguments("run", {"train.epochs=1000000", "train.eval_every=off",
                                                 "train.checkpoint_every=off"}));
  for (int i = 0; i < 30'000 && !std::filesystem::exists(folder_ / "run/job.yaml"); ++i) {
    ::usleep(1000);
  }
  // Its own folder, so that the two do not share the files of their output.
  std::filesystem::create_directories(folder_ / "other");
  const Outcome second = Process(folder_ / "other", {"train", "--resume", "../run"}).wait();
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err, HasSubstr("being written by another process"));
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().code, 143);
}

TEST_F(Training, IsEvaluatedToWhatItPrinted) {
  ASSERT_EQ(train("run").code, 0);
  const auto evals = events("run", "eval");
  const auto best = *std::max_element(evals.begin(), evals.end(), [](const auto& a, const auto& b) {
    return a.at("accuracy") < b.at("accuracy");
  });
  const auto eval = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "eval");
    arguments.emplace_back("--json");
    const Outcome outcome = convoy(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    return nlohmann::json::parse(outcome.out);
  };
  const auto of_best = eval({"run"});
  EXPECT_EQ(of_best.at("accuracy"), best.at("accuracy"));
  EXPECT_EQ(of_best.at("loss"), best.at("loss"));
  EXPECT_EQ(of_best.at("step"), best.at("step"));
  EXPECT_EQ(of_best.at("samples"), 64);
  const auto of_last = eval({"run", "--which", "last"});
  EXPECT_EQ(of_last.at("accuracy"), evals.back().at("accuracy"));
  EXPECT_EQ(of_last.at("loss"), evals.back().at("loss"));
  const auto of_file = eval({"job.yaml", "--checkpoint", "run/checkpoints/last.safetensors"});
  EXPECT_EQ(of_file.at("loss"), of_last.at("loss"));
  EXPECT_EQ(eval({"run", "--train-set"}).at("samples"), 256);

  const Outcome missing = convoy({"eval", "run", "--checkpoint", "absent.safetensors"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("absent.safetensors"));
  EXPECT_EQ(convoy({"eval", "job.yaml"}).code, 2);
}

}  // namespace
}  // namespace convoy::app
