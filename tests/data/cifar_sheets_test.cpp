#include "convoy/data/cifar_sheets.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include "convoy/data/readers.hpp"

#include "tests/data/helpers.hpp"

namespace convoy::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint32_t kWidth = 1024;

uint8_t pixel(int sheet, uint32_t row, uint32_t at, uint32_t channel) {
  return static_cast<uint8_t>(31 * static_cast<uint32_t>(sheet) + 7 * row + at / 3 + 85 * channel);
}

void write_png(const std::string& path, int sheet, uint32_t width, uint32_t rows,
               uint32_t format = PNG_FORMAT_RGB) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = rows;
  image.format = format;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  const uint32_t channels = PNG_IMAGE_SAMPLE_CHANNELS(format);
  for (uint32_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = pixel(sheet, i / channels / width, i / channels % width, i % channels);
  }
  ASSERT_NE(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr), 0);
}

// Sheets of two images, the test sheet of one.
class CifarSheets : public testing::Test {
 protected:
  CifarSheets() {
    for (int i = 1; i <= 5; ++i) write_png(sheet(fmt::format("data_batch_{}", i)), i, kWidth, 2);
    write_png(sheet("test_batch"), 6, kWidth, 1);
    from_.write("train_lables.json", "[0,1,2,3,4,5,6,7,8,9]");
    from_.write("test_lables.json", "[5]");
  }
  std::string sheet(const std::string& name) const {
    return (from_.path() / (name + ".png")).string();
  }
  void import() const { import_cifar_sheets(from_.path(), to_.path() / "new"); }
  std::string refused() const {
    return refusal([&] { import(); });
  }
  Folder from_;
  Folder to_;
};

TEST_F(CifarSheets, BecomeFilesThatTheReaderUnderstands) {
  import();
  const TrainTest sets = read_cifar10(to_.path() / "new");
  ASSERT_EQ(sets.train->size(), 10);
  ASSERT_EQ(sets.test->size(), 1);
  EXPECT_EQ(sets.test->label(0), 5);
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(sets.train->label(i), i);
    const auto pixels = sets.train->pixels(i);
    for (uint32_t k = 0; k < 3072; ++k) {
      ASSERT_EQ(pixels[k], pixel(static_cast<int>(i / 2 + 1), static_cast<uint32_t>(i % 2),
                                 k % 1024, k / 1024));
    }
  }
}

TEST_F(CifarSheets, OfAnotherFormatAreRefused) {
  write_png(sheet("data_batch_2"), 2, 512, 2);
  EXPECT_THAT(refused(), AllOf(HasSubstr("data_batch_2.png"), HasSubstr("512 pixels wide")));
  write_png(sheet("data_batch_2"), 2, kWidth, 2, PNG_FORMAT_RGBA);
  EXPECT_THAT(refused(), HasSubstr("another colour format"));
  std::filesystem::resize_file(sheet("data_batch_1"), 100);
  EXPECT_THAT(refused(), AllOf(HasSubstr("data_batch_1.png"), HasSubstr("PNG")));
  std::filesystem::remove(sheet("data_batch_1"));
  EXPECT_THAT(refused(), HasSubstr("data_batch_1.png"));
}

TEST_F(CifarSheets, MustHaveALabelPerImage) {
  from_.write("train_lables.json", "[0,1,2,3,4,5,6,7,8]");
  EXPECT_THAT(refused(), AllOf(HasSubstr("train_lables.json"), HasSubstr("holds 9 labels"),
                               HasSubstr("10 images")));
  from_.write("train_lables.json", "[0,1,2,3,4,5,6,7,8,9,0]");
  EXPECT_THAT(refused(), HasSubstr("holds 11 labels"));
  from_.write("train_lables.json", "[0,1,2,10]");
  EXPECT_THAT(refused(), HasSubstr("label number 3 is 10"));
  from_.write("train_lables.json", "[0,1,2");
  EXPECT_THAT(refused(), HasSubstr("JSON array"));
}

}  // namespace
}  // namespace convoy::data
