#include "convoy/train/progress.hpp"

#include <algorithm>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace convoy::train {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// A file that ends up in a string.
class Screen {
 public:
  Screen() : file_(open_memstream(&text_, &size_)) {}
  ~Screen() {
    std::fclose(file_);
    std::free(text_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  std::FILE* file() const { return file_; }
  std::string text() const {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

Standing at_step(int64_t step) {
  Standing standing;
  standing.step = step;
  standing.total_steps = 3900;
  standing.epoch = 0.31;
  standing.epochs = 10;
  standing.loss = 1.83214;
  standing.accuracy = 0.412;
  standing.images_per_second = 5321.4;
  standing.left = Seconds{72};
  return standing;
}

int64_t count(const std::string& text, char what) {
  return std::count(text.begin(), text.end(), what);
}

TEST(Standing, IsOneLineWithEverything) {
  EXPECT_EQ(format_standing(at_step(120)),
            "step 120/3900  epoch 0.31/10  loss 1.8321  acc 41.20 %  5321 images/s  "
            "1 min 12 s left");
}

TEST(Standing, LeavesOffWhatDoesNotFit) {
  EXPECT_EQ(format_standing(at_step(120), 41), "step 120/3900  epoch 0.31/10  loss 1.8321");
  EXPECT_EQ(format_standing(at_step(120), 40), "step 120/3900  epoch 0.31/10");
  EXPECT_EQ(format_standing(at_step(120), 3), "");
}

TEST(Standing, LeavesOutWhatIsNotKnownYet) {
  Standing standing = at_step(1);
  standing.accuracy.reset();
  standing.left.reset();
  EXPECT_THAT(format_standing(standing), Not(HasSubstr("acc")));
  EXPECT_THAT(format_standing(standing), Not(HasSubstr("left")));
}

TEST(Progress, OnATerminalRewritesOneLineAtMostTenTimesASecond) {
  const Screen screen;
  Progress progress(screen.file(), ProgressMode::live, {.columns = 60});
  for (int i = 0; i < 101; ++i) progress.update(at_step(i), Seconds{5 + 0.01 * i});
  EXPECT_LE(count(screen.text(), '\r'), 11);
  EXPECT_GE(count(screen.text(), '\r'), 10);
  EXPECT_EQ(count(screen.text(), '\n'), 0);
  progress.finish();
  EXPECT_EQ(screen.text().back(), '\n');
  EXPECT_THAT(screen.text(), HasSubstr("step 100/3900")) << "the last one is always shown";
}

TEST(Progress, OnATerminalStaysWithinItsColumns) {
  const Screen screen;
  Progress progress(screen.file(), ProgressMode::live, {.columns = 30});
  progress.update(at_step(120), Seconds{1});
  EXPECT_EQ(screen.text(), "\r\x1b[Kstep 120/3900  epoch 0.31/10");
}

TEST(Progress, PutsMessagesInPlaceOfTheLiveLine) {
  const Screen screen;
  Progress progress(screen.file(), ProgressMode::live, {.columns = 30});
  progress.message("hello");
  progress.update(at_step(1), Seconds{1});
  progress.message("eval: 91 %");
  EXPECT_THAT(screen.text(), StartsWith("hello\n\r\x1b[Kstep 1/"));
  EXPECT_THAT(screen.text(), HasSubstr("\r\x1b[Keval: 91 %\n"));
}

TEST(Progress, EndsItsLineWhenItIsDestroyed) {
  const Screen screen;
  { Progress(screen.file(), ProgressMode::live, {.columns = 30}).update(at_step(1), Seconds{1}); }
  EXPECT_EQ(screen.text().back(), '\n');
}

TEST(Progress, ElsewherePrintsOnePlainLinePerInterval) {
  const Screen screen;
  Progress progress(screen.file(), ProgressMode::plain, {.plain_interval = Seconds{10}});
  for (int i = 0; i < 25; ++i) progress.update(at_step(i), Seconds{100.0 + i});
  EXPECT_EQ(count(screen.text(), '\n'), 3);
  progress.finish();
  progress.finish();
  EXPECT_EQ(count(screen.text(), '\n'), 4);
  EXPECT_EQ(count(screen.text(), '\r'), 0);
  EXPECT_THAT(screen.text(), HasSubstr("step 24/3900"));
}

TEST(Progress, InJsonPrintsNothingElse) {
  const Screen screen;
  Progress progress(screen.file(), ProgressMode::json);
  progress.message("for people");
  progress.update(at_step(7), Seconds{1});
  progress.finish();
  const auto line = nlohmann::json::parse(screen.text());
  EXPECT_EQ(line.at("step"), 7);
  EXPECT_EQ(line.at("accuracy"), 0.412);
  EXPECT_EQ(line.at("seconds_left"), 72);
  progress.json_line(R"({"event":"eval"})");
  EXPECT_THAT(screen.text(), HasSubstr("\n{\"event\":\"eval\"}\n"));
}

TEST(Progress, ChoosesPlainWhereThereIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  EXPECT_EQ(progress_mode(file, false), ProgressMode::plain);
  EXPECT_EQ(progress_mode(file, true), ProgressMode::json);
  std::fclose(file);
}

}  // namespace
}  // namespace convoy::train
