// convoy bench data, as a user calls it.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "convoy/data/image.hpp"

#include "tests/app/program.hpp"

namespace convoy::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

/// Open MPI leaves memory to the end of the process.
constexpr const char* kNoLeaks = "ASAN_OPTIONS=detect_leaks=0";

/// Twelve training images and four others, each of a gray of its own.
class BenchData : public Program {
 protected:
  void SetUp() override {
    Program::SetUp();
    for (const char* split : {"train", "val"}) {
      for (const char* name : {"cat", "dog"}) {
        const std::filesystem::path folder = folder_ / "images" / split / name;
        std::filesystem::create_directories(folder);
        for (int i = 0; i < (split == std::string("train") ? 6 : 2); ++i) {
          std::vector<uint8_t> pixels(size_t{3} * 20 * 12, static_cast<uint8_t>(40 * i));
          const auto jpeg =
              data::encode_jpeg({.bytes = pixels, .width = 20, .height = 12, .channels = 3}, 90);
          put(folder / (std::to_string(i) + ".jpg"),
              {reinterpret_cast<const char*>(jpeg.data()), jpeg.size()});
        }
      }
    }
  }

  Outcome bench(const std::string& path, const std::vector<std::string>& options) const {
    std::vector<std::string> arguments{"bench", "data", path, "--size", "16", "--seconds", "0.02"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return convoy(arguments, {kNoLeaks});
  }
};

TEST_F(BenchData, MeasuresEveryStageBesideWhatBoundsIt) {
  ASSERT_EQ(convoy({"pack", "images", "-o", "set.pack"}).code, 0);
  const Outcome outcome = bench("set.pack", {"--threads", "2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  ASSERT_EQ(lines(outcome.out).size(), 1U);
  const auto result = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(result.at("images"), 12);
  std::vector<std::string> stages;
  for (const auto& row : result.at("stages")) {
    const std::string name = row.at("stage");
    stages.push_back(fmt::format("{} {}", name, row.at("threads").get<int>()));
    EXPECT_GT(row.at("bytes_out_per_second"), 0) << name;
    if (!row.contains("bound")) continue;
    EXPECT_GT(row.at("images_per_second"), 0) << name;
    EXPECT_GT(row.at("images_per_cpu_second"), 0) << name;
    EXPECT_NEAR(row.at("of_bound").get<double>() * row.at("bound_bytes_per_second").get<double>(),
                row.at("bytes_compared_per_second").get<double>(), 1)
        << name;
  }
  EXPECT_THAT(stages,
              testing::ElementsAre("file-cold 1", "records-cold 2", "copy 1", "copy 2", "file 1",
                                   "file-kept 1", "records 2", "decode 1", "decode 2", "prepare 1",
                                   "prepare 2", "jitter 1", "jitter 2", "loader 1", "loader 2"));
}

TEST_F(BenchData, PacksAFolderFirstAndSaysWhatWasCached) {
  const Outcome outcome = bench("images", {"--threads", "1"});
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("images.pack: 12 training images"),
                                 HasSubstr("page cache: "), HasSubstr("% of copy")));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "images.pack"));
}

TEST_F(BenchData, SeveralWorkersMeasureTheShuffleBesideMpi) {
  ASSERT_EQ(convoy({"pack", "images", "-o", "set.pack"}).code, 0);
  const Outcome outcome = bench("set.pack", {"--workers", "2", "--segment", "256", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  const auto result = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(result.at("ranks"), 2);
  const auto& shuffle = result.at("shuffle");
  EXPECT_EQ(shuffle.at("message_bytes"), 128);
  EXPECT_GT(shuffle.at("held_bytes"), 256) << "more than one segment";
  for (const char* key : {"shuffles", "moved_bytes", "bytes_per_second_and_rank",
                          "mpi_bytes_per_second_and_rank", "least_ratio", "ratio"}) {
    EXPECT_GT(shuffle.at(key), 0) << key;
  }
  EXPECT_LE(shuffle.at("ratio"), shuffle.at("largest_ratio"));
}

TEST_F(BenchData, RefusesWhatItCannotMeasure) {
  put(folder_ / "text.pack", "no images at all");
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong{
      {{"nowhere"}, "there is no nowhere; expected a packed file"},
      {{"text.pack"}, "text.pack: is not a packed file"},
      {{"cache"}, "no images were found"},
      {{}, "PATH is required"},
      {{"images", "--size", "0"}, "--size"},
      {{"images", "--seconds", "-1"}, "--seconds"},
      {{"images", "--workers", "2", "--segment", "much"}, "'much' is not an amount of memory"},
  };
  std::filesystem::create_directories(folder_ / "cache");
  for (const auto& [arguments, message] : wrong) {
    std::vector<std::string> all{"bench", "data"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome outcome = convoy(all, {kNoLeaks});
    EXPECT_EQ(outcome.code, 2) << outcome.all();
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_THAT(outcome.out, IsEmpty());
  }
}

}  // namespace
}  // namespace convoy::app
