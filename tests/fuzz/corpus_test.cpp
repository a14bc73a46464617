// Everything that fuzzing ever found, and a few seeds, on every run of the tests.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "tests/fuzz/targets.hpp"

namespace convoy::fuzz {
namespace {

namespace fs = std::filesystem;

class Corpus : public testing::TestWithParam<Target> {};

TEST_P(Corpus, IsRefusedOrReadWithoutHarm) {
  const fs::path folder = fs::path(CONVOY_SOURCE_DIR "/tests/fuzz/corpus") / GetParam().name;
  int files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    EXPECT_NO_THROW(GetParam().run(std::as_bytes(std::span(bytes)))) << entry.path();
    // The same cut short, as a file that was not copied to its end.
    for (size_t length = 0; length < bytes.size(); length += 1 + bytes.size() / 64) {
      EXPECT_NO_THROW(GetParam().run(std::as_bytes(std::span(bytes).first(length))))
          << entry.path() << " cut at " << length;
    }
    ++files;
  }
  EXPECT_GT(files, 0) << "nothing in " << folder;
}

INSTANTIATE_TEST_SUITE_P(Targets, Corpus, testing::ValuesIn(targets()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace convoy::fuzz
