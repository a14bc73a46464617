#include "convoy/job/manual.hpp"

#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/job/fields.hpp"
#include "convoy/job/read.hpp"
#include "convoy/job/value.hpp"

namespace convoy::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Table, HasEachKeyOnceInASectionOfItsOwn) {
  std::set<std::string> seen;
  for (const Field& field : fields()) {
    EXPECT_TRUE(seen.insert(field.key).second) << field.key;
    EXPECT_NE(find_section(parent(field.key)), nullptr) << field.key;
    EXPECT_FALSE(field.help.empty()) << field.key;
    EXPECT_EQ(find_field(field.key), &field);
  }
  EXPECT_EQ(keys().size(), fields().size());
}

TEST(Table, ReachesADifferentMemberWithEachField) {
  for (const Field& field : fields()) {
    if (std::holds_alternative<Access<YAML::Node>>(field.place)) continue;
    Job job;
    const std::string before = print_value(field, job);
    for (const char* value : {"true", "false", "0.5", "3", "4", "[3, 3, 3]", "lars", "cosine",
                              "bsp", "exact", "ring", "skip", "fetch", "narx", "profile", "merged",
                              "scaled", "[0.5, 0.5]", "[0.5, 0.5, 0.5]"}) {
      read_value(field, YAML::Load(value), job);
      if (print_value(field, job) != before) break;
    }
    if (field.key == "data.kind") job.data.kind = "idx";
    ASSERT_NE(print_value(field, job), before) << field.key;
    for (const Field& other : fields()) {
      if (&other == &field || std::holds_alternative<Access<YAML::Node>>(other.place)) continue;
      EXPECT_EQ(print_value(other, job), print_value(other, Job{})) << field.key << other.key;
    }
  }
}

TEST(Table, HasDefaultsThatItAcceptsItself) {
  for (const Field& field : fields()) {
    if (field.required) continue;
    Job job;
    EXPECT_EQ(read_value(field, YAML::Load(print_value(field, job)), job), "") << field.key;
  }
}

TEST(Table, DoesNotCallAWrongNameByARightOne) {
  for (const Section& section : sections()) {
    for (const std::string& wrong : section.also) {
      EXPECT_EQ(find_section(path_of(parent(section.key), wrong)), nullptr) << wrong;
    }
  }
  for (const Field& field : fields()) {
    for (const std::string& wrong : field.also) {
      EXPECT_EQ(find_field(path_of(parent(field.key), wrong)), nullptr) << wrong;
      EXPECT_EQ(meant_by(path_of(parent(field.key), wrong)), field.key) << wrong;
    }
  }
}

TEST(Config, PrintsAJobThatReadsBackToTheDefaults) {
  const Job job = parse_job(annotated_default(), "config");
  EXPECT_EQ(job.train, Train{});
  EXPECT_EQ(job.engine, Engine{});
  EXPECT_EQ(job.sync, Sync{});
  Data data = job.data;
  data.kind.clear();
  data.path.clear();
  EXPECT_EQ(data, Data{});
  for (const Field& field : fields()) {
    EXPECT_THAT(annotated_default(), HasSubstr(std::string(leaf(field.key)) + ": "));
  }
}

TEST(Help, DescribesTheJobItsSectionsAndFields) {
  EXPECT_THAT(help_text(), AllOf(HasSubstr("model  [required]"), HasSubstr("Keys: batch, epochs")));
  EXPECT_THAT(help_text("train"), AllOf(HasSubstr("batch  [128]"), HasSubstr("lr\n")));
  EXPECT_THAT(help_text("train.lr.schedule"), HasSubstr("half a cosine"));
  EXPECT_THAT(help_text("engine"), HasSubstr("lanes  [auto]"));
  try {
    help_text("tarin");
    FAIL() << "accepted an unknown topic";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean train?"));
  }
}

TEST(Help, FitsTheTerminal) {
  for (const Section& section : sections()) {
    std::istringstream lines(help_text(section.key));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 90U) << line;
  }
}

TEST(Manual, IsInTheRepositoryAsGenerated) {
  std::ifstream file(CONVOY_SOURCE_DIR "/docs/job.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == markdown())
      << "docs/job.md is out of date; run: convoy config --markdown > docs/job.md";
}

TEST(Manual, ShowsJobsThatAreAccepted) {
  const std::string text = markdown();
  const std::string begin = "```yaml\n";
  int jobs = 0;
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
    at += begin.size();
    const std::string job = text.substr(at, text.find("```", at) - at);
    EXPECT_NO_THROW(parse_job(job, "docs/job.md")) << job;
    ++jobs;
  }
  EXPECT_EQ(jobs, 4);
}

}  // namespace
}  // namespace convoy::job
