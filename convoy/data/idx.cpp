#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "convoy/base/file.hpp"
#include "convoy/data/readers.hpp"

namespace convoy::data {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kImagesMagic = 0x00000803;  // unsigned bytes, three dimensions
constexpr uint32_t kLabelsMagic = 0x00000801;  // unsigned bytes, one dimension
constexpr uint64_t kLargestExtent = 65535;     // of an image; keeps the products below in 64 bits

uint32_t big_endian(const std::vector<uint8_t>& bytes, size_t at) {
  return uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 | uint32_t{bytes[at + 2]} << 8 |
         uint32_t{bytes[at + 3]};
}

fs::path find(const fs::path& folder, const std::string& stem, const std::string& type) {
  for (const char* dash : {"-", "."}) {
    for (const char* suffix : {"", ".gz"}) {
      fs::path path = folder / fmt::format("{}{}{}-ubyte{}", stem, dash, type, suffix);
      if (fs::exists(path)) return path;
    }
  }
  refuse(
      "{}: there is no {}-{}-ubyte (with '-' or '.' before idx, plain or .gz); `scripts/get-data "
      "mnist` and `scripts/get-data fashion-mnist` each fetch a whole set",
      folder.string(), stem, type);
}

std::vector<uint8_t> read_with_magic(const fs::path& path, uint32_t magic, size_t header) {
  std::vector<uint8_t> bytes = read_file(path);
  if (bytes.size() < header) {
    refuse("{}: expected a header of {} bytes, found a file of {} bytes", path.string(), header,
           bytes.size());
  }
  const uint32_t found = big_endian(bytes, 0);
  if (found != magic) {
    refuse("{}: expected the magic number 0x{:08x}, found 0x{:08x}", path.string(), magic, found);
  }
  return bytes;
}

void check_size(const fs::path& path, const std::string& what, uint64_t expected, uint64_t found) {
  if (found == expected) return;
  refuse("{}: its header promises {}, {} bytes in all; found {} bytes ({} {})", path.string(), what,
         expected, found, found < expected ? expected - found : found - expected,
         found < expected ? "missing" : "too many");
}

struct Images {
  fs::path path;
  model::Shape shape;
  uint64_t count = 0;
  std::vector<uint8_t> bytes;
};

constexpr size_t kImagesHeader = 16;
constexpr size_t kLabelsHeader = 8;

Images read_images(const fs::path& path) {
  Images images{.path = path, .shape = {}, .count = 0, .bytes = {}};
  images.bytes = read_with_magic(path, kImagesMagic, kImagesHeader);
  images.count = big_endian(images.bytes, 4);
  const uint64_t rows = big_endian(images.bytes, 8);
  const uint64_t columns = big_endian(images.bytes, 12);
  const std::string what = fmt::format("{} images of {}×{} pixels", images.count, rows, columns);
  if (images.count == 0 || std::min(rows, columns) == 0 ||
      std::max(rows, columns) > kLargestExtent) {
    refuse("{}: expected at least one image of 1 to {} pixels a side, its header promises {}",
           path.string(), kLargestExtent, what);
  }
  check_size(path, what, kImagesHeader + images.count * rows * columns, images.bytes.size());
  images.shape = {1, static_cast<int64_t>(rows), static_cast<int64_t>(columns)};
  return images;
}

std::vector<uint8_t> read_labels(const fs::path& path, const Images& images) {
  std::vector<uint8_t> bytes = read_with_magic(path, kLabelsMagic, kLabelsHeader);
  const uint64_t count = big_endian(bytes, 4);
  check_size(path, fmt::format("{} labels", count), kLabelsHeader + count, bytes.size());
  if (count != images.count) {
    refuse("{} holds {} labels, but {} holds {} images", path.string(), count, images.path.string(),
           images.count);
  }
  bytes.erase(bytes.begin(), bytes.begin() + kLabelsHeader);
  return bytes;
}

}  // namespace

TrainTest read_idx(const fs::path& folder) {
  const fs::path test_labels_path = find(folder, "t10k-labels", "idx1");
  Images train = read_images(find(folder, "train-images", "idx3"));
  Images test = read_images(find(folder, "t10k-images", "idx3"));
  std::vector<uint8_t> train_labels = read_labels(find(folder, "train-labels", "idx1"), train);
  std::vector<uint8_t> test_labels = read_labels(test_labels_path, test);
  if (test.shape != train.shape) {
    refuse("{} holds images of {}×{} pixels, but {} holds images of {}×{}", test.path.string(),
           test.shape.height, test.shape.width, train.path.string(), train.shape.height,
           train.shape.width);
  }
  const int64_t classes = 1 + *std::max_element(train_labels.begin(), train_labels.end());
  const auto wrong = std::find_if(test_labels.begin(), test_labels.end(),
                                  [&](uint8_t label) { return label >= classes; });
  if (wrong != test_labels.end()) {
    refuse("{}: label number {} is {}, but the training labels end at {}",
           test_labels_path.string(), wrong - test_labels.begin(), *wrong, classes - 1);
  }
  return {std::make_shared<MemoryDataset>(train.shape, classes, std::move(train.bytes),
                                          kImagesHeader, std::move(train_labels)),
          std::make_shared<MemoryDataset>(test.shape, classes, std::move(test.bytes), kImagesHeader,
                                          std::move(test_labels))};
}

}  // namespace convoy::data
