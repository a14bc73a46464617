// convoy pack, as a user calls it.

#include <gmock/gmock.h>

#include "convoy/data/image.hpp"

#include "tests/app/program.hpp"

namespace convoy::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class PackVerb : public Program {
 protected:
  void SetUp() override {
    Program::SetUp();
    for (const char* split : {"train", "val"}) {
      for (const char* name : {"cat", "dog"}) {
        std::filesystem::create_directories(folder_ / "images" / split / name);
        for (int i = 0; i < 3; ++i) {
          std::vector<uint8_t> pixels(size_t{3} * 20 * 12, static_cast<uint8_t>(40 * i));
          const auto jpeg =
              data::encode_jpeg({.bytes = pixels, .width = 20, .height = 12, .channels = 3}, 90);
          put(folder_ / "images" / split / name / (std::to_string(i) + ".jpg"),
              {reinterpret_cast<const char*>(jpeg.data()), jpeg.size()});
        }
      }
    }
  }
};

TEST_F(PackVerb, PacksListsAndVerifies) {
  const Outcome packed = convoy({"pack", "images", "-o", "set.pack", "--threads", "2"});
  EXPECT_EQ(packed.code, 0) << packed.err;
  EXPECT_THAT(packed.out, AllOf(HasSubstr("packed 12 of 12 images"), HasSubstr("12 JPEG"),
                                HasSubstr("2: cat, dog")));
  const Outcome listed = convoy({"pack", "--list", "set.pack", "--verify"});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_THAT(listed.out,
              AllOf(HasSubstr("train        6 images"), HasSubstr("verified     12 records")));
}

TEST_F(PackVerb, DoesNotOverwrite) {
  put(folder_ / "set.pack", "precious");
  const Outcome refused = convoy({"pack", "images", "-o", "set.pack"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("exists already"));
  EXPECT_EQ(content(folder_ / "set.pack"), "precious");
}

TEST_F(PackVerb, ListsBadImagesByReasonAndLeavesThemOutIfTold) {
  put(folder_ / "images/train/cat/empty.jpg", "");
  put(folder_ / "images/train/dog/text.png", "no image");
  const Outcome refused = convoy({"pack", "images", "-o", "set.pack"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("1 empty:\n  train/cat/empty.jpg: is empty"),
                    HasSubstr("1 neither JPEG nor PNG:\n  train/dog/text.png: is neither"),
                    HasSubstr("2 of 14 images cannot be used"), HasSubstr("--bad skip")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "set.pack"));
  const Outcome packed = convoy({"pack", "images", "-o", "set.pack", "--bad", "skip"});
  EXPECT_EQ(packed.code, 0) << packed.err;
  EXPECT_THAT(packed.out, HasSubstr("packed 12 of 14 images"));
  EXPECT_THAT(packed.out, HasSubstr("14 of them in earlier sittings"));
}

TEST_F(PackVerb, NamesDamagedRecords) {
  ASSERT_EQ(convoy({"pack", "images", "-o", "set.pack"}).code, 0);
  std::string bytes = content(folder_ / "set.pack");
  bytes[64 + 30] = static_cast<char>(bytes[64 + 30] ^ 1);
  put(folder_ / "set.pack", bytes);
  EXPECT_EQ(convoy({"pack", "--list", "set.pack"}).code, 0);
  const Outcome refused = convoy({"pack", "--list", "set.pack", "--verify"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("record 0 (train/cat/0.jpg)"), HasSubstr("1 of 12 records damaged")));
  EXPECT_THAT(refused.out, Not(HasSubstr("verified")));
}

TEST_F(PackVerb, SaysHowItIsUsed) {
  const Outcome bare = convoy({"pack"});
  EXPECT_EQ(bare.code, 2);
  EXPECT_THAT(bare.err, HasSubstr("convoy pack SOURCE -o FILE"));
  EXPECT_EQ(convoy({"pack", "--list", "job.yaml"}).code, 2);
  EXPECT_EQ(convoy({"pack", "images", "-o", "x", "--bad", "perhaps"}).code, 2);
  EXPECT_EQ(convoy({"pack", "images", "-o", "x", "--verify"}).code, 2);
  EXPECT_EQ(convoy({"pack", "nowhere", "-o", "x"}).code, 2);
  EXPECT_EQ(convoy({"pack", "images", "-o", "no/such/folder/x"}).code, 1);
  EXPECT_THAT(content(folder_ / "x"), IsEmpty());
}

}  // namespace
}  // namespace convoy::app
