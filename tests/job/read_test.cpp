#include "convoy/job/read.hpp"

#include <filesystem>
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/job/fields.hpp"
#include "convoy/job/value.hpp"

namespace convoy::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kSmall = "model: lenet\ndata: {kind: idx, path: data/mnist}\n";

/// The whole message of a refusal; "" if the job is accepted.
std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse_job(text, "job.yaml", overrides);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string refusal_of_train(const std::string& entry) {
  return refusal(std::string(kSmall) + "train:\n  " + entry + "\n");
}

/// Equal in everything a job file says.
void expect_equal(const Job& a, const Job& b) {
  EXPECT_EQ(YAML::Dump(a.model), YAML::Dump(b.model));
  EXPECT_EQ(a.data, b.data);
  EXPECT_EQ(a.train, b.train);
  EXPECT_EQ(a.engine, b.engine);
  EXPECT_EQ(a.sync, b.sync);
}

TEST(ReadJob, ReadsEverySectionAndLeavesTheRestAtItsDefault) {
  const Job job = parse_job(R"(model: resnet-20                      # zoo name
data:  {kind: cifar10, path: data/cifar10}   # idx | cifar10 | cifar100
train: {batch: 256, epochs: 30, lr: {peak: 0.4, schedule: one-cycle}, momentum: 0.8,
        weight_decay: 5e-4, seed: 18446744073709551615}
sync:  {mode: bsp, reproducible: false}
engine: {grain: 16, lanes: auto, memory: 512MiB}
)",
                            "job.yaml");
  EXPECT_EQ(job.file, "job.yaml");
  EXPECT_EQ(job.model.Scalar(), "resnet-20");
  EXPECT_EQ(job.data.kind, "cifar10");
  EXPECT_EQ(job.data.path, "data/cifar10");
  EXPECT_EQ(job.train.batch, 256);
  EXPECT_EQ(job.train.epochs, 30);
  EXPECT_EQ(job.train.lr.peak, 0.4);
  EXPECT_EQ(job.train.lr.schedule, "one-cycle");
  EXPECT_EQ(job.train.momentum, 0.8);
  EXPECT_EQ(job.train.weight_decay, 5e-4);
  EXPECT_EQ(job.train.seed, 18446744073709551615U);
  EXPECT_EQ(job.sync.mode, "bsp");
  EXPECT_FALSE(job.sync.reproducible);
  EXPECT_EQ(job.engine.grain, 16);
  EXPECT_EQ(job.engine.lanes, 0);
  EXPECT_EQ(job.engine.memory, Bytes{512 << 20});
  EXPECT_EQ(job.train.patience, Train{}.patience);
  EXPECT_EQ(job.data.augment, Augment{});
}

TEST(ReadJob, AcceptsShorthandsAndWordsForZero) {
  const Job job = parse_job(std::string(kSmall) + R"(train:
  lr: 0.25
  max_time: 1h 30min
  max_steps: 1e3
  clip_norm: off
engine: {grain: auto}
sync:
)",
                            "job.yaml", {"data.mean=0.5", "data.std=[0.25]"});
  EXPECT_EQ(job.train.lr.peak, 0.25);
  EXPECT_EQ(job.train.max_seconds, 5400);
  EXPECT_EQ(job.train.max_steps, 1000);
  EXPECT_EQ(job.train.clip_norm, 0);
  EXPECT_EQ(job.engine.grain, 0);
  EXPECT_EQ(job.data.mean, std::vector<double>{0.5});
  EXPECT_EQ(job.data.std, std::vector<double>{0.25});
}

TEST(ReadJob, KeepsTheModelWithItsLines) {
  const Job job = parse_job(
      "data: {kind: synthetic, shape: [1, 8, 8]}\nmodel:\n  layers:\n    - relu\n", "job.yaml");
  ASSERT_TRUE(job.model.IsMap());
  EXPECT_EQ(job.model["layers"][0].Mark().line, 3);
}

TEST(ReadJob, NamesTheNearestKeyAndTheAcceptedOnes) {
  EXPECT_THAT(refusal_of_train("bacth: 64"),
              AllOf(StartsWith("job.yaml:4: train.bacth: unknown key; did you mean train.batch? "
                               "accepted in train: batch, epochs, "),
                    HasSubstr(", lr")));
  EXPECT_THAT(refusal(std::string(kSmall) + "trian: {}\n"),
              StartsWith("job.yaml:3: trian: unknown key; did you mean train? accepted at the top: "
                         "model, data, train, engine, sync"));
  EXPECT_THAT(refusal_of_train("qqqqqqq: 1"),
              StartsWith("job.yaml:4: train.qqqqqqq: unknown key; accepted in train: "));
}

TEST(ReadJob, PointsToTheRightPlaceOfAKeyAndToItsNameHere) {
  EXPECT_THAT(refusal(std::string(kSmall) + "grain: 4\n"), HasSubstr("mean engine.grain?"));
  EXPECT_THAT(refusal_of_train("peak: 0.1"), HasSubstr("did you mean train.lr.peak?"));
  EXPECT_THAT(refusal_of_train("batch_size: 5"), HasSubstr("did you mean train.batch?"));
  EXPECT_THAT(refusal_of_train("learning_rate: 5"), HasSubstr("did you mean train.lr?"));
  EXPECT_THAT(refusal_of_train("lr: {warmup: 5}"), HasSubstr("mean train.lr.warmup_epochs?"));
  EXPECT_THAT(refusal(std::string(kSmall) + "train.batch: 4\n"),
              HasSubstr("in a file write train: {batch: …}"));
}

TEST(ReadJob, SaysWhatIsWrongWithAValueAndWhatIsAccepted) {
  EXPECT_EQ(refusal_of_train("batch: many"),
            "job.yaml:4: train.batch: 'many' is not a whole number; accepted: auto, or whole "
            "numbers from 1 to 16777216");
  EXPECT_EQ(refusal_of_train("batch: 2.5"),
            "job.yaml:4: train.batch: '2.5' is not a whole number; accepted: auto, or whole "
            "numbers from 1 to 16777216");
  EXPECT_EQ(refusal_of_train("batch: -1"),
            "job.yaml:4: train.batch: -1 is too small; accepted: auto, or whole numbers from 1 to "
            "16777216");
  EXPECT_EQ(refusal_of_train("batch: auto"),
            "job.yaml: train.lr.base_batch: missing; train.batch: auto needs to know which batch "
            "train.lr.peak is meant for");
  EXPECT_THAT(refusal_of_train("batch: 99999999999"),
              HasSubstr("is too large (at most 2147483647"));
  EXPECT_THAT(refusal_of_train("batch: 9e99"), HasSubstr("is too large"));
  EXPECT_THAT(refusal_of_train("batch: [1, 2]"), HasSubstr("a list where one value belongs"));
  EXPECT_THAT(refusal_of_train("batch:"), HasSubstr("no value is given"));
  EXPECT_EQ(refusal_of_train("momentum: 1"),
            "job.yaml:4: train.momentum: 1 is too large; accepted: numbers from 0 to below 1");
  EXPECT_THAT(refusal_of_train("epochs: 0"),
              HasSubstr("0 is too small; accepted: numbers above 0"));
  EXPECT_THAT(refusal_of_train("epochs: nan"), HasSubstr("'nan' is not a number"));
  EXPECT_THAT(refusal_of_train("epochs: .inf"), HasSubstr("'.inf' is not a number"));
  EXPECT_THAT(refusal_of_train("nesterov: maybe"), HasSubstr("accepted: true, false"));
  EXPECT_THAT(refusal_of_train("seed: -1"), HasSubstr("'-1' is not a whole number"));
  EXPECT_THAT(refusal_of_train("max_time: 5 parsecs"), HasSubstr("'5 parsecs' is not a time"));
  EXPECT_THAT(refusal_of_train("optimizer: sdg"),
              HasSubstr("'sdg' is not known; did you mean sgd?; accepted: sgd, adam, lars"));
  EXPECT_THAT(refusal_of_train("clip_norm: -1"), HasSubstr("off, or numbers above 0"));
  EXPECT_THAT(refusal_of_train("lr: fast"), HasSubstr("train.lr.peak: 'fast' is not a number"));
  EXPECT_THAT(refusal_of_train("lr: [1]"), HasSubstr("train.lr: a list where a map belongs"));
  EXPECT_THAT(refusal(std::string(kSmall) + "engine: {memory: much}\n"),
              HasSubstr("'much' is not an amount of memory; accepted: auto, or amounts"));
  EXPECT_THAT(refusal(kSmall, {"data.shape=[3, 32]"}), HasSubstr("2 values where 3 belong"));
  EXPECT_THAT(refusal(kSmall, {"data.shape=[3, 32, x]"}), HasSubstr("'x' is not a whole number"));
}

TEST(ReadJob, ReportsAllProblemsTogether) {
  EXPECT_EQ(refusal("model: lenet\n"
                    "data: {kind: idx, path: x}\n"
                    "train:\n"
                    "  batch: none\n"
                    "  momentum: 2\n"
                    "sync: 5\n"),
            "job.yaml:4: train.batch: 'none' is not a whole number; accepted: auto, or whole "
            "numbers from 1 to 16777216\n"
            "job.yaml:5: train.momentum: 2 is too large; accepted: numbers from 0 to below 1\n"
            "job.yaml:6: sync: '5' where a map belongs; accepted in sync: mode, predictor, solver, "
            "bound, backups, reproducible, allreduce, shares, deadline, bucket, overlap");
  std::string many = kSmall;
  for (int i = 0; i < 50; ++i) many += "zzzzzzz" + std::to_string(i) + ": 1\n";
  EXPECT_THAT(refusal(many), HasSubstr("job.yaml: and 30 more"));
}

TEST(ReadJob, RefusesKeysGivenTwice) {
  EXPECT_EQ(refusal_of_train("batch: 1\n  batch: 2"),
            "job.yaml:5: train.batch: given twice; first at job.yaml:4");
  EXPECT_THAT(refusal("model: lenet\nmodel: vgg-a\ndata: {kind: idx, path: x}\n"),
              HasSubstr("job.yaml:2: model: given twice"));
}

TEST(ReadJob, RefusesWhatIsNoJobAtAll) {
  EXPECT_THAT(refusal(""), StartsWith("job.yaml: empty"));
  EXPECT_THAT(refusal("# nothing\n"), StartsWith("job.yaml: empty"));
  EXPECT_THAT(refusal("- a\n- b\n"), StartsWith("job.yaml:1: a list is no job; a job is a map of"));
  EXPECT_THAT(refusal("hello"), StartsWith("job.yaml:1: 'hello' is no job"));
  EXPECT_THAT(refusal("model: a\n---\nmodel: b\n"), HasSubstr("a second document"));
  EXPECT_THAT(refusal("model: a\ndata: {kind: idx\n"),
              StartsWith("job.yaml:3:1: not valid YAML: "));
  EXPECT_THAT(refusal(std::string("model: a\n\0b", 11)),
              StartsWith("job.yaml:2: not a text file (byte 0x00)"));
  EXPECT_THAT(refusal("? [a, b]\n: 1\n"), HasSubstr("a list is no key"));
}

TEST(ReadJob, SaysWhatIsMissing) {
  EXPECT_EQ(
      refusal("train: {batch: 1}\n"),
      "job.yaml: model: missing; accepted: a name or a map\n"
      "job.yaml: data.kind: missing; accepted: idx, cifar10, cifar100, folder, packed, synthetic");
  EXPECT_EQ(refusal("model: a\ndata: {kind: cifar10}\n"),
            "job.yaml: data.path: missing; cifar10 data is read from a folder");
  EXPECT_EQ(refusal("model: a\ndata: {kind: synthetic}\n"),
            "job.yaml: data.shape: missing; synthetic data needs [channels, height, width]");
  EXPECT_THAT(refusal("model: [a]\ndata: {kind: idx, path: x}\n"),
              HasSubstr("job.yaml:1: model: a list is no model; accepted: a name or a map"));
}

TEST(ReadJob, ChecksFieldsAgainstEachOther) {
  EXPECT_EQ(refusal(kSmall, {"train.batch=128", "engine.grain=24"}),
            "--set engine.grain=24: engine.grain: 24 does not divide train.batch (128); "
            "nearest that do: 16 and 32");
  EXPECT_EQ(refusal(std::string(kSmall) + "engine:\n  grain: 500\n"),
            "job.yaml:4: engine.grain: 500 does not divide train.batch (128); "
            "128 is the largest that does");
  EXPECT_THAT(refusal(kSmall, {"data.mean=[0.1, 0.2, 0.3]", "data.std=1"}),
              HasSubstr("data.std: 1 values, but data.mean has 3"));
  EXPECT_THAT(refusal(kSmall, {"train.lr={schedule: multi-step}"}),
              HasSubstr("train.lr.milestones: missing"));
  EXPECT_THAT(refusal(kSmall, {"train.lr={schedule: multi-step, milestones: [3, 2]}"}),
              HasSubstr("train.lr.milestones: 2 follows 3; milestones ascend"));
  EXPECT_THAT(refusal(kSmall, {"train.nesterov=true", "train.optimizer=adam"}),
              HasSubstr("train.nesterov: is for sgd; train.optimizer is adam"));
  EXPECT_THAT(refusal("model: a\n"
                      "data: {kind: synthetic, shape: [3, 8, 8], mean: [0, 0], std: [1, 1]}\n"),
              HasSubstr("data.mean: 2 values, but data.shape has 3 channels"));
}

TEST(Overrides, CountMoreThanTheFileAndTheLastOneCounts) {
  const Job job =
      parse_job(std::string(kSmall) + "train: {batch: 64, epochs: 3}\n", "job.yaml",
                {"train.batch=16", "train.batch=32", "train.lr={peak: 1, schedule: cosine}"});
  EXPECT_EQ(job.train.batch, 32);
  EXPECT_EQ(job.train.epochs, 3);
  EXPECT_EQ(job.train.lr.peak, 1);
  EXPECT_EQ(job.train.lr.schedule, "cosine");
}

TEST(Overrides, ReachIntoTheModel) {
  const Job named = parse_job(kSmall, "job.yaml", {"model.classes=100"});
  EXPECT_EQ(named.model["name"].Scalar(), "lenet");
  EXPECT_EQ(named.model["name"].Mark().line, 0);
  EXPECT_EQ(named.model["classes"].Scalar(), "100");
  EXPECT_TRUE(named.model["classes"].Mark().is_null());

  const Job replaced = parse_job(kSmall, "job.yaml", {"model={name: mlp}", "model.hidden=[8, 9]"});
  EXPECT_EQ(replaced.model["name"].Scalar(), "mlp");
  EXPECT_EQ(replaced.model["hidden"][1].Scalar(), "9");

  const std::string graph =
      "model: {layers: [{conv: {out: 8}}, relu]}\ndata: {kind: idx, path: x}\n";
  const Job deep = parse_job(graph, "job.yaml", {"model.layers.0.conv.out=16"});
  EXPECT_EQ(deep.model["layers"][0]["conv"]["out"].Scalar(), "16");
  EXPECT_EQ(deep.model["layers"][1].Scalar(), "relu");
  EXPECT_THAT(refusal(graph, {"model.layers.2.conv.out=16"}), HasSubstr("numbered from 0 to 1"));
  EXPECT_THAT(refusal(graph, {"model.layers.1.out=16"}), HasSubstr("'relu' has no parts to set"));
}

TEST(Overrides, AreNamedInErrors) {
  EXPECT_THAT(refusal(kSmall, {"train.batch"}), StartsWith("--set train.batch: write --set KEY="));
  EXPECT_THAT(refusal(kSmall, {"=5"}), StartsWith("--set =5: write --set KEY=VALUE"));
  EXPECT_THAT(refusal(kSmall, {"trian.bacth=5"}),
              StartsWith("--set trian.bacth=5: trian.bacth: unknown key; did you mean "
                         "train.batch? accepted at the top: model,"));
  EXPECT_EQ(refusal(kSmall, {"train.batch=many"}),
            "--set train.batch=many: train.batch: 'many' is not a whole number; "
            "accepted: auto, or whole numbers from 1 to 16777216");
  EXPECT_THAT(refusal(kSmall, {"train.lr={peak: 1"}), HasSubstr("not valid YAML"));
  EXPECT_THAT(refusal(kSmall, {"data.path="}), HasSubstr("data.path: no value is given"));
}

TEST(ToYaml, ReadsBackToAnEqualJob) {
  const std::string text = R"(model:
  input: [1, 28, 28]
  layers:
    - conv: {out: 32, kernel: 3, name: "yes: no"}
    - relu
    - {add: {}, from: [previous, start]}
data:
  kind: synthetic
  path: "~"
  shape: [3, 5, 7]
  mean: [0.1, 0.2, 0.30000000000000004]
  std: [1e-300, 0.3333333333333333, 12345678901234567]
  augment: {flip: true, cutout: 3}
  limit: 17
train:
  epochs: 0.1
  max_time: 0.1h
  seed: 18446744073709551615
  epsilon: 4.9e-324
  lr: {schedule: multi-step, milestones: [1.5, 2], base_batch: 256}
engine: {memory: 1234567890123, grain: 16, lanes: 3}
sync: {mode: bsp}
)";
  const Job job = parse_job(text, "job.yaml");
  const std::string written = to_yaml(job);
  const Job again = parse_job(written, "again.yaml");
  expect_equal(job, again);
  EXPECT_EQ(again.data.path, "~");
  EXPECT_EQ(again.model["layers"][0]["conv"]["name"].Scalar(), "yes: no");
  EXPECT_EQ(to_yaml(again), written);
}

TEST(ToYaml, WritesEveryKeyAndSpellsZeroInWords) {
  const Job job = parse_job(kSmall, "job.yaml", {"train.max_time=10min", "engine.memory=3GiB"});
  const std::string written = to_yaml(job);
  const YAML::Node document = YAML::Load(written);
  EXPECT_EQ(document["engine"]["lanes"].Scalar(), "auto");
  EXPECT_EQ(document["engine"]["memory"].Scalar(), "3GiB");
  EXPECT_EQ(document["train"]["max_time"].Scalar(), "10min");
  EXPECT_EQ(document["train"]["max_steps"].Scalar(), "off");
  EXPECT_EQ(document["data"]["path"].Scalar(), "data/mnist");
  for (const std::string& key : keys()) {
    YAML::Node node = document;
    for (size_t at = 0; at < key.size();) {
      const size_t dot = std::min(key.find('.', at), key.size());
      const YAML::Node next = node[key.substr(at, dot - at)];
      ASSERT_TRUE(next.IsDefined()) << key;
      node.reset(next);
      at = dot + 1;
    }
  }
  expect_equal(job, parse_job(written, "again.yaml"));
}

TEST(ToYaml, PrintsRealNumbersThatReadBackToTheSameBits) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-300, 9);
  Job job = parse_job(kSmall, "job.yaml");
  for (int i = 0; i < 200; ++i) {
    job.train.lr.peak = std::pow(10.0, exponent(random));
    job.train.max_seconds = std::pow(10.0, exponent(random));
    job.engine.memory.value = static_cast<int64_t>(random() >> 1);
    expect_equal(job, parse_job(to_yaml(job), "again.yaml"));
  }
}

TEST(JobFile, ThatCannotBeReadIsRefusedByName) {
  const auto message = [](const std::string& path) {
    try {
      read_job(path);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message("/no/such/job.yaml"),
              AllOf(HasSubstr("/no/such/job.yaml: "), HasSubstr("No such file")));
  EXPECT_THAT(message("/"), HasSubstr("cannot be read: Is a directory"));
}

TEST(JobFile, IsReadWithItsOverrides) {
  const std::string path = ::testing::TempDir() + "convoy_read_test_job.yaml";
  std::ofstream(path) << kSmall;
  const Job job = read_job(path, {"train.batch=7"});
  EXPECT_EQ(job.train.batch, 7);
  EXPECT_EQ(job.file, path);
  std::filesystem::remove(path);
}

TEST(HostileYaml, IsRefusedWithoutACrash) {
  EXPECT_THAT(refusal(std::string((1 << 20) + 1, 'a')), HasSubstr("larger than 1024 KiB"));
  EXPECT_THAT(refusal("model: " + std::string(10000, '[')), HasSubstr("not valid YAML"));
  EXPECT_THAT(refusal("model: " + std::string(100, '[') + std::string(100, ']')),
              HasSubstr("64 levels"));
  EXPECT_THAT(refusal("model: &m {again: *m}\ndata: {kind: idx, path: x}\n"),
              HasSubstr("64 levels"));
  std::string bomb = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 40; ++i) {
    bomb += fmt::format("a{0}: &a{0} [*a{1}, *a{1}]\n", i, i - 1);
  }
  EXPECT_THAT(refusal(bomb), HasSubstr("100000 values"));
}

TEST(HostileYaml, OfAnyShapeEndsInAJobOrARefusal) {
  const std::string good = to_yaml(parse_job(kSmall, "job.yaml"));
  const std::string spice = "{}[]:,&*!|>'\"%@`#-? \n\t~0x.=";
  std::mt19937 random(11);
  for (int i = 0; i < 1500; ++i) {
    std::string text = good;
    for (int change = 0; change < 4; ++change) {
      const size_t at = random() % text.size();
      if (random() % 4 == 0) {
        text.erase(at, random() % 20);
      } else {
        text.insert(at, 1 + random() % 3, spice[random() % spice.size()]);
      }
    }
    try {
      parse_job(text, "job.yaml");
    } catch (const InputError&) {
      continue;
    }
  }
}

}  // namespace
}  // namespace convoy::job
