#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>

#include "convoy/data/image_codecs.hpp"

namespace convoy::data {
namespace {

// A progressive file of a few kilobytes can ask for thousands of passes over the whole image. Real
// ones have about ten.
constexpr int kMaxScans = 100;

/// What libjpeg calls when something is wrong: notes the message and leaves.
struct Complaints {
  jpeg_error_mgr base{};
  std::jmp_buf leave{};
  std::array<char, JMSG_LENGTH_MAX> message{};
};

[[noreturn]] void give_up(j_common_ptr info) {
  auto* const complaints = reinterpret_cast<Complaints*>(info->err);
  complaints->base.format_message(info, complaints->message.data());
  std::longjmp(complaints->leave, 1);
}

// Level −1 is a warning: libjpeg would go on with made-up pixels. Two are about nothing but
// markers, and harmless.
void on_message(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level < 0 && code != JWRN_JFIF_MAJOR && code != JWRN_ADOBE_XFORM) give_up(info);
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  auto* const complaints = reinterpret_cast<Complaints*>(info->err);
  std::snprintf(complaints->message.data(), complaints->message.size(), "it has more than %d scans",
                kMaxScans);
  std::longjmp(complaints->leave, 1);
}

jpeg_error_mgr* watch(Complaints& complaints) {
  jpeg_error_mgr* const errors = jpeg_std_error(&complaints.base);
  errors->error_exit = give_up;
  errors->emit_message = on_message;
  return errors;
}

// Runs `body`, whose frames hold nothing to destroy; false if libjpeg left it.
template <typename Body>
[[gnu::noinline]] bool guarded(Complaints& complaints, const Body& body) {
  if (setjmp(complaints.leave) != 0) return false;  // NOLINT(cert-err52-cpp): libjpeg's way
  body();
  return true;
}

[[noreturn]] void refuse_damaged(const Complaints& complaints) {
  throw ImageError(BadImage::damaged,
                   fmt::format("cannot be decoded as JPEG: {}",
                               static_cast<const char*>(complaints.message.data())));
}

// As Pillow multiplies out: ink C under ink K leaves (1 − C)(1 − K) of the light. Adobe's programs
// store 255 − ink and say so by their marker.
void rgb_from_cmyk(const uint8_t* from, bool inverted, int32_t width, int channels, uint8_t* to) {
  const uint32_t flip = inverted ? 0 : 255;
  for (int32_t x = 0; x < width; ++x, from += 4, to += channels) {
    const uint32_t k = from[3] ^ flip;
    const auto light = [&](uint32_t ink) { return ((ink ^ flip) * k + 127) / 255; };
    if (channels == 1) {
      to[0] = luma(light(from[0]), light(from[1]), light(from[2]));
    } else {
      for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(light(from[c]));
    }
  }
}

struct Span {
  int64_t begin = 0;
  int64_t end = 0;
};

// The pixels at n/8 of the resolution that [begin, begin + extent) touches, and one more on each
// side: chroma is interpolated between neighbours, and the outermost pixels of what is decoded have
// no neighbour.
Span scaled(int64_t begin, int64_t extent, int64_t n, int64_t limit) {
  return {std::max<int64_t>(begin * n / 8 - 1, 0),
          std::min<int64_t>(((begin + extent) * n + 7) / 8 + 1, limit)};
}

// Among the scales for which libjpeg-turbo has vector code: the ones between are slower than full
// resolution.
unsigned scale_for(const Region& region, Size least) {
  for (const unsigned n : {1U, 2U, 4U}) {
    if (int64_t{region.width} * n >= int64_t{8} * least.width &&
        int64_t{region.height} * n >= int64_t{8} * least.height) {
      return n;
    }
  }
  return 8;
}

}  // namespace

struct JpegDecoder::Session {
  Session() {
    info.err = watch(complaints);
    check(guarded(complaints, [this] { jpeg_create_decompress(&info); }), "libjpeg starts");
    progress.progress_monitor = on_progress;
    info.progress = &progress;
  }
  ~Session() { jpeg_destroy_decompress(&info); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  template <typename Body>
  void run(const Body& body) {
    if (!guarded(complaints, body)) refuse_damaged(complaints);
  }

  /// Reads up to the first scan.
  ImageInfo read_header(std::span<const std::byte> encoded) {
    run([&] {
      jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(encoded.data()), encoded.size());
      jpeg_read_header(&info, TRUE);
    });
    check_size(info.image_width, info.image_height);
    ImageInfo found{.encoding = Encoding::jpeg,
                    .width = static_cast<int32_t>(info.image_width),
                    .height = static_cast<int32_t>(info.image_height),
                    .channels = 3};
    switch (info.jpeg_color_space) {
      case JCS_GRAYSCALE:
        found.channels = 1;
        return found;
      case JCS_YCbCr:
      case JCS_RGB:
      case JCS_CMYK:
      case JCS_YCCK:
        return found;
      default:
        throw ImageError(BadImage::unsupported,
                         fmt::format("is a JPEG of {} components in an unknown colour space; known "
                                     "are gray, YCbCr, RGB, CMYK and YCCK",
                                     info.num_components));
    }
  }

  bool has_ink() const {
    return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  }

  /// Rows [from, to) of what is being decoded, each `stride` bytes, one after the other.
  void read_rows(int64_t from, int64_t to, size_t stride, uint8_t* out) {
    if (from > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(from));
    constexpr int64_t kTogether = 16;
    std::array<JSAMPROW, kTogether> rows{};
    while (info.output_scanline < to) {
      const int64_t count = std::min(kTogether, to - info.output_scanline);
      for (int64_t k = 0; k < count; ++k) rows[static_cast<size_t>(k)] = out + k * stride;
      out += jpeg_read_scanlines(&info, rows.data(), static_cast<JDIMENSION>(count)) * stride;
    }
  }

  void read_ink_rows(int64_t from, int64_t to, int channels, uint8_t* out) {
    if (from > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(from));
    const auto width = static_cast<int32_t>(info.output_width);
    JSAMPROW row = ink.data();
    for (; info.output_scanline < to; out += int64_t{width} * channels) {
      jpeg_read_scanlines(&info, &row, 1);
      rgb_from_cmyk(row, info.saw_Adobe_marker != FALSE, width, channels, out);
    }
  }

  Complaints complaints;
  jpeg_progress_mgr progress{};
  jpeg_decompress_struct info{};
  std::vector<uint8_t> ink;  // a row of CMYK
};

namespace {

/// Whatever happens, the session is ready for the next image.
class Abort {
 public:
  explicit Abort(jpeg_decompress_struct& info) : info_(info) {}
  ~Abort() { jpeg_abort_decompress(&info_); }
  Abort(const Abort&) = delete;
  Abort& operator=(const Abort&) = delete;

 private:
  jpeg_decompress_struct& info_;
};

}  // namespace

JpegDecoder::JpegDecoder() : session_(std::make_unique<Session>()) {}
JpegDecoder::~JpegDecoder() = default;

Decoded JpegDecoder::decode(std::span<const std::byte> encoded, const Request& request,
                            std::vector<uint8_t>& out) {
  Session& s = *session_;
  jpeg_decompress_struct& info = s.info;
  const Abort at_the_end(info);
  const ImageInfo image = s.read_header(encoded);
  const Region region = checked_region(request, image);
  const unsigned n = scale_for(region, request.least);
  info.scale_num = n;
  info.scale_denom = 8;
  info.out_color_space = s.has_ink() ? JCS_CMYK : request.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  s.run([&] { jpeg_start_decompress(&info); });
  const Span columns = scaled(region.x, region.width, n, info.output_width);
  const Span rows = scaled(region.y, region.height, n, info.output_height);
  auto left = static_cast<JDIMENSION>(columns.begin);
  auto width = static_cast<JDIMENSION>(columns.end - columns.begin);
  s.run([&] { jpeg_crop_scanline(&info, &left, &width); });

  const size_t stride = size_t{info.output_width} * static_cast<size_t>(request.channels);
  const size_t needed = stride * static_cast<size_t>(rows.end - rows.begin);
  if (out.size() < needed) out.resize(needed);
  if (s.has_ink()) s.ink.resize(std::max<size_t>(s.ink.size(), size_t{4} * info.output_width));
  s.run([&] {
    if (s.has_ink()) {
      s.read_ink_rows(rows.begin, rows.end, request.channels, out.data());
    } else {
      s.read_rows(rows.begin, rows.end, stride, out.data());
    }
    if (!request.region) jpeg_finish_decompress(&info);
  });
  const double scale = n / 8.0;
  return {.pixels = {.bytes = std::span(out).first(needed),
                     .width = static_cast<int32_t>(info.output_width),
                     .height = static_cast<int32_t>(rows.end - rows.begin),
                     .channels = request.channels},
          .left = region.x * scale - left,
          .top = region.y * scale - static_cast<double>(rows.begin),
          .across = region.width * scale,
          .down = region.height * scale};
}

bool is_jpeg(std::span<const std::byte> encoded) {
  return encoded.size() >= 3 && encoded[0] == std::byte{0xFF} && encoded[1] == std::byte{0xD8} &&
         encoded[2] == std::byte{0xFF};
}

ImageInfo JpegDecoder::probe(std::span<const std::byte> encoded) {
  const Abort at_the_end(session_->info);
  return session_->read_header(encoded);
}

namespace {

/// Compresses into memory that libjpeg allocates.
struct Compressor {
  Compressor() {
    info.err = watch(complaints);
    check(guarded(complaints, [this] { jpeg_create_compress(&info); }), "libjpeg starts");
  }
  ~Compressor() {
    jpeg_destroy_compress(&info);
    std::free(bytes);  // NOLINT(cppcoreguidelines-no-malloc): from libjpeg
  }
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  Complaints complaints;
  jpeg_compress_struct info{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's type
};

}  // namespace

std::vector<std::byte> encode_jpeg(const Pixels& pixels, int quality) {
  check(pixels.channels == 1 || pixels.channels == 3, "images have one channel or three");
  check(pixels.width > 0 && pixels.height > 0 && pixels.width <= JPEG_MAX_DIMENSION &&
            pixels.height <= JPEG_MAX_DIMENSION,
        "an image of JPEG has up to 65500 pixels each way");
  check(quality >= 1 && quality <= 100, "the quality of JPEG is from 1 to 100");
  Compressor c;
  const bool done = guarded(c.complaints, [&] {
    jpeg_mem_dest(&c.info, &c.bytes, &c.size);
    c.info.image_width = static_cast<JDIMENSION>(pixels.width);
    c.info.image_height = static_cast<JDIMENSION>(pixels.height);
    c.info.input_components = pixels.channels;
    c.info.in_color_space = pixels.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&c.info);
    jpeg_set_quality(&c.info, quality, TRUE);
    c.info.optimize_coding = TRUE;
    jpeg_start_compress(&c.info, TRUE);
    while (c.info.next_scanline < c.info.image_height) {
      auto* row = const_cast<JSAMPROW>(pixels.row(c.info.next_scanline));
      jpeg_write_scanlines(&c.info, &row, 1);
    }
    jpeg_finish_compress(&c.info);
  });
  if (!done) fail("libjpeg cannot encode: {}", c.complaints.message.data());
  const auto* const begin = reinterpret_cast<const std::byte*>(c.bytes);
  return {begin, begin + c.size};
}

}  // namespace convoy::data
