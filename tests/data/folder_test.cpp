#include "convoy/data/folder.hpp"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/helpers.hpp"

namespace convoy::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void touch(const Folder& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) folder.write(name, std::vector<uint8_t>{1});
}

TEST(FindImages, TakesTrainAndValByClassAndName) {
  const Folder folder;
  touch(folder, {"train/dog/b.jpg", "train/dog/a.JPEG", "train/cat/x.Png", "val/cat/1.png",
                 "val/dog/2.jpg", "train/cat/deeper/y.jpeg"});
  const FolderImages found = find_images(folder.string() + "/");
  EXPECT_THAT(found.classes, ElementsAre("cat", "dog"));
  EXPECT_THAT(
      found.train,
      ElementsAre(FoundImage{"train/cat/deeper/y.jpeg", 0}, FoundImage{"train/cat/x.Png", 0},
                  FoundImage{"train/dog/a.JPEG", 1}, FoundImage{"train/dog/b.jpg", 1}));
  EXPECT_THAT(found.test,
              ElementsAre(FoundImage{"val/cat/1.png", 0}, FoundImage{"val/dog/2.jpg", 1}));
  EXPECT_THAT(found.others, IsEmpty());
}

TEST(FindImages, PrefersValToTest) {
  const Folder folder;
  touch(folder, {"train/a/1.jpg", "test/a/2.jpg"});
  EXPECT_THAT(find_images(folder.path()).test, ElementsAre(FoundImage{"test/a/2.jpg", 0}));
  touch(folder, {"val/a/3.jpg"});
  EXPECT_THAT(find_images(folder.path()).test, ElementsAre(FoundImage{"val/a/3.jpg", 0}));
}

TEST(FindImages, PassesOverHiddenFilesAndTellsOthers) {
  const Folder folder;
  touch(folder, {"train/a/1.jpg", "train/a/.2.jpg", "train/.b/3.jpg", "train/a/.c/4.jpg",
                 "train/a/notes.txt", "val/a/5.jpg", ".val/a/6.jpg"});
  const FolderImages found = find_images(folder.path());
  EXPECT_THAT(found.classes, ElementsAre("a"));
  EXPECT_THAT(found.train, ElementsAre(FoundImage{"train/a/1.jpg", 0}));
  EXPECT_THAT(found.test, ElementsAre(FoundImage{"val/a/5.jpg", 0}));
  EXPECT_THAT(found.others, ElementsAre("train/a/notes.txt"));
}

TEST(FindImages, SplitsEachClassTheSameWayEverywhere) {
  std::vector<std::string> names;
  names.reserve(53);
  for (int i = 0; i < 40; ++i) names.push_back(fmt::format("cat/{:02}.jpg", i));
  for (int i = 0; i < 12; ++i) names.push_back(fmt::format("dog/{:02}.jpg", i));
  names.emplace_back("owl/only.jpg");
  const Folder one;
  touch(one, names);
  const Folder two;  // found in another order, and below train/
  std::reverse(names.begin(), names.end());
  for (const std::string& name : names) touch(two, {"train/" + name});
  const FolderImages found = find_images(one.path(), 0.25);
  EXPECT_EQ(found.train.size(), 30U + 9U + 1U);
  EXPECT_EQ(found.test.size(), 10U + 3U);
  std::set<std::string> all;
  for (const auto* part : {&found.train, &found.test}) {
    EXPECT_TRUE(std::is_sorted(part->begin(), part->end(),
                               [](const auto& a, const auto& b) { return a.path < b.path; }));
    for (const FoundImage& image : *part) all.insert(image.path);
  }
  EXPECT_EQ(all.size(), 53U);
  const FolderImages again = find_images(two.path(), 0.25);
  ASSERT_EQ(again.test.size(), found.test.size());
  for (size_t i = 0; i < found.test.size(); ++i) {
    EXPECT_EQ(again.test[i].path, "train/" + found.test[i].path);
  }
  // Not simply the first ones.
  EXPECT_NE(found.test.front().path + found.test[9].path, "cat/00.jpgcat/09.jpg");
}

TEST(FindImages, SaysWhatWasLookedFor) {
  const Folder folder;
  EXPECT_THAT(refusal([&] { find_images(folder.path()); }),
              AllOf(HasSubstr("no images were found"), HasSubstr("*.jpg, *.jpeg or *.png"),
                    HasSubstr("ROOT/train/CLASS")));
  touch(folder, {"loose.jpg", "a/readme.md"});
  EXPECT_THAT(refusal([&] { find_images(folder.path()); }), HasSubstr("such as a/readme.md"));
  EXPECT_THAT(refusal([&] { find_images(folder.path() / "none"); }), HasSubstr("is not a folder"));
  EXPECT_THAT(refusal([&] { find_images(folder.path(), 1.5); }),
              AllOf(HasSubstr("between 0 and 1"), HasSubstr("1.5")));
}

TEST(FindImages, NamesClassesThatAreEmptyOrOnlyInTheTestSet) {
  const Folder folder;
  touch(folder, {"train/a/1.jpg", "train/b/none.gif", "val/a/1.jpg"});
  EXPECT_THAT(refusal([&] { find_images(folder.path()); }),
              AllOf(HasSubstr("1 class folder without training images"), HasSubstr(": b")));
  touch(folder, {"train/b/1.jpg", "val/c/1.jpg", "val/d/1.jpg"});
  EXPECT_THAT(refusal([&] { find_images(folder.path()); }),
              AllOf(HasSubstr("/val: classes that"), HasSubstr("c, d")));
  const Folder few;
  touch(few, {"a/1.jpg", "b/1.jpg"});
  EXPECT_THAT(refusal([&] { find_images(few.path()); }), HasSubstr("no test images were found"));
  touch(few, {"train/a/1.jpg", "val/a/none.txt"});
  EXPECT_THAT(refusal([&] { find_images(few.path()); }),
              AllOf(HasSubstr("no test images"), HasSubstr("/val/CLASS")));
}

}  // namespace
}  // namespace convoy::data
