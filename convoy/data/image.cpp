#include "convoy/data/image.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "convoy/data/image_codecs.hpp"

namespace convoy::data {

const char* to_string(Encoding encoding) {
  switch (encoding) {
    case Encoding::raw:
      return "raw";
    case Encoding::jpeg:
      return "JPEG";
    case Encoding::png:
      return "PNG";
  }
  return "unknown";
}

const char* to_string(BadImage what) {
  switch (what) {
    case BadImage::empty:
      return "empty";
    case BadImage::not_an_image:
      return "neither JPEG nor PNG";
    case BadImage::damaged:
      return "damaged or cut short";
    case BadImage::unsupported:
      return "of a kind that is not supported";
    case BadImage::too_large:
      return "too large";
    case BadImage::unreadable:
      return "not readable";
  }
  return "bad";
}

void check_size(int64_t width, int64_t height) {
  if (width <= 0 || height <= 0) {
    throw ImageError(
        BadImage::damaged,
        fmt::format("its header says {}×{} pixels, expected at least 1×1", width, height));
  }
  if (width > kMaxExtent || height > kMaxExtent || width > kMaxPixels / height) {
    throw ImageError(
        BadImage::too_large,
        fmt::format("its header says {}×{} pixels; accepted are {} in all and {} each way", width,
                    height, kMaxPixels, kMaxExtent));
  }
}

Region checked_region(const Request& request, const ImageInfo& info) {
  if (!request.region) return {.x = 0, .y = 0, .width = info.width, .height = info.height};
  const Region& r = *request.region;
  if (r.x < 0 || r.y < 0 || r.width <= 0 || r.height <= 0 || r.width > info.width - r.x ||
      r.height > info.height - r.y) {
    // Who asked took the size from elsewhere, such as the index of a packed file.
    throw ImageError(BadImage::damaged,
                     fmt::format("has {}×{} pixels; {}×{} at ({}, {}) were asked for", info.width,
                                 info.height, r.width, r.height, r.x, r.y));
  }
  return r;
}

namespace {

Encoding encoding_of(std::span<const std::byte> encoded) {
  if (encoded.empty()) throw ImageError(BadImage::empty, "is empty");
  if (is_jpeg(encoded)) return Encoding::jpeg;
  if (is_png(encoded)) return Encoding::png;
  std::string begins;
  for (const std::byte byte : encoded.first(std::min<size_t>(encoded.size(), 4))) {
    begins += fmt::format(" {:02x}", std::to_integer<int>(byte));
  }
  throw ImageError(BadImage::not_an_image,
                   fmt::format("is neither JPEG (which begins with ff d8 ff) nor PNG (89 50 4e "
                               "47): begins with{}",
                               begins));
}

}  // namespace

ImageInfo probe(std::span<const std::byte> encoded) {
  return encoding_of(encoded) == Encoding::jpeg ? JpegDecoder().probe(encoded) : probe_png(encoded);
}

struct Decoder::Parts {
  JpegDecoder jpeg;
  PngDecoder png;
  std::vector<uint8_t> pixels;

  Decoded decode(std::span<const std::byte> encoded, const Request& request) {
    check(request.channels == 1 || request.channels == 3, "images have one channel or three");
    return encoding_of(encoded) == Encoding::jpeg ? jpeg.decode(encoded, request, pixels)
                                                  : png.decode(encoded, request, pixels);
  }
};

Decoder::Decoder() : parts_(std::make_unique<Parts>()) {}
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

Decoded Decoder::decode(std::span<const std::byte> encoded, Region region, Size least,
                        int channels) {
  return parts_->decode(encoded, {.region = region, .least = least, .channels = channels});
}

Decoded Decoder::decode(std::span<const std::byte> encoded, int channels) {
  return decode(encoded, {.height = INT32_MAX, .width = INT32_MAX}, channels);
}

Decoded Decoder::decode(std::span<const std::byte> encoded, Size least, int channels) {
  return parts_->decode(encoded, {.region = {}, .least = least, .channels = channels});
}

Decoded Decoder::decode_raw(std::span<const std::byte> planes, const ImageInfo& info, Region region,
                            int channels) {
  check((channels == 1 || channels == 3) && (info.channels == 1 || info.channels == 3),
        "images have one channel or three");
  check_size(info.width, info.height);
  const Region r = checked_region({.region = region, .least = {}, .channels = channels}, info);
  const auto plane = static_cast<size_t>(info.pixels());
  if (planes.size() != plane * static_cast<size_t>(info.channels)) {
    throw ImageError(BadImage::damaged,
                     fmt::format("expected {}×{}×{} bytes of pixels, found {} bytes", info.channels,
                                 info.height, info.width, planes.size()));
  }
  std::vector<uint8_t>& out = parts_->pixels;
  const size_t needed =
      static_cast<size_t>(r.width) * static_cast<size_t>(r.height) * static_cast<size_t>(channels);
  if (out.size() < needed) out.resize(needed);
  const auto* const from = reinterpret_cast<const uint8_t*>(planes.data());
  uint8_t* to = out.data();
  for (int64_t y = r.y; y < r.y + r.height; ++y) {
    const uint8_t* const row = from + y * info.width + r.x;
    for (int64_t x = 0; x < r.width; ++x, to += channels) {
      const std::array<uint8_t, 3> colour =
          info.channels == 1
              ? std::array<uint8_t, 3>{row[x], row[x], row[x]}
              : std::array<uint8_t, 3>{row[x], row[x + info.pixels()], row[x + 2 * info.pixels()]};
      if (channels == 3) {
        std::copy(colour.begin(), colour.end(), to);
      } else {
        *to = info.channels == 1 ? colour[0] : luma(colour[0], colour[1], colour[2]);
      }
    }
  }
  return {.pixels = {.bytes = std::span(out).first(needed),
                     .width = r.width,
                     .height = r.height,
                     .channels = channels},
          .left = 0,
          .top = 0,
          .across = static_cast<double>(r.width),
          .down = static_cast<double>(r.height)};
}

}  // namespace convoy::data
