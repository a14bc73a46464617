#include "convoy/data/cifar_sheets.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <png.h>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"

namespace convoy::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPlane = size_t{32} * 32;
constexpr size_t kChannels = 3;
constexpr int64_t kClasses = 10;

struct Sheet {
  size_t rows = 0;
  std::vector<uint8_t> rgb;  // rows × kPlane pixels × kChannels
};

// libpng's simplified interface: its errors come back as values instead of by longjmp, which would
// skip our destructors.
class PngReader {
 public:
  explicit PngReader(const fs::path& path) : name_(path.string()) {
    image_.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_file(&image_, name_.c_str()) == 0) complain();
  }
  ~PngReader() { png_image_free(&image_); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  Sheet read() {
    if (image_.format != PNG_FORMAT_RGB || image_.width != kPlane) {
      refuse("{}: expected a sheet of 8-bit RGB, {} pixels wide; found {}, {} pixels wide", name_,
             kPlane, image_.format == PNG_FORMAT_RGB ? "8-bit RGB" : "another colour format",
             image_.width);
    }
    Sheet sheet{.rows = image_.height, .rgb = std::vector<uint8_t>(PNG_IMAGE_SIZE(image_))};
    if (png_image_finish_read(&image_, nullptr, sheet.rgb.data(), 0, nullptr) == 0) complain();
    return sheet;
  }

 private:
  [[noreturn]] void complain() const {
    refuse("{}: cannot be read as PNG: {}", name_, static_cast<const char*>(image_.message));
  }

  std::string name_;
  png_image image_{};
};

std::vector<uint8_t> read_labels(const fs::path& path) {
  const std::vector<uint8_t> text = read_file(path);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_array()) refuse("{}: expected a JSON array of labels", path.string());
  std::vector<uint8_t> labels;
  labels.reserve(json.size());
  for (const auto& item : json) {
    const int64_t label = item.is_number_integer() ? item.get<int64_t>() : -1;
    if (label < 0 || label >= kClasses) {
      refuse("{}: label number {} is {}, expected an integer from 0 to {}", path.string(),
             labels.size(), item.dump(), kClasses - 1);
    }
    labels.push_back(static_cast<uint8_t>(label));
  }
  return labels;
}

// An official record is the label, then the red, the green and the blue plane.
void write_batch(const fs::path& path, const Sheet& sheet, std::span<const uint8_t> labels) {
  constexpr size_t kRecord = 1 + kChannels * kPlane;
  std::vector<uint8_t> records(sheet.rows * kRecord);
  for (size_t row = 0; row < sheet.rows; ++row) {
    uint8_t* const record = &records[row * kRecord];
    const uint8_t* const rgb = &sheet.rgb[row * kPlane * kChannels];
    record[0] = labels[row];
    for (size_t pixel = 0; pixel < kPlane; ++pixel) {
      for (size_t channel = 0; channel < kChannels; ++channel) {
        record[1 + channel * kPlane + pixel] = rgb[pixel * kChannels + channel];
      }
    }
  }
  write_atomically(path, [&](const Append& append) { append(records); });
}

void import_sheets(const fs::path& from, const fs::path& to, const std::vector<std::string>& names,
                   const std::string& label_file) {
  const std::vector<uint8_t> labels = read_labels(from / label_file);
  size_t used = 0;
  for (const std::string& name : names) {
    const Sheet sheet = PngReader(from / (name + ".png")).read();
    if (used + sheet.rows > labels.size()) {
      refuse("{}: holds {} labels, but the sheets up to {}.png hold {} images",
             (from / label_file).string(), labels.size(), name, used + sheet.rows);
    }
    write_batch(to / (name + ".bin"), sheet, std::span(labels).subspan(used, sheet.rows));
    used += sheet.rows;
  }
  if (used != labels.size()) {
    refuse("{}: holds {} labels, but its sheets hold {} images", (from / label_file).string(),
           labels.size(), used);
  }
}

}  // namespace

void import_cifar_sheets(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to, error);
  if (error) fail("cannot make the folder {}: {}", to.string(), error.message());
  import_sheets(from, to,
                {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"},
                "train_lables.json");
  import_sheets(from, to, {"test_batch"}, "test_lables.json");
}

}  // namespace convoy::data
