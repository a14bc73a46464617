#include <algorithm>
#include <array>
#include <string>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/data/folder.hpp"
#include "convoy/data/pack.hpp"
#include "convoy/data/prepare.hpp"
#include "convoy/data/readers.hpp"

namespace convoy::data {
namespace {

namespace fs = std::filesystem;

/// A split of a packed file that is mapped into memory.
class PackedDataset final : public Dataset {
 public:
  PackedDataset(std::shared_ptr<const PackedFile> file, const Split& split, model::Shape shape)
      : file_(std::move(file)), first_(split.first), size_(split.count), shape_(shape) {}

  int64_t size() const override { return size_; }
  model::Shape shape() const override { return shape_; }
  int64_t classes() const override { return static_cast<int64_t>(file_->summary().classes.size()); }
  int32_t label(int64_t index) const override { return file_->record(first_ + index).label; }
  std::span<const uint8_t> pixels(int64_t index) const override {
    const PackedRecord record = file_->record(first_ + index);
    check(record.image.encoding == Encoding::raw, "only what is stored as pixels has them at hand");
    const std::span<const std::byte> bytes = file_->mapped(first_ + index);
    return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  }
  Stored sample(int64_t index) const override {
    const PackedRecord record = file_->record(first_ + index);
    return {.bytes = file_->mapped(first_ + index), .image = record.image, .label = record.label};
  }
  void verify(int64_t index, std::span<const std::byte> bytes) const override {
    file_->verify(first_ + index, bytes);
  }
  void will_need(int64_t index) const override {
    file_->will_need(first_ + index, first_ + index + 1);
  }
  std::string name(int64_t index) const override { return file_->name(first_ + index); }

 private:
  std::shared_ptr<const PackedFile> file_;
  int64_t first_;
  int64_t size_;
  model::Shape shape_;
};

/// Refuses what cannot be shown at this shape; without one in the job, finds it.
model::Shape shape_of(const PackedFile& file, const job::Data& options) {
  const ImageInfo first = file.record(0).image;
  bool equal = true;
  for (int64_t i = 1; i < file.size() && equal; ++i) {
    const ImageInfo image = file.record(i).image;
    equal = image.height == first.height && image.width == first.width;
  }
  model::Shape shape{file.summary().channels, first.height, first.width};
  if (options.shape.empty()) {
    if (equal) return shape;
    refuse(
        "data.shape is missing: the images of {} have several sizes, so the job must say to which "
        "they are scaled, such as data.shape: [{}, 224, 224]",
        file.path().string(), file.summary().channels);
  }
  const bool as_stored =
      equal && options.shape[1] == first.height && options.shape[2] == first.width;
  shape = {options.shape[0], options.shape[1], options.shape[2]};
  if (shape.channels != 1 && shape.channels != 3) {
    refuse("data.shape: images have 1 channel or 3, not {}", shape.channels);
  }
  if (options.augment.pad_crop > 0 && !as_stored) {
    refuse(
        "data.augment.pad_crop is for images that have the size of the input, {}×{}; those of {} "
        "do not all have it. Use data.augment.crop_area",
        shape.height, shape.width, file.path().string());
  }
  return shape;
}

fs::path file_of(const job::Data& options) {
  if (options.kind == "packed") {
    if (fs::is_directory(options.path)) {
      refuse(
          "data.path: {} is a folder; kind packed needs a file, made by `convoy pack`, and kind "
          "folder a folder of images",
          options.path);
    }
    return options.path;
  }
  const fs::path file = packed_path(options.path);
  if (!fs::exists(file)) {
    refuse(
        "{} has not been packed: there is no {}. `convoy train` packs it, or `convoy pack {} -o "
        "{}`",
        options.path, file.string(), options.path, file.string());
  }
  return file;
}

}  // namespace

Source open_packed(const job::Data& options) {
  const auto file = std::make_shared<PackedFile>(file_of(options));
  const Split& train = file->split("train");
  const Split& test = file->split("test");
  if (train.count == 0 || test.count == 0) {
    refuse("{}: no {} images", file->path().string(), train.count == 0 ? "training" : "test");
  }
  const model::Shape shape = shape_of(*file, options);
  file->map();
  Source source;
  source.train = std::make_shared<PackedDataset>(file, train, shape);
  source.test = std::make_shared<PackedDataset>(file, test, shape);
  source.mean = file->summary().mean;
  source.std = file->summary().std;
  // Gray images in colours, or colours in gray: the mean of the channels is near enough.
  if (static_cast<int64_t>(source.mean.size()) != shape.channels) {
    const auto mean_of = [](const std::vector<float>& values) {
      float sum = 0;
      for (const float v : values) sum += v;
      return sum / static_cast<float>(values.size());
    };
    source.mean.assign(static_cast<size_t>(shape.channels), mean_of(source.mean));
    source.std.assign(static_cast<size_t>(shape.channels), mean_of(source.std));
  }
  const std::array<int64_t, 4> what{static_cast<int64_t>(file->fingerprint()), shape.channels,
                                    shape.height, shape.width};
  const auto bytes = std::as_bytes(std::span(what));
  source.fingerprint = checksum({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  source.packed = {.file = file, .first = train.first};
  return source;
}

}  // namespace convoy::data
