#include "convoy/base/text.hpp"

#include <gtest/gtest.h>

namespace convoy {
namespace {

TEST(Nearest, FindsTheWordThatWasMeant) {
  const std::vector<std::string> keys = {"batch", "epochs", "momentum", "weight_decay"};
  EXPECT_EQ(nearest("bacth", keys), "batch");
  EXPECT_EQ(nearest("epoch", keys), "epochs");
  EXPECT_EQ(nearest("momentun", keys), "momentum");
  EXPECT_EQ(nearest("weigth_dcay", keys), "weight_decay");
  EXPECT_EQ(nearest("batch", keys), "batch");
}

TEST(Nearest, PrefersTheCloserWord) {
  EXPECT_EQ(nearest("mea", {"med", "mean"}), "med") << "the first of equals";
  EXPECT_EQ(nearest("meann", {"std", "men", "mean"}), "mean");
}

TEST(Nearest, GivesNoGuessThatWouldMislead) {
  EXPECT_EQ(nearest("dashboard", {"batch", "epochs"}), "");
  EXPECT_EQ(nearest("batch", {}), "");
  EXPECT_EQ(nearest("gpu", {"lanes", "grain"}), "");
}

TEST(Join, PutsTheSeparatorBetweenWordsOnly) {
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(join({"a"}), "a");
  EXPECT_EQ(join({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(join({"a", "b"}, "\n"), "a\nb");
}

}  // namespace
}  // namespace convoy
