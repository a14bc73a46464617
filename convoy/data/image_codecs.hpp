#pragma once
// The two decoders behind Decoder (image.hpp), each in a file of its own, so that libjpeg and
// libpng stay inside those. Both report errors by longjmp: what lies between a setjmp and the
// library holds no object with a destructor.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "convoy/data/image.hpp"

namespace convoy::data {

/// What is wanted of an image; checked against it by the decoders.
struct Request {
  std::optional<Region> region;  ///< without: the whole image, read to its last byte
  Size least;                    ///< pixels that the region must have at least, if it has them
  int channels = 3;
};

/// Throws ImageError if there are no pixels, or more than kMaxPixels or kMaxExtent allow.
void check_size(int64_t width, int64_t height);
/// The region wanted; throws ImageError if it does not lie within the image.
Region checked_region(const Request& request, const ImageInfo& info);
/// Luma of 8-bit RGB, rounded: (19595 R + 38470 G + 7471 B) / 65536, as in Pillow.
inline uint8_t luma(uint32_t r, uint32_t g, uint32_t b) {
  return static_cast<uint8_t>((19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
}

bool is_jpeg(std::span<const std::byte> encoded);

class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ImageInfo probe(std::span<const std::byte> encoded);
  /// Grows `out` if need be; what it returns points there.
  Decoded decode(std::span<const std::byte> encoded, const Request& request,
                 std::vector<uint8_t>& out);

 private:
  struct Session;
  std::unique_ptr<Session> session_;
};

bool is_png(std::span<const std::byte> encoded);
ImageInfo probe_png(std::span<const std::byte> encoded);

class PngDecoder {
 public:
  Decoded decode(std::span<const std::byte> encoded, const Request& request,
                 std::vector<uint8_t>& out);

 private:
  std::vector<uint8_t> rows_;  // one row, or the whole image if it is interlaced
};

}  // namespace convoy::data
