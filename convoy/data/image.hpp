#pragma once
// Encoded images (JPEG and PNG) and how to get at the pixels of a part of one, fast.
//
// A training step wants a random part of a photograph, reduced to a few hundred pixels. Most of
// what a full decode computes would be thrown away, so Decoder::decode() is told the part and the
// size it will be reduced to: it leaves out rows and columns that are not needed and lets libjpeg
// decode at half, a quarter or an eighth of the resolution where that still gives enough pixels.
// What comes next (reducing, mirroring, normalising) is in resample.hpp.
//
// Pixels depend only on the arguments, never on the thread or on what was decoded before.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convoy/base/error.hpp"

namespace convoy::data {

/// How the bytes of an image are to be read. The numbers stand in packed files (docs/packed.md).
enum class Encoding : uint8_t {
  raw = 0,   ///< 8-bit pixels, one plane after the other (channel-major); no header
  jpeg = 1,  ///< baseline or progressive, 8 bits
  png = 2,   ///< every kind of PNG
};
/// "raw", "JPEG", "PNG"
const char* to_string(Encoding encoding);

/// What is wrong with an image, for counting; the message says more.
enum class BadImage : uint8_t { empty, not_an_image, damaged, unsupported, too_large, unreadable };
/// "empty", "neither JPEG nor PNG", "damaged or cut short", …
const char* to_string(BadImage what);

/// An image that cannot be used. The message does not name the file: who opened it knows its name.
class ImageError : public InputError {
 public:
  ImageError(BadImage what, const std::string& message) : InputError(message), what_(what) {}
  BadImage what_is_wrong() const { return what_; }

 private:
  BadImage what_;
};

/// Images of more pixels are refused before anything is allocated for them: a few hundred bytes can
/// claim to be a picture of any size. (11,585 × 11,585; takes 384 MiB as RGB.)
inline constexpr int64_t kMaxPixels = int64_t{1} << 27;
/// The same for either side; it is also the most that JPEG allows.
inline constexpr int64_t kMaxExtent = 65500;

/// What the header of an image says.
struct ImageInfo {
  Encoding encoding = Encoding::raw;
  int32_t width = 0;
  int32_t height = 0;
  int32_t channels = 0;  ///< 1: gray (with or without alpha); 3: all others
  int64_t pixels() const { return int64_t{width} * height; }
  bool operator==(const ImageInfo&) const = default;
};

/// Reads the header only. Throws ImageError.
ImageInfo probe(std::span<const std::byte> encoded);

/// A rectangle in the pixels of the full image; (0, 0) is the upper left corner.
struct Region {
  int32_t x = 0;
  int32_t y = 0;
  int32_t width = 0;
  int32_t height = 0;
  bool operator==(const Region&) const = default;
};

/// A size in pixels.
struct Size {
  int32_t height = 0;
  int32_t width = 0;
  bool operator==(const Size&) const = default;
};

/// 8-bit pixels that somebody else owns: rows one after the other, the channels of a pixel side by
/// side (RGB, or gray).
struct Pixels {
  std::span<const uint8_t> bytes;
  int32_t width = 0;
  int32_t height = 0;
  int32_t channels = 0;
  const uint8_t* row(int64_t y) const { return bytes.data() + y * width * channels; }
};

/// Decoded pixels, and where in them the region lies that was asked for: from `left` to
/// `left + across` of their columns, from `top` to `top + down` of their rows. At reduced
/// resolution these are fractions, and there may be more pixels around the region than were asked
/// for.
struct Decoded {
  Pixels pixels;  ///< valid until the decoder is used again
  double left = 0;
  double top = 0;
  double across = 0;
  double down = 0;
};

/// Decodes images one after the other. Keeps its memory from one to the next, so it soon allocates
/// no more (libjpeg and libpng still do, a little). One per thread.
///
/// JPEG: colours are converted as libjpeg does, CMYK and YCCK included (multiplied out, as Pillow
/// does). A warning of libjpeg (damaged data, an early end) counts as an error. PNG: palettes and
/// fewer than 8 bits are expanded, 16 bits are rounded to 8, alpha is left out (the colours below
/// it stay as they are, as by Pillow's convert("RGB")), gamma and colour profiles are not applied.
class Decoder {
 public:
  Decoder();
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  /// The part `region` (refused if it does not lie within the image) with `channels` channels (1 or
  /// 3; gray is widened to three equal ones, colour is reduced to its luma). JPEG is decoded at the
  /// lowest of 1/8, 1/4, 1/2 and full resolution at which the region has at least `least` pixels
  /// each way. Only damage in what had to be read is noticed. Throws ImageError.
  Decoded decode(std::span<const std::byte> encoded, Region region, Size least, int channels);

  /// All of it, at full resolution, and to the last byte: whatever is damaged is noticed.
  Decoded decode(std::span<const std::byte> encoded, int channels);
  /// The same at the lowest resolution at which it has at least `least` pixels each way.
  Decoded decode(std::span<const std::byte> encoded, Size least, int channels);

  /// The same for pixels that are not encoded (Encoding::raw); `info` says their shape.
  Decoded decode_raw(std::span<const std::byte> planes, const ImageInfo& info, Region region,
                     int channels);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// A JPEG of these pixels (4:2:0 for colour, Huffman tables of its own); `quality` from 1 to 100.
std::vector<std::byte> encode_jpeg(const Pixels& pixels, int quality);

}  // namespace convoy::data
