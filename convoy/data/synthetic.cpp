#include <algorithm>
#include <array>
#include <bit>

#include "convoy/base/random.hpp"
#include "convoy/data/readers.hpp"

namespace convoy::data {
namespace {

// A data set is the same for every job that asks for it, so its seed is not the job's.
constexpr uint64_t kSeed = 1;
enum Part : uint64_t { kTrainNoise, kTestNoise, kPatterns };

constexpr int64_t kTrainBytes = int64_t{64} << 20;
constexpr int64_t kTestBytes = int64_t{16} << 20;
constexpr int64_t kCells = 4;  // a pattern is kCells×kCells patches per channel

class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(model::Shape shape, int64_t classes, int64_t size, int64_t most_bytes,
                   Part noise)
      : shape_(shape),
        classes_(classes),
        size_(size),
        distinct_(std::clamp(most_bytes / shape.size(), int64_t{1}, size)),
        bytes_(static_cast<size_t>(distinct_ * shape.size())) {
    // Whole rounds of classes, so that repeating the samples keeps the classes in balance.
    if (distinct_ < size && distinct_ > classes) distinct_ -= distinct_ % classes;
    for (int64_t i = 0; i < distinct_; ++i) draw(i, noise);
  }

  int64_t size() const override { return size_; }
  model::Shape shape() const override { return shape_; }
  int64_t classes() const override { return classes_; }
  std::span<const uint8_t> pixels(int64_t index) const override {
    const auto size = static_cast<size_t>(shape_.size());
    return std::span(bytes_).subspan(static_cast<size_t>(index % distinct_) * size, size);
  }
  int32_t label(int64_t index) const override {
    return static_cast<int32_t>(index % distinct_ % classes_);
  }
  int64_t distinct() const override { return distinct_; }

 private:
  // Pixel = pattern (64 … 191) + noise (−64 … 63): fills 0 … 254 and never needs clamping.
  void draw(int64_t index, Part part) {
    const auto size = static_cast<size_t>(shape_.size());
    const auto out = std::span(bytes_).subspan(static_cast<size_t>(index) * size, size);
    draw_pattern(label(index), out.data());
    const Stream stream(kSeed, Purpose::synthetic, part, static_cast<uint64_t>(index));
    using Noise = std::array<uint8_t, 16>;
    for (size_t at = 0; at < size; at += sizeof(Noise)) {
      const auto noise = std::bit_cast<Noise>(stream.block(at / sizeof(Noise)));
      const size_t count = std::min(sizeof(Noise), size - at);
      for (size_t k = 0; k < count; ++k) {
        out[at + k] = static_cast<uint8_t>(out[at + k] + (noise[k] & 127) - 64);
      }
    }
  }

  // Every channel is divided into at most kCells×kCells patches of one value each.
  void draw_pattern(int64_t label, uint8_t* out) const {
    Stream stream(kSeed, Purpose::synthetic, kPatterns, static_cast<uint64_t>(label));
    const int64_t rows = std::min(kCells, shape_.height);
    const int64_t columns = std::min(kCells, shape_.width);
    for (int64_t row = 0; row < shape_.channels * rows; ++row) {
      const uint8_t* const first = out;
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t begin = column * shape_.width / columns;
        const int64_t end = (column + 1) * shape_.width / columns;
        out = std::fill_n(out, end - begin, static_cast<uint8_t>(64 + stream.below(128)));
      }
      const int64_t r = row % rows;
      const int64_t height = (r + 1) * shape_.height / rows - r * shape_.height / rows;
      for (int64_t y = 1; y < height; ++y) out = std::copy_n(first, shape_.width, out);
    }
  }

  model::Shape shape_;
  int64_t classes_;
  int64_t size_;
  int64_t distinct_;
  std::vector<uint8_t> bytes_;
};

}  // namespace

TrainTest make_synthetic(const job::Data& options) {
  constexpr int64_t kLargest = int64_t{1} << 28;  // values in one sample
  const std::vector<int64_t>& shape = options.shape;
  int64_t values = 1;
  for (const int64_t extent : shape) {
    values = extent < 1 || extent > kLargest / values ? 0 : values * extent;
    if (values == 0) break;
  }
  if (shape.size() != 3 || values == 0) {
    refuse(
        "data.shape: expected [channels, height, width], each at least 1 and at most {} values "
        "in all; found [{}]",
        kLargest, fmt::join(shape, ", "));
  }
  if (options.classes < 1) {
    refuse("data.classes: expected at least 1, found {}", options.classes);
  }
  if (options.size < 1) refuse("data.size: expected at least 1, found {}", options.size);
  const model::Shape extent{shape[0], shape[1], shape[2]};
  const int64_t test_size = std::max<int64_t>(options.size / 4, 1);
  return {std::make_shared<SyntheticDataset>(extent, options.classes, options.size, kTrainBytes,
                                             kTrainNoise),
          std::make_shared<SyntheticDataset>(extent, options.classes, test_size, kTestBytes,
                                             kTestNoise)};
}

}  // namespace convoy::data
