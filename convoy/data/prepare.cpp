#include "convoy/data/prepare.hpp"

#include <algorithm>
#include <cmath>

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

/// A part of the image by its area and aspect, as torchvision's RandomResizedCrop draws it: up to
/// ten draws until one fits, else as much of the middle as the aspects allow.
Region random_region(const job::Augment& augment, model::Shape shape, const ImageInfo& image,
                     Stream& random) {
  const double own = static_cast<double>(shape.width) / static_cast<double>(shape.height);
  const bool free = augment.crop_aspect.size() == 2;
  const double narrowest = free ? augment.crop_aspect[0] : own;
  const double widest = free ? augment.crop_aspect[1] : own;
  const auto between = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random.uniform());
  };
  constexpr int kDraws = 10;
  for (int i = 0; i < kDraws; ++i) {
    const double area = static_cast<double>(image.pixels()) *
                        between(augment.crop_area.at(0), augment.crop_area.at(1));
    const double aspect = std::exp(between(std::log(narrowest), std::log(widest)));
    const auto width = static_cast<int32_t>(std::lround(std::sqrt(area * aspect)));
    const auto height = static_cast<int32_t>(std::lround(std::sqrt(area / aspect)));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    const auto below = [&](int32_t n) {
      return static_cast<int32_t>(random.below(static_cast<uint32_t>(n)));
    };
    const int32_t y = below(image.height - height + 1);
    const int32_t x = below(image.width - width + 1);
    return {.x = x, .y = y, .width = width, .height = height};
  }
  const double aspect =
      std::clamp(static_cast<double>(image.width) / image.height, narrowest, widest);
  Region region{.width = image.width, .height = image.height};
  if (aspect * image.height < image.width) {
    region.width = std::max<int32_t>(1, static_cast<int32_t>(std::lround(aspect * image.height)));
  } else {
    region.height = std::clamp<int32_t>(static_cast<int32_t>(std::lround(image.width / aspect)), 1,
                                        image.height);
  }
  region.x = (image.width - region.width) / 2;
  region.y = (image.height - region.height) / 2;
  return region;
}

void cut_out(const Choices& choices, model::Shape shape, std::span<float> out) {
  const Range rows = cut_range(choices.cut_y, choices.cut, shape.height);
  const Range columns = cut_range(choices.cut_x, choices.cut, shape.width);
  for (int64_t c = 0; c < shape.channels; ++c) {
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      float* const row = out.data() + (c * shape.height + y) * shape.width;
      std::fill(row + columns.begin, row + columns.end, 0.0F);
    }
  }
}

Affine affine_of(const Source& source) {
  Affine affine;
  for (size_t c = 0; c < std::min(source.mean.size(), affine.scale.size()); ++c) {
    affine.scale[c] = static_cast<float>(1 / (255 * static_cast<double>(source.std[c])));
    affine.shift[c] = static_cast<float>(-static_cast<double>(source.mean[c]) /
                                         static_cast<double>(source.std[c]));
  }
  return affine;
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

Choices choose(const job::Augment& augment, model::Shape shape, StreamSample which, uint64_t seed,
               const ImageInfo& image) {
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
  if (!augment.crop_area.empty()) choices.region = random_region(augment, shape, image, random);
  if (!augment.jitter.empty()) {
    const auto factor = [&](size_t i) {
      return static_cast<float>(1 + augment.jitter.at(i) * (2.0 * random.uniform() - 1));
    };
    choices.jitter.brightness = factor(0);
    choices.jitter.contrast = factor(1);
    choices.jitter.saturation = factor(2);
  }
  return choices;
}

bool fits(const ImageInfo& image, model::Shape shape) {
  return image.height == shape.height && image.width == shape.width;
}

Region center_region(const ImageInfo& image, model::Shape shape, double part) {
  // As many pixels of the image to each of the input's, both ways.
  const double scale =
      part * std::min(static_cast<double>(image.width) / static_cast<double>(shape.width),
                      static_cast<double>(image.height) / static_cast<double>(shape.height));
  const auto side = [&](int64_t input, int32_t most) {
    const int64_t length = std::lround(scale * static_cast<double>(input));
    return static_cast<int32_t>(std::clamp<int64_t>(length, 1, most));
  };
  Region region;
  region.width = side(shape.width, image.width);
  region.height = side(shape.height, image.height);
  region.x = (image.width - region.width) / 2;
  region.y = (image.height - region.height) / 2;
  return region;
}

void transform(const Normaliser& normaliser, model::Shape shape, std::span<const uint8_t> pixels,
               const Choices& choices, std::span<float> out) {
  check(normaliser.channels() == shape.channels, "there is a mean for every channel");
  check(static_cast<int64_t>(out.size()) == shape.size() && out.size() == pixels.size(),
        "a sample is written to room of its size");
  const auto [height, width] = std::array{shape.height, shape.width};
  const Range rows = clipped(-choices.down, height - choices.down, height);
  const Range columns = clipped(-choices.right, width - choices.right, width);
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
    }
  }
  cut_out(choices, shape, out);
}

Preparer::Preparer(const Source& source, model::Shape shape, const job::Augment* augment)
    : shape_(shape),
      augment_(augment),
      center_crop_(source.center_crop),
      scales_(augment != nullptr && (!augment->crop_area.empty() || !augment->jitter.empty())),
      normaliser_(source),
      affine_(affine_of(source)) {}

void Preparer::prepare(const Stored& stored, StreamSample which, uint64_t seed,
                       std::span<float> out) {
  const ImageInfo& image = stored.image;
  const Choices choices =
      augment_ != nullptr ? choose(*augment_, shape_, which, seed, image) : Choices{};
  if (scales_ || !fits(image, shape_)) {
    scale(stored, choices, out);
  } else {
    transform(normaliser_, shape_, planes_of(stored), choices, out);
  }
}

Decoded Preparer::decode(const Stored& stored, Region region) {
  const Size least{.height = static_cast<int32_t>(shape_.height),
                   .width = static_cast<int32_t>(shape_.width)};
  const auto channels = static_cast<int>(shape_.channels);
  return stored.image.encoding == Encoding::raw
             ? decoder_.decode_raw(stored.bytes, stored.image, region, channels)
             : decoder_.decode(stored.bytes, region, least, channels);
}

std::span<const uint8_t> Preparer::planes_of(const Stored& stored) {
  const ImageInfo& image = stored.image;
  if (image.encoding == Encoding::raw && image.channels == shape_.channels) {
    return {reinterpret_cast<const uint8_t*>(stored.bytes.data()), stored.bytes.size()};
  }
  const Decoded decoded = decode(stored, {.width = image.width, .height = image.height});
  const auto channels = static_cast<size_t>(shape_.channels);
  const auto plane = static_cast<size_t>(image.pixels());
  planes_.resize(channels * plane);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t i = 0; i < plane; ++i) {
      planes_[c * plane + i] = decoded.pixels.bytes[i * channels + c];
    }
  }
  return planes_;
}

void Preparer::scale(const Stored& stored, const Choices& choices, std::span<float> out) {
  check(static_cast<int64_t>(out.size()) == shape_.size(),
        "a sample is written to room of its size");
  const ImageInfo& image = stored.image;
  Region region{.width = image.width, .height = image.height};
  if (choices.region) {
    region = *choices.region;
  } else if (!fits(image, shape_)) {
    region = center_region(image, shape_, center_crop_);
  }
  const Size size{.height = static_cast<int32_t>(shape_.height),
                  .width = static_cast<int32_t>(shape_.width)};
  const Decoded decoded = decode(stored, region);
  if (choices.jitter == Jitter{}) {
    resampler_.resample(decoded, size, choices.mirror, affine_, out);
  } else {
    resampler_.resample(decoded, size, choices.mirror, Affine{}, out);
    apply(choices.jitter, affine_, static_cast<int>(shape_.channels), out);
  }
  cut_out(choices, shape_, out);
}

void prepare(const Source& source, const Dataset& set, StreamSample which, uint64_t seed,
             const job::Augment* augment, std::span<float> out) {
  Preparer(source, set.shape(), augment).prepare(set.sample(which.sample), which, seed, out);
}

}  // namespace convoy::data
