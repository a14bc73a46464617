#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <png.h>
#include <zlib.h>

#include "convoy/data/image_codecs.hpp"

namespace convoy::data {
namespace {

constexpr std::array<uint8_t, 8> kSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
// Signature, then the chunk IHDR: length, name, 13 bytes, CRC.
constexpr size_t kHeader = 8 + 4 + 4 + 13 + 4;

[[noreturn]] void refuse_damaged(const std::string& why) {
  throw ImageError(BadImage::damaged, "cannot be decoded as PNG: " + why);
}

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | uint32_t{p[3]};
}

/// libpng's reader, its source of bytes and its last words.
struct Session {
  explicit Session(std::span<const std::byte> encoded) : rest(encoded) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png != nullptr) info = png_create_info_struct(png);
    if (info == nullptr) {
      png_destroy_read_struct(&png, &info, nullptr);
      fail("libpng cannot start: out of memory");
    }
    png_set_read_fn(png, this, on_read);
  }
  ~Session() { png_destroy_read_struct(&png, &info, nullptr); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Runs `body`, whose frames hold nothing to destroy.
  template <typename Body>
  void run(const Body& body) {
    if (!guarded(body)) refuse_damaged(message.data());
  }

  std::span<const std::byte> rest;
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::array<char, 128> message{};

 private:
  template <typename Body>
  [[gnu::noinline]] bool guarded(const Body& body) {
    if (setjmp(png_jmpbuf(png)) != 0) return false;  // NOLINT(cert-err52-cpp): libpng's way
    body();
    return true;
  }

  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    auto& session = *static_cast<Session*>(png_get_error_ptr(png));
    std::snprintf(session.message.data(), session.message.size(), "%s", text);
    png_longjmp(png, 1);
  }
  // Warnings are about chunks that are not looked at (profiles, texts, times).
  static void on_warning(png_structp /*png*/, png_const_charp /*text*/) {}
  static void on_read(png_structp png, png_bytep to, size_t count) {
    auto& session = *static_cast<Session*>(png_get_io_ptr(png));
    if (session.rest.size() < count) png_error(png, "the file ends too early");
    std::memcpy(to, session.rest.data(), count);
    session.rest = session.rest.subspan(count);
  }
};

// Everything becomes 8 bits, without alpha; gray stays gray unless colours are wanted.
void set_transformations(Session& s, int channels) {
  const png_byte type = png_get_color_type(s.png, s.info);
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(s.png);
  if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(s.png);
  png_set_scale_16(s.png);
  png_set_strip_alpha(s.png);
  if ((type & PNG_COLOR_MASK_COLOR) == 0 && channels == 3) png_set_gray_to_rgb(s.png);
}

void copy_row(const uint8_t* from, int have, int32_t width, int want, uint8_t* to) {
  if (have == want) {
    std::memcpy(to, from, static_cast<size_t>(width) * static_cast<size_t>(want));
    return;
  }
  for (int32_t x = 0; x < width; ++x, from += 3) to[x] = luma(from[0], from[1], from[2]);
}

}  // namespace

bool is_png(std::span<const std::byte> encoded) {
  return encoded.size() >= kSignature.size() &&
         std::memcmp(encoded.data(), kSignature.data(), kSignature.size()) == 0;
}

ImageInfo probe_png(std::span<const std::byte> encoded) {
  if (encoded.size() < kHeader) refuse_damaged("the file ends too early");
  const auto* const chunk = reinterpret_cast<const uint8_t*>(encoded.data()) + kSignature.size();
  if (big_endian(chunk) != 13 || std::memcmp(chunk + 4, "IHDR", 4) != 0) {
    refuse_damaged("it does not begin with the chunk IHDR");
  }
  if (crc32(0, chunk + 4, 17) != big_endian(chunk + 21)) {
    refuse_damaged("the checksum of its header is wrong");
  }
  const uint32_t width = big_endian(chunk + 8);
  const uint32_t height = big_endian(chunk + 12);
  check_size(width, height);
  const uint8_t type = chunk[17];
  return {.encoding = Encoding::png,
          .width = static_cast<int32_t>(width),
          .height = static_cast<int32_t>(height),
          .channels = (type & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1};
}

Decoded PngDecoder::decode(std::span<const std::byte> encoded, const Request& request,
                           std::vector<uint8_t>& out) {
  const ImageInfo image = probe_png(encoded);
  const Region region = checked_region(request, image);
  Session s(encoded);
  int passes = 1;
  s.run([&] {
    png_set_user_limits(s.png, static_cast<png_uint_32>(image.width),
                        static_cast<png_uint_32>(image.height));
    png_read_info(s.png, s.info);
    set_transformations(s, request.channels);
    passes = png_set_interlace_handling(s.png);
    png_read_update_info(s.png, s.info);
  });
  const int have = png_get_channels(s.png, s.info);
  const size_t stride = png_get_rowbytes(s.png, s.info);
  check((have == 1 || have == 3) &&
            stride == static_cast<size_t>(have) * static_cast<size_t>(image.width),
        "libpng gives 8 bits for each channel");
  const size_t held = passes == 1 ? stride : stride * static_cast<size_t>(image.height);
  if (rows_.size() < held) rows_.resize(held);
  const size_t wanted_stride =
      static_cast<size_t>(region.width) * static_cast<size_t>(request.channels);
  const size_t needed = wanted_stride * static_cast<size_t>(region.height);
  if (out.size() < needed) out.resize(needed);

  const auto keep = [&](int32_t y, const uint8_t* row) {
    copy_row(row + int64_t{region.x} * have, have, region.width, request.channels,
             out.data() + static_cast<size_t>(y - region.y) * wanted_stride);
  };
  const int32_t bottom = region.y + region.height;
  s.run([&] {
    // Interlaced, every row is needed by every pass; else the rows below the region by none.
    const int32_t last = passes == 1 ? bottom : image.height;
    for (int pass = 0; pass < passes; ++pass) {
      for (int32_t y = 0; y < last; ++y) {
        uint8_t* const row = rows_.data() + (passes == 1 ? 0 : static_cast<size_t>(y) * stride);
        png_read_row(s.png, row, nullptr);
        if (pass == passes - 1 && y >= region.y && y < bottom) keep(y, row);
      }
    }
    if (!request.region) png_read_end(s.png, nullptr);
  });
  return {.pixels = {.bytes = std::span(out).first(needed),
                     .width = region.width,
                     .height = region.height,
                     .channels = request.channels},
          .left = 0,
          .top = 0,
          .across = static_cast<double>(region.width),
          .down = static_cast<double>(region.height)};
}

}  // namespace convoy::data
