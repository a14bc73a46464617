// What the program says to wrong input: exit code 2, where it is wrong, and what would be right.

#include <regex>

#include <gmock/gmock.h>

#include "tests/app/program.hpp"

namespace convoy::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Refusals : public Program {
 protected:
  /// The job with `from` replaced by `to`; the message of training it.
  std::string refusal_of(const std::string& from, const std::string& to) {
    std::string text = kJob;
    const size_t place = text.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    text.replace(place, from.size(), to);
    put(folder_ / "job.yaml", text);
    return refusal(train("run"));
  }
  std::string refusal(const Outcome& outcome) {
    EXPECT_EQ(outcome.code, 2) << outcome.all();
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
    return outcome.err;
  }
};

TEST_F(Refusals, AMisspeltKeyIsNamedWithLineAndTheNearestKey) {
  EXPECT_THAT(refusal_of("batch:", "bacth:"),
              AllOf(HasSubstr("job.yaml:14"), HasSubstr("train.bacth"), HasSubstr("train.batch")));
}

TEST_F(Refusals, AValueOfTheWrongTypeIsNamedWithLineAndWhatIsAccepted) {
  EXPECT_THAT(refusal_of("epochs: 3", "epochs: many"),
              AllOf(HasSubstr("job.yaml:15"), HasSubstr("train.epochs"), HasSubstr("'many'")));
  EXPECT_THAT(refusal(train("run", {"train.batch=3.5"})), HasSubstr("--set train.batch=3.5"));
}

TEST_F(Refusals, AnUnknownModelIsAnsweredWithTheNearestOne) {
  EXPECT_THAT(refusal(train("run", {"model=resnet-21"})),
              AllOf(HasSubstr("resnet-21"), HasSubstr("did you mean 'resnet-20'")));
}

TEST_F(Refusals, ShapesThatDoNotFitAreNamedWithTheLayer) {
  EXPECT_THAT(refusal_of("  - relu\n",
                         "  - relu\n  - {add: {}, from: [previous, input], name: "
                         "sum}\n"),
              AllOf(HasSubstr("sum"), HasSubstr("8×8×8"), HasSubstr("3×8×8")));
}

TEST_F(Refusals, DataThatDoesNotFitTheModelIsNamedWithBothShapes) {
  EXPECT_THAT(refusal_of("name: small\n", "name: small\n  input: [1, 28, 28]\n"),
              AllOf(HasSubstr("small"), HasSubstr("1×28×28"), HasSubstr("3×8×8")));
}

TEST_F(Refusals, AModelForTooFewClassesIsNamedWithBothNumbers) {
  EXPECT_THAT(refusal(train("run", {"data.classes=5"})),
              AllOf(HasSubstr("small"), HasSubstr("4 classes"), HasSubstr("has 5")));
}

TEST_F(Refusals, AMissingDataFolderIsNamed) {
  EXPECT_THAT(refusal(train("run", {"data={kind: cifar10, path: nowhere}"})),
              AllOf(HasSubstr("data.path"), HasSubstr("nowhere")));
}

TEST_F(Refusals, ATruncatedDataFileIsNamedWithBothSizes) {
  // Headers promise two images of 2×2; one byte of the pixels is missing.
  const std::string images(
      "\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02"
      "1234567",
      23);
  const std::string labels("\0\0\x08\x01\0\0\0\x02\0\x01", 10);
  std::filesystem::create_directories(folder_ / "data");
  for (const char* part : {"train", "t10k"}) {
    put(folder_ / "data" / (std::string(part) + "-images-idx3-ubyte"), images);
    put(folder_ / "data" / (std::string(part) + "-labels-idx1-ubyte"), labels);
  }
  EXPECT_THAT(refusal(train("run", {"data={kind: idx, path: data}"})),
              AllOf(HasSubstr("train-images-idx3-ubyte"), HasSubstr("24"), HasSubstr("23")));
}

TEST_F(Refusals, AGrainThatDoesNotDivideTheBatchIsAnsweredWithThoseThatDo) {
  EXPECT_THAT(refusal(train("run", {"engine.grain=5"})),
              AllOf(HasSubstr("engine.grain: 5"), HasSubstr("4 and 8")));
}

TEST_F(Refusals, AMissingJobFileIsNamed) {
  EXPECT_THAT(refusal(convoy({"train", "absent.yaml"})), HasSubstr("absent.yaml"));
  EXPECT_THAT(refusal(convoy({"train"})), HasSubstr("job file"));
}

TEST_F(Refusals, AFolderThatHoldsARunIsNotWrittenAgain) {
  ASSERT_EQ(train("first", {"train.max_steps=1"}).code, 0);
  const std::string before = content(last("first"));
  const Outcome again = train("first");
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, AllOf(HasSubstr("first already holds a run"), HasSubstr("--resume")));
  EXPECT_EQ(content(last("first")), before);
}

TEST_F(Refusals, ResumingWhereThereIsNoRunSaysSo) {
  EXPECT_THAT(refusal(resume("run")), AllOf(HasSubstr("no run to resume"), HasSubstr("run")));
}

TEST_F(Refusals, ABrokenCheckpointIsNamedAndNothingIsOverwritten) {
  ASSERT_EQ(train("first", {"train.max_steps=9"}).code, 0);
  const std::string whole = content(last("first"));
  std::string flipped = whole;
  flipped[flipped.size() - 5] ^= 0x10;
  for (const std::string& broken :
       {whole.substr(0, whole.size() - 100), whole.substr(0, 5), std::string(), flipped}) {
    put(last("first"), broken);
    const std::string job = content(folder_ / "first/job.yaml");
    const std::string log = content(folder_ / "first/events.jsonl");
    const Outcome outcome = resume("first", {"train.max_steps=off"});
    EXPECT_EQ(outcome.code, 2) << outcome.all();
    EXPECT_THAT(outcome.err, HasSubstr("first/checkpoints/last.safetensors"));
    EXPECT_EQ(content(last("first")), broken);
    EXPECT_EQ(content(folder_ / "first/job.yaml"), job);
    EXPECT_EQ(content(folder_ / "first/events.jsonl"), log);
  }
  put(last("first"), whole);
  EXPECT_EQ(resume("first", {"train.max_steps=off"}).code, 0);
}

TEST_F(Refusals, ResumingAnotherTrainingListsTheDifferences) {
  ASSERT_EQ(train("first", {"train.max_steps=1"}).code, 0);
  const Outcome other = resume("first", {"train.batch=64", "train.seed=7"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("train.seed: 1 in the checkpoint, 7 now"),
                               HasSubstr("train.batch: 32 in the checkpoint, 64 now")));
  const Outcome model = resume("first", {"model.layers.0.conv.out=16"});
  EXPECT_EQ(model.code, 2);
  EXPECT_THAT(model.err, HasSubstr("stem.weight"));
}

/// The settings a refusal recommends: "engine.grain: 4 with engine.lanes: 1" → KEY=VALUE.
std::vector<std::string> advised(const std::string& message, const std::string& keys) {
  std::vector<std::string> settings;
  const std::regex advice("(" + keys + "): ([0-9A-Za-z]+)");
  for (std::sregex_iterator i(message.begin(), message.end(), advice), end; i != end; ++i) {
    settings.push_back((*i)[1].str() + "=" + (*i)[2].str());
  }
  return settings;
}

TEST_F(Refusals, MemoryThatWillNotSufficeIsForeseenAndTheAdviceWorks) {
#ifdef __SANITIZE_ADDRESS__
  constexpr int64_t kSlack = 64;  // what the sanitizer keeps differs from run to run
#else
  constexpr int64_t kSlack = 0;
#endif
  const auto memory = [](int64_t mebibytes) {
    return "engine.memory=" + std::to_string(mebibytes) + "MiB";
  };
  std::vector<std::string> large{"train.batch=256", "engine.grain=256", "engine.lanes=1",
                                 "train.max_steps=1", "model.layers.0.conv.out=2048"};
  const auto with = [](std::vector<std::string> settings, const std::vector<std::string>& more) {
    settings.insert(settings.end(), more.begin(), more.end());
    return settings;
  };
  const std::string first = refusal(train("run", with(large, {"engine.memory=20MiB"})));
  EXPECT_THAT(first, AllOf(HasSubstr("not enough memory for small"), HasSubstr("20.0 MiB")));
  const std::vector<std::string> more_memory = advised(first, "engine.memory");
  ASSERT_EQ(more_memory.size(), 1U) << first;

  // A little less than what it takes: then a smaller grain is the way.
  const int64_t enough = std::stoll(more_memory[0].substr(more_memory[0].find('=') + 1));
  const int64_t less = enough - 40 - kSlack;
  const std::string second = refusal(train("run", with(large, {memory(less)})));
  const std::vector<std::string> smaller =
      advised(second, "engine\\.grain|engine\\.lanes|train\\.batch");
  ASSERT_GE(smaller.size(), 2U) << second;

  const Outcome followed = train("followed", with(with(large, {memory(less + kSlack)}), smaller));
  EXPECT_EQ(followed.code, 0) << second << followed.all();
  const Outcome granted = train("granted", with(large, {memory(enough + kSlack)}));
  EXPECT_EQ(granted.code, 0) << first << granted.all();

  const std::vector<std::string> open = with(large, {"engine.grain=auto", "engine.lanes=auto"});
  const std::string third = refusal(train("run", with(open, {"engine.memory=1MiB"})));
  std::smatch least;
  ASSERT_TRUE(std::regex_search(third, least, std::regex("([0-9]+)MiB is the least"))) << third;
  const int64_t least_with_slack = std::stoll(least[1].str()) + kSlack;
  const Outcome tight = train("tight", with(open, {memory(least_with_slack)}));
  EXPECT_EQ(tight.code, 0) << third << tight.all();
}

}  // namespace
}  // namespace convoy::app
