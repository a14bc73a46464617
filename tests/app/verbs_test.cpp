// The verbs besides train and eval, and how the program answers to no verb at all.

#include <gmock/gmock.h>

#include "tests/app/program.hpp"

namespace convoy::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Verbs : public Program {};

TEST_F(Verbs, AllHaveHelp) {
  const std::vector<std::vector<std::string>> verbs{{},
                                                    {"train"},
                                                    {"eval"},
                                                    {"bench"},
                                                    {"bench", "model"},
                                                    {"config"},
                                                    {"info"},
                                                    {"bench", "peak"},
                                                    {"bench", "layers"},
                                                    {"import-cifar"},
                                                    {"bench", "data"},
                                                    {"bench", "predictors"}};
  for (std::vector<std::string> arguments : verbs) {
    arguments.emplace_back("--help");
    const Outcome outcome = convoy(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments[0];
    EXPECT_THAT(outcome.out, HasSubstr("Usage"));
    EXPECT_THAT(outcome.err, IsEmpty());
  }
  EXPECT_EQ(convoy({"--version"}).code, 0);
}

TEST_F(Verbs, UnknownOnesAreAnsweredWithTheNearest) {
  const Outcome outcome = convoy({"trian", "job.yaml"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("trian"), HasSubstr("did you mean 'train'?")));
  EXPECT_EQ(convoy({}).code, 2);
  EXPECT_EQ(convoy({"train", "job.yaml", "--rnu", "run"}).code, 2);
}

TEST_F(Verbs, ConfigPrintsAJobThatConfigAccepts) {
  const Outcome printed = convoy({"config"});
  ASSERT_EQ(printed.code, 0);
  put(folder_ / "default.yaml", printed.out);
  const Outcome resolved = convoy({"config", "default.yaml"});
  EXPECT_EQ(resolved.code, 0) << resolved.all();
  put(folder_ / "resolved.yaml", resolved.out);
  EXPECT_EQ(convoy({"config", "resolved.yaml"}).out, resolved.out);
}

TEST_F(Verbs, ConfigResolvesAndExplains) {
  EXPECT_THAT(convoy({"config", "job.yaml", "--set", "train.batch=64"}).out,
              HasSubstr("batch: 64"));
  const Outcome explained = convoy({"config", "--help-key", "train.lr"});
  EXPECT_EQ(explained.code, 0);
  EXPECT_THAT(explained.out, HasSubstr("one-cycle"));
  const Outcome unknown = convoy({"config", "--help-key", "train.bacth"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("train.batch"));
}

TEST_F(Verbs, BenchModelPrintsOneJsonObject) {
  const Outcome outcome =
      convoy({"bench", "model", "lenet", "--batch", "8", "--steps", "2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  ASSERT_EQ(lines(outcome.out).size(), 1U);
  const auto result = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(result.at("model"), "lenet");
  EXPECT_EQ(result.at("batch"), 8);
  for (const char* key :
       {"images_per_second", "step_seconds", "peak_rss_bytes", "lanes", "grain", "gflops"}) {
    EXPECT_GT(result.at(key), 0) << key;
  }
  EXPECT_NEAR(
      result.at("images_per_second").get<double>() * result.at("step_seconds").get<double>(), 8,
      1e-6);
}

TEST_F(Verbs, BenchLayersTellsTheShareOfEachLayer) {
  const std::vector<std::string> arguments{"bench",   "layers", "lenet",        "--batch", "8",
                                           "--steps", "2",      "--algorithms", "direct"};
  EXPECT_THAT(convoy(arguments).out, AllOf(HasSubstr("conv1"), HasSubstr("fc2")));
  std::vector<std::string> with_json = arguments;
  with_json.emplace_back("--json");
  const Outcome outcome = convoy(with_json);
  ASSERT_EQ(lines(outcome.out).size(), 1U) << outcome.all();
  double shares = 0;
  const auto result = nlohmann::json::parse(outcome.out);
  for (const auto& layer : result.at("layers")) {
    shares += layer.at("share").get<double>();
  }
  EXPECT_NEAR(shares, 1, 1e-6);
}

TEST_F(Verbs, BenchLoweringMeasuresImagesTogetherAndPartitions) {
  const Outcome outcome =
      convoy({"bench", "lowering", "lenet", "--batch", "8", "--threads", "2", "--json"});
  ASSERT_EQ(lines(outcome.out).size(), 1U) << outcome.all();
  const auto rows = nlohmann::json::parse(outcome.out).at("results");
  ASSERT_EQ(rows.size(), 5U) << "1, 4 and 8 images in one partition, 1 and 4 in two";
  for (const auto& row : rows) EXPECT_GT(row.at("images_per_second"), 0);
  EXPECT_EQ(rows[0].at("times_per_image"), 1.0);
  EXPECT_EQ(rows[4].at("partitions"), 2);
  EXPECT_EQ(convoy({"bench", "lowering", "lenet", "--batch", "7", "--threads", "2"}).code, 2);
}

TEST_F(Verbs, BenchPredictorsComparesThemOnTraces) {
  put(folder_ / "times.csv",
      ",worker,gpu,time,batch_time_norm\n0,0,25,1,500\n1,1,25,1,250\n2,0,25,11,400\n"
      "3,1,25,11,200\n4,0,25,21,500\n5,1,25,21,250\n");
  const Outcome outcome =
      convoy({"bench", "predictors", "times.csv", "load-ahead", "--workers", "2", "--json"});
  ASSERT_EQ(lines(outcome.out).size(), 1U) << outcome.all();
  const auto traces = nlohmann::json::parse(outcome.out).at("traces");
  ASSERT_EQ(traces.size(), 2U);
  EXPECT_EQ(traces[0].at("workers"), 2);
  EXPECT_EQ(traces[0].at("speed_is_stand_in"), false);
  EXPECT_EQ(traces[1].at("made_up"), true);
  ASSERT_EQ(traces[1].at("predictors").size(), 6U);
  EXPECT_EQ(traces[1].at("predictors")[0].at("rmse_to_last"), 1.0);
  for (const auto& row : traces[1].at("predictors")) EXPECT_GE(row.at("step_loss"), 0);
  EXPECT_THAT(convoy({"bench", "predictors", "noise", "--predictors", "last,narx"}).out,
              AllOf(HasSubstr("made up"), HasSubstr("narx"), Not(HasSubstr("arima"))));
}

TEST_F(Verbs, BenchPredictorsRefusesWhatItCannotRead) {
  put(folder_ / "times.csv", ",worker,gpu,time,batch_time_norm\n0,0,25,1,fast\n");
  const Outcome wrong = convoy({"bench", "predictors", "times.csv"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("times.csv:2: column 5"), HasSubstr("fast")));
  EXPECT_EQ(convoy({"bench", "predictors", "nowhere.csv"}).code, 2);
  const Outcome unknown = convoy({"bench", "predictors", "noise", "--predictors", "narks"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean 'narx'?"));
}

TEST_F(Verbs, BenchPeakPrintsOneJsonObject) {
  const Outcome outcome = convoy({"bench", "peak", "--json"});
  ASSERT_EQ(lines(outcome.out).size(), 1U) << outcome.all();
  const auto peak = nlohmann::json::parse(outcome.out);
  for (const char* key : {"fma_gflops_per_core", "copy_gb_per_second", "cores"}) {
    EXPECT_GT(peak.at(key), 0) << key;
  }
}

TEST_F(Verbs, BenchNamesTheNearestModel) {
  const Outcome outcome = convoy({"bench", "model", "resnet-21"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean 'resnet-20'?"));
}

TEST_F(Verbs, NothingIsReorderedInTheSteadyState) {
  const Outcome outcome = convoy({"bench", "model", "resnet-20", "--batch", "8", "--steps", "2",
                                  "--grain", "4", "--threads", "2", "--algorithms", "direct"},
                                 {"DNNL_VERBOSE=1"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  int convolutions = 0;
  for (const std::string& line : lines(outcome.out)) {
    if (line.find("_verbose,exec,") == std::string::npos) continue;
    EXPECT_THAT(line, Not(HasSubstr(",reorder,")));
    if (line.find(",convolution,") != std::string::npos) ++convolutions;
  }
  EXPECT_GT(convolutions, 0);
}

TEST_F(Verbs, InfoShowsTheMachineAndTheZoo) {
  const Outcome outcome = convoy({"info"});
  ASSERT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("oneDNN"), HasSubstr("\nmemory "), HasSubstr("resnet-50")));
  EXPECT_THAT(convoy({"info", "--model", "lenet"}).out, HasSubstr("conv1"));
}

TEST_F(Verbs, InfoPrintsAModelThatAJobAccepts) {
  const Outcome printed = convoy({"info", "--model", "resnet-20", "--yaml"});
  ASSERT_EQ(printed.code, 0);
  std::string job = "model:\n";
  for (const std::string& line : lines(printed.out)) job += "  " + line + "\n";
  job +=
      "data: {kind: synthetic, shape: [3, 32, 32], classes: 10, size: 16}\n"
      "train: {batch: 8, max_steps: 1}\n";
  put(folder_ / "job.yaml", job);
  const Outcome outcome = train("run");
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, HasSubstr("resnet-20"));
}

}  // namespace
}  // namespace convoy::app
