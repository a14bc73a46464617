// Traces are read as they are published, and refused with file, line and what was expected.

#include "convoy/sync/predict/traces.hpp"

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/sync/predict/tar.hpp"

namespace convoy::sync {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kBitbrains =
    "Timestamp [ms];\tCPU cores;\tCPU capacity provisioned [MHZ];\tCPU usage [MHZ];\tCPU usage "
    "[%];\tMemory capacity provisioned [KB];\tMemory usage [KB];\tDisk read throughput "
    "[KB/s];\tDisk write throughput [KB/s];\tNetwork received throughput [KB/s];\tNetwork "
    "transmitted throughput [KB/s]\n"
    "100;\t4;\t11703.9;\t68.2;\t25.0;\t1.6E7;\t4.0E6;\t0.0;\t0.6;\t0.0;\t1.0\n"
    "400;\t4;\t11703.9;\t58.5;\t75.0;\t1.6E7;\t8.0E6;\t0.0;\t0.6;\t0.0;\t1.0\n"
    "700;\t4;\t11703.9;\t58.5;\t104.5;\t1.6E7;\t0.0;\t0.0;\t0.6;\t0.0;\t1.0\n";

Trace parse(const std::string& text) {
  return parse_trace("folder/some.csv", {text.begin(), text.end()});
}

std::string refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

/// A ustar archive with one file.
std::string archive(const std::string& name, const std::string& content) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(124, 11, fmt::format("{:011o}", content.size()));
  header.replace(148, 8, 8, ' ');
  header[156] = '0';
  header.replace(257, 5, "ustar");
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  header.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
  std::string all = header + content;
  all.resize((all.size() + 511) / 512 * 512 + 1024);
  return all;
}

TEST(Traces, MiniBatchTimesBecomeSpeedsOfMeanOne) {
  const Trace trace = parse(
      ",worker,gpu,time,batch_time_norm\n0,0,25,1,500\n1,1,25,1,250\n2,0,25,11,500\n"
      "3,1,25,11,250\n");
  EXPECT_FALSE(trace.stand_in);
  ASSERT_EQ(trace.workers.size(), 2U);
  EXPECT_EQ(trace.name, "some.csv");
  EXPECT_EQ(trace.workers[1].name, "worker 1");
  ASSERT_EQ(trace.workers[1].steps.size(), 2U);
  EXPECT_NEAR(trace.workers[0].steps[1].speed, 2.0 / 3, 1e-12);
  EXPECT_NEAR(trace.workers[1].steps[1].speed, 4.0 / 3, 1e-12);
  EXPECT_EQ(trace.workers[0].steps[0].load.cpu, 1) << "nothing is known";
}

TEST(Traces, LoadStandsInForSpeedAndIsVisibleOneSampleLate) {
  const Trace trace = parse(
      "m_1,10,20,50,,,1,2,3\nm_2,10,90,50,,,1,2,3\nm_1,20,60,70,,,1,2,3\nm_2,40,100,5,,,1,2,3\n"
      "m_1,30,10,70,,,1,2,3\nm_2,50,0,5,,,1,2,3\n");
  EXPECT_TRUE(trace.stand_in);
  ASSERT_EQ(trace.workers.size(), 2U);
  const WorkerTrace& first = trace.workers[0];
  ASSERT_EQ(first.steps.size(), 2U) << "before the first sample nothing was visible";
  EXPECT_DOUBLE_EQ(first.steps[0].speed, 0.4);
  EXPECT_DOUBLE_EQ(first.steps[0].load.cpu, 0.8);
  EXPECT_DOUBLE_EQ(first.steps[0].load.memory, 0.5);
  EXPECT_DOUBLE_EQ(first.steps[1].speed, 0.9);
  EXPECT_DOUBLE_EQ(first.steps[1].load.cpu, 0.4);
  EXPECT_DOUBLE_EQ(trace.workers[1].steps[0].speed, kLeastFree) << "of a machine in full use";
}

TEST(Traces, BitbrainsAreReadAloneAndFromATar) {
  const std::string tar = archive("rnd/41.csv", kBitbrains);
  for (const Trace& trace : {parse(kBitbrains), parse(tar)}) {
    EXPECT_TRUE(trace.stand_in);
    ASSERT_EQ(trace.workers.size(), 1U);
    ASSERT_EQ(trace.workers[0].steps.size(), 2U);
    EXPECT_DOUBLE_EQ(trace.workers[0].steps[0].speed, 0.25);
    EXPECT_DOUBLE_EQ(trace.workers[0].steps[0].load.cpu, 0.75);
    EXPECT_DOUBLE_EQ(trace.workers[0].steps[0].load.memory, 0.75);
    EXPECT_DOUBLE_EQ(trace.workers[0].steps[1].speed, kLeastFree) << "104.5 % in use";
  }
  EXPECT_EQ(parse(tar).workers[0].name, "41");
}

TEST(Traces, AreRefusedWithFileLineAndWhatWasExpected) {
  EXPECT_THAT(refusal(",worker,gpu,time,batch_time_norm\n0,0,25,1,500\n1,0,25,11\n"),
              AllOf(HasSubstr("folder/some.csv:3: "), HasSubstr("expected 5 columns"),
                    HasSubstr("found 4")));
  EXPECT_THAT(refusal(",worker,gpu,time,batch_time_norm\n0,0,25,1,0\n"),
              AllOf(HasSubstr(":2: column 5: expected batch_time_norm"), HasSubstr("found '0'")));
  EXPECT_THAT(refusal(",worker,gpu,time,batch_time_norm\n0,0,25,5,9\n1,0,25,4,9\n"),
              HasSubstr(":3: column 4: expected an iteration not before 5"));
  EXPECT_THAT(refusal("m_1,10,20,50,,,1,2,3\nm_1,20,x,50,,,1,2,3\n"),
              AllOf(HasSubstr(":2: column 3: expected CPU"), HasSubstr("found 'x'")));
  EXPECT_THAT(refusal("m_1,10,20,50,,,1,2,3\nm_1,20,nan,50,,,1,2,3\n"), HasSubstr("found 'nan'"));
  EXPECT_THAT(refusal("m_1,10,20,50,,,1,2,3\nm_1,20,,50,,,1,2,3\n"), HasSubstr("found ''"));
  EXPECT_THAT(refusal("m_1,10,20,50,,,1,2,3\nm_1,5,20,50,,,1,2,3\n"),
              HasSubstr(":2: column 2: expected a time not before 10"));
  EXPECT_THAT(refusal("m_1,10,20,50,,,1,2,3\n"), HasSubstr("expected two steps"));
  EXPECT_THAT(refusal(kBitbrains + "800;\t4;\n"), HasSubstr(":5: expected 11 columns"));
  EXPECT_THAT(refusal("Timestamp [ms];\n"), HasSubstr(":1: expected the header of a Bitbrains"));
  EXPECT_THAT(refusal("hello\n"), AllOf(HasSubstr(":1: expected mini-batch times"),
                                        HasSubstr("machine usage"), HasSubstr("Bitbrains")));
  EXPECT_THAT(refusal(""), HasSubstr("expected mini-batch times"));
}

TEST(Traces, DamagedArchivesAreRefused) {
  std::string tar = archive("a.csv", kBitbrains);
  EXPECT_THAT(refusal(tar.substr(0, 700)), HasSubstr("ends after 188 bytes"));
  EXPECT_THAT(refusal(archive("a.txt", kBitbrains)), HasSubstr("expected .csv files"));
  EXPECT_THAT(refusal(archive("a.csv", "hello")), HasSubstr("some.csv/a.csv:1: expected"));
  tar[3] = 'x';
  EXPECT_THAT(refusal(tar), HasSubstr("checksum"));
}

TEST(Traces, MadeUpLoadIsVisibleOneStepBeforeItSlows) {
  const Trace trace = load_ahead_trace(3, 500, 1);
  EXPECT_TRUE(trace.made_up);
  int drops = 0;
  for (const WorkerTrace& worker : trace.workers) {
    ASSERT_EQ(worker.steps.size(), 500U);
    for (size_t t = 1; t + 1 < worker.steps.size(); ++t) {
      const Observation& before = worker.steps[t - 1];
      const Observation& at = worker.steps[t];
      const Observation& after = worker.steps[t + 1];
      if (at.load.cpu > before.load.cpu - 0.2) continue;
      ++drops;
      EXPECT_NEAR(at.speed / before.speed, 1, 0.25) << "still fast";
      EXPECT_NEAR(after.speed / at.speed, at.load.cpu / before.load.cpu, 0.25);
    }
  }
  EXPECT_GT(drops, 10);
}

std::string traces_folder() {
  const char* root = std::getenv("CONVOY_DATA");
  return std::string(root != nullptr ? root : CONVOY_SOURCE_DIR "/data") + "/traces";
}

TEST(Traces, ThePublishedOnesAreReadWhole) {
  const std::filesystem::path folder = traces_folder();
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << "NOT TESTED: no " << folder
                 << ". Set CONVOY_DATA to the folder that holds traces/";
  }
  const Trace times = read_trace(folder / "alibaba-pai-minibatch-2020/job_1_norm.csv");
  EXPECT_EQ(times.workers.size(), 10U);
  for (const WorkerTrace& worker : times.workers) EXPECT_EQ(worker.steps.size(), 300U);
  EXPECT_EQ(read_trace(folder / "alibaba-2018-machine_usage-sample.csv.gz").workers.size(), 16U);
  const Trace machines = read_trace(folder / "bitbrains-rnd-2013-7-14vms.tar.gz");
  ASSERT_EQ(machines.workers.size(), 14U);
  EXPECT_EQ(machines.workers[0].steps.size(), 8259U) << "one less than samples of VM 185";
}

}  // namespace
}  // namespace convoy::sync
