#pragma once
// Images made up for tests, encoded by plain calls of libjpeg and libpng.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <jpeglib.h>
#include <png.h>

#include "convoy/base/random.hpp"
#include "convoy/data/image.hpp"

namespace convoy::data {

using Encoded = std::vector<std::byte>;

/// Pixels that own their memory.
struct Picture {
  int32_t width = 0;
  int32_t height = 0;
  int32_t channels = 0;
  std::vector<uint8_t> bytes;
  Pixels pixels() const {
    return {.bytes = bytes, .width = width, .height = height, .channels = channels};
  }
  uint8_t at(int64_t y, int64_t x, int64_t c) const {
    return bytes.at(static_cast<size_t>((y * width + x) * channels + c));
  }
};

/// Slopes, edges and a little noise: something of everything that photographs have.
inline Picture picture(int32_t width, int32_t height, int32_t channels, uint64_t seed = 1) {
  Picture p{.width = width, .height = height, .channels = channels, .bytes = {}};
  Stream random(seed, Purpose::test);
  for (int32_t y = 0; y < height; ++y) {
    for (int32_t x = 0; x < width; ++x) {
      for (int32_t c = 0; c < channels; ++c) {
        const int32_t slope = (x * (3 + c) + y * (5 - c)) / 2 % 256;
        const int32_t edge = (x / 13 + y / 9 + c) % 2 * 60;
        const auto noise = static_cast<int32_t>(random.below(16));
        p.bytes.push_back(static_cast<uint8_t>((slope + edge) / 2 + noise));
      }
    }
  }
  return p;
}

/// How a JPEG for a test is made. Channels: 1 gray, 3 RGB, 4 CMYK.
struct JpegKind {
  int across = 2;  ///< chroma is reduced by this much
  int down = 2;
  bool progressive = false;
  bool separate = false;  ///< a scan for each channel
  int restart = 0;        ///< markers every so many rows of blocks
  bool adobe = true;
  int quality = 90;
};

inline Encoded make_jpeg(const Picture& p, const JpegKind& kind = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);  // ends the process
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(p.width);
  info.image_height = static_cast<JDIMENSION>(p.height);
  info.input_components = p.channels;
  info.in_color_space = p.channels == 1 ? JCS_GRAYSCALE : p.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, kind.quality, TRUE);
  if (p.channels == 3) {
    info.comp_info[0].h_samp_factor = kind.across;
    info.comp_info[0].v_samp_factor = kind.down;
  }
  if (kind.progressive) jpeg_simple_progression(&info);
  std::array<jpeg_scan_info, 3> scans{};
  if (kind.separate) {
    for (int c = 0; c < 3; ++c) {
      scans[static_cast<size_t>(c)] = {1, {c, 0, 0, 0}, 0, 63, 0, 0};
    }
    info.scan_info = scans.data();
    info.num_scans = 3;
  }
  info.restart_in_rows = kind.restart;
  if (p.channels == 4) info.write_Adobe_marker = kind.adobe ? TRUE : FALSE;
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(
        p.bytes.data() + size_t{info.next_scanline} * static_cast<size_t>(p.width * p.channels));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  const auto* const begin = reinterpret_cast<const std::byte*>(bytes);
  Encoded encoded(begin, begin + size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return encoded;
}

/// The whole image at n/8 of its size, by nothing but libjpeg.
inline Picture plain_decode(std::span<const std::byte> encoded, int channels, unsigned n = 8) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(encoded.data()), encoded.size());
  jpeg_read_header(&info, TRUE);
  info.scale_num = n;
  info.scale_denom = 8;
  info.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_start_decompress(&info);
  Picture p{.width = static_cast<int32_t>(info.output_width),
            .height = static_cast<int32_t>(info.output_height),
            .channels = channels,
            .bytes = {}};
  p.bytes.resize(size_t{info.output_width} * info.output_height * static_cast<size_t>(channels));
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = p.bytes.data() +
                   size_t{info.output_scanline} * info.output_width * static_cast<size_t>(channels);
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return p;
}

/// How a PNG for a test is made; `rows` are as libpng wants them for this type and depth.
struct PngKind {
  int type = PNG_COLOR_TYPE_RGB;
  int depth = 8;
  bool interlaced = false;
  std::vector<png_color> palette = {};
  std::vector<uint8_t> transparency = {};  ///< alpha of the first entries of the palette
  bool clear_colour = false;  ///< a tRNS chunk for gray or RGB: one value is transparent
};

inline Encoded make_png(int32_t width, int32_t height, const std::vector<uint8_t>& rows,
                        const PngKind& kind = {}) {
  Encoded encoded;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  const auto append = [](png_structp p, png_bytep bytes, size_t count) {
    auto& to = *static_cast<Encoded*>(png_get_io_ptr(p));
    const auto* const begin = reinterpret_cast<const std::byte*>(bytes);
    to.insert(to.end(), begin, begin + count);
  };
  png_set_write_fn(png, &encoded, append, [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
               kind.depth, kind.type, kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!kind.palette.empty()) {
    png_set_PLTE(png, info, kind.palette.data(), static_cast<int>(kind.palette.size()));
  }
  png_color_16 clear{};
  if (!kind.transparency.empty()) {
    png_set_tRNS(png, info, kind.transparency.data(), static_cast<int>(kind.transparency.size()),
                 nullptr);
  } else if (kind.clear_colour) {
    png_set_tRNS(png, info, nullptr, 0, &clear);
  }
  png_write_info(png, info);
  std::vector<png_bytep> pointers;
  pointers.reserve(static_cast<size_t>(height));
  const size_t stride = rows.size() / static_cast<size_t>(height);
  for (int32_t y = 0; y < height; ++y) {
    pointers.push_back(const_cast<png_bytep>(rows.data() + static_cast<size_t>(y) * stride));
  }
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return encoded;
}

inline Encoded make_png(const Picture& p, bool interlaced = false) {
  return make_png(p.width, p.height, p.bytes,
                  {.type = p.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB,
                   .depth = 8,
                   .interlaced = interlaced,
                   .palette = {},
                   .transparency = {}});
}

inline std::span<const uint8_t> as_uint8(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace convoy::data
