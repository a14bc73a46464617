#include "convoy/data/prepare.hpp"

#include <algorithm>

#include "convoy/base/error.hpp"
#include "convoy/base/random.hpp"

namespace convoy::data {
namespace {

// A half-open range of columns or rows.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

Range clipped(int64_t begin, int64_t end, int64_t extent) {
  return {std::clamp(begin, int64_t{0}, extent), std::clamp(end, int64_t{0}, extent)};
}

Range cut_range(int64_t centre, int64_t side, int64_t extent) {
  return clipped(centre - side / 2, centre - side / 2 + side, extent);
}

// One row: `inside` are the columns, before mirroring, that show input; the others are black.
void transform_row(const std::array<float, 256>& table, const uint8_t* in, int64_t right,
                   Range inside, bool mirror, std::span<float> out) {
  const auto width = static_cast<int64_t>(out.size());
  const Range shown =
      mirror ? Range{.begin = width - inside.end, .end = width - inside.begin} : inside;
  std::fill(out.begin(), out.begin() + shown.begin, table[0]);
  std::fill(out.begin() + shown.end, out.end(), table[0]);
  const int64_t count = inside.end - inside.begin;
  if (count == 0) return;
  float* const to = out.data() + shown.begin;
  if (mirror) {
    const uint8_t* const last = in + right + inside.end - 1;
    for (int64_t x = 0; x < count; ++x) to[x] = table[last[-x]];
  } else {
    const uint8_t* const first = in + right + inside.begin;
    for (int64_t x = 0; x < count; ++x) to[x] = table[first[x]];
  }
}

}  // namespace

StreamSample stream_at(int64_t position, int64_t size, uint64_t seed) {
  const int64_t epoch = position / size;
  const uint64_t sample = permuted(static_cast<uint64_t>(position % size),
                                   static_cast<uint64_t>(size), seed, static_cast<uint64_t>(epoch));
  return {static_cast<int64_t>(sample), epoch};
}

Normaliser::Normaliser(const Source& source) : tables_(source.mean.size()) {
  check(source.mean.size() == source.std.size(), "a source has as many means as deviations");
  for (size_t c = 0; c < tables_.size(); ++c) {
    const double mean = source.mean[c];
    const double std = source.std[c];
    for (size_t pixel = 0; pixel < 256; ++pixel) {
      tables_[c][pixel] = static_cast<float>((static_cast<double>(pixel) / 255 - mean) / std);
    }
  }
}

Choices choose(const job::Augment& augment, model::Shape shape, StreamSample which, uint64_t seed) {
  Stream random(seed, Purpose::augment, static_cast<uint64_t>(which.epoch),
                static_cast<uint64_t>(which.sample));
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random.below(static_cast<uint32_t>(n)));
  };
  Choices choices;
  if (augment.flip) choices.mirror = below(2) == 1;
  if (augment.pad_crop > 0) {
    choices.down = below(2 * augment.pad_crop + 1) - augment.pad_crop;
    choices.right = below(2 * augment.pad_crop + 1) - augment.pad_crop;
  }
  if (augment.cutout > 0) {
    choices.cut = augment.cutout;
    choices.cut_y = below(shape.height);
    choices.cut_x = below(shape.width);
  }
  return choices;
}

void transform(const Normaliser& normaliser, model::Shape shape, std::span<const uint8_t> pixels,
               const Choices& choices, std::span<float> out) {
  check(normaliser.channels() == shape.channels, "there is a mean for every channel");
  check(static_cast<int64_t>(out.size()) == shape.size() && out.size() == pixels.size(),
        "a sample is written to room of its size");
  const auto [height, width] = std::array{shape.height, shape.width};
  const Range rows = clipped(-choices.down, height - choices.down, height);
  const Range columns = clipped(-choices.right, width - choices.right, width);
  const Range cut_rows = cut_range(choices.cut_y, choices.cut, height);
  const Range cut_columns = cut_range(choices.cut_x, choices.cut, width);
  for (int64_t c = 0; c < shape.channels; ++c) {
    const std::array<float, 256>& table = normaliser.table(c);
    const uint8_t* const plane = pixels.data() + c * height * width;
    for (int64_t y = 0; y < height; ++y) {
      const auto row =
          out.subspan(static_cast<size_t>((c * height + y) * width), static_cast<size_t>(width));
      if (y < rows.begin || y >= rows.end) {
        std::fill(row.begin(), row.end(), table[0]);
      } else {
        transform_row(table, plane + (y + choices.down) * width, choices.right, columns,
                      choices.mirror, row);
      }
      if (y >= cut_rows.begin && y < cut_rows.end) {
        std::fill(row.begin() + cut_columns.begin, row.begin() + cut_columns.end, 0.0F);
      }
    }
  }
}

void prepare(const Normaliser& normaliser, const Dataset& set, StreamSample which, uint64_t seed,
             const job::Augment* augment, std::span<float> out) {
  const model::Shape shape = set.shape();
  const Choices choices = augment != nullptr ? choose(*augment, shape, which, seed) : Choices{};
  transform(normaliser, shape, set.pixels(which.sample), choices, out);
}

void prepare(const Source& source, const Dataset& set, StreamSample which, uint64_t seed,
             const job::Augment* augment, std::span<float> out) {
  prepare(Normaliser(source), set, which, seed, augment, out);
}

}  // namespace convoy::data
