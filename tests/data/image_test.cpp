#include "convoy/data/image.hpp"

#include <algorithm>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/data/images.hpp"

namespace convoy::data {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

/// What `action` is refused for.
struct Refusal {
  BadImage what = BadImage::empty;
  std::string message;
};
Refusal refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const ImageError& error) {
    return {error.what_is_wrong(), error.what()};
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

Picture copy(const Pixels& p) {
  return {.width = p.width,
          .height = p.height,
          .channels = p.channels,
          .bytes = {p.bytes.begin(), p.bytes.end()}};
}

Picture decode(const Encoded& encoded, int channels) {
  Decoder decoder;
  return copy(decoder.decode(encoded, channels).pixels);
}

Encoded bytes_of(const std::string& text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

void set_big_endian(Encoded& bytes, size_t at, uint32_t value) {
  for (size_t k = 0; k < 4; ++k) bytes.at(at + k) = static_cast<std::byte>(value >> (24 - 8 * k));
}

// ---- probe --------------------------------------------------------------------------------------

TEST(Probe, TellsEncodingSizeAndChannels) {
  EXPECT_EQ(probe(make_jpeg(picture(37, 21, 3))), (ImageInfo{Encoding::jpeg, 37, 21, 3}));
  EXPECT_EQ(probe(make_jpeg(picture(5, 70, 1))), (ImageInfo{Encoding::jpeg, 5, 70, 1}));
  EXPECT_EQ(probe(make_jpeg(picture(16, 16, 4))), (ImageInfo{Encoding::jpeg, 16, 16, 3}));
  EXPECT_EQ(probe(make_png(picture(9, 4, 3))), (ImageInfo{Encoding::png, 9, 4, 3}));
  EXPECT_EQ(probe(make_png(picture(9, 4, 1))), (ImageInfo{Encoding::png, 9, 4, 1}));
}

TEST(Probe, SaysWhatIsWrong) {
  const Refusal empty = refusal([] { probe({}); });
  EXPECT_EQ(empty.what, BadImage::empty);
  const Refusal text = refusal([] { probe(bytes_of("GIF89a")); });
  EXPECT_EQ(text.what, BadImage::not_an_image);
  EXPECT_THAT(text.message, HasSubstr("begins with 47 49 46 38"));
  EXPECT_EQ(refusal([] { probe(bytes_of("\xff\xd8\xff")); }).what, BadImage::damaged);
}

TEST(Probe, RefusesAbsurdSizesByTheHeader) {
  Encoded png = make_png(picture(8, 8, 1));
  set_big_endian(png, 16, 20000);
  set_big_endian(png, 20, 20000);
  EXPECT_THAT(refusal([&] { probe(png); }).message, HasSubstr("checksum of its header"));
  set_big_endian(png, 29, static_cast<uint32_t>(crc32(0, as_uint8(png).data() + 12, 17)));
  EXPECT_EQ(refusal([&] { probe(png); }).what, BadImage::too_large);
  EXPECT_EQ(refusal([&] { decode(png, 1); }).what, BadImage::too_large);

  Encoded jpeg = make_jpeg(picture(8, 8, 3));
  // The marker SOF0, then length, precision, height and width.
  const std::vector<std::byte> marker{std::byte{0xFF}, std::byte{0xC0}};
  const auto at = std::search(jpeg.begin(), jpeg.end(), marker.begin(), marker.end());
  set_big_endian(jpeg, static_cast<size_t>(at - jpeg.begin()) + 5, 60000U << 16 | 60000U);
  const Refusal large = refusal([&] { decode(jpeg, 3); });
  EXPECT_EQ(large.what, BadImage::too_large);
  EXPECT_THAT(large.message, HasSubstr("60000×60000"));
}

// ---- JPEG ---------------------------------------------------------------------------------------

struct NamedKind {
  const char* name;
  int32_t channels;
  JpegKind kind;
};
const std::vector<NamedKind>& jpeg_kinds() {
  static const std::vector<NamedKind> kinds = {
      {"gray", 1, {}},
      {"4:4:4", 3, {.across = 1, .down = 1}},
      {"4:2:2", 3, {.across = 2, .down = 1}},
      {"4:4:0", 3, {.across = 1, .down = 2}},
      {"4:2:0", 3, {}},
      {"4:1:1", 3, {.across = 4, .down = 1}},
      {"progressive 4:2:0", 3, {.progressive = true}},
      {"progressive gray", 1, {.progressive = true}},
      {"4:2:0 in three scans", 3, {.separate = true}},
      {"4:2:0 with restarts", 3, {.restart = 1}},
  };
  return kinds;
}

TEST(Jpeg, AFullDecodeIsLibjpegsOwn) {
  for (const NamedKind& k : jpeg_kinds()) {
    const Encoded encoded = make_jpeg(picture(67, 45, k.channels), k.kind);
    for (const int channels : {1, 3}) {
      const Picture ours = decode(encoded, channels);
      const Picture theirs = plain_decode(encoded, channels);
      EXPECT_EQ(ours.width, 67);
      EXPECT_EQ(ours.height, 45);
      EXPECT_EQ(ours.bytes, theirs.bytes) << k.name;
    }
  }
}

// Every pixel that the region touches is compared with a full decode at the same scale.
void compare_region(const Encoded& encoded, const Picture& full, Region r, Size least, unsigned n,
                    Decoder& decoder, const std::string& what) {
  const Decoded part = decoder.decode(encoded, r, least, full.channels);
  const double scale = n / 8.0;
  ASSERT_EQ(part.across, r.width * scale) << what;
  ASSERT_EQ(part.down, r.height * scale) << what;
  const auto shift_x = static_cast<int64_t>(r.x * scale - part.left);
  const auto shift_y = static_cast<int64_t>(r.y * scale - part.top);
  const auto x_end = std::min<int64_t>(full.width, (int64_t{r.x} + r.width) * n / 8 + 1);
  const auto y_end = std::min<int64_t>(full.height, (int64_t{r.y} + r.height) * n / 8 + 1);
  int worst = 0;
  for (auto y = static_cast<int64_t>(r.y * scale); y < y_end; ++y) {
    for (auto x = static_cast<int64_t>(r.x * scale); x < x_end; ++x) {
      if ((x >= (int64_t{r.x} + r.width) * scale) || (y >= (int64_t{r.y} + r.height) * scale)) {
        continue;
      }
      ASSERT_GE(x - shift_x, 0) << what;
      ASSERT_LT(x - shift_x, part.pixels.width) << what;
      ASSERT_GE(y - shift_y, 0) << what;
      ASSERT_LT(y - shift_y, part.pixels.height) << what;
      for (int c = 0; c < full.channels; ++c) {
        const int ours = part.pixels.row(y - shift_y)[(x - shift_x) * full.channels + c];
        worst = std::max(worst, std::abs(ours - full.at(y, x, c)));
      }
    }
  }
  EXPECT_EQ(worst, 0) << what;
}

TEST(Jpeg, RegionsAtEveryScaleAreThoseOfAFullDecode) {
  Decoder decoder;
  for (const NamedKind& k : jpeg_kinds()) {
    const Encoded encoded = make_jpeg(picture(131, 97, k.channels), k.kind);
    for (const unsigned n : {1U, 2U, 4U, 8U}) {
      const Picture full = plain_decode(encoded, 3, n);
      Stream random(7, Purpose::test, n);
      for (int trial = 0; trial < 40; ++trial) {
        Region r;
        r.width = 8 + static_cast<int32_t>(random.below(124));
        r.height = 8 + static_cast<int32_t>(random.below(90));
        r.x = static_cast<int32_t>(random.below(static_cast<uint32_t>(132 - r.width)));
        r.y = static_cast<int32_t>(random.below(static_cast<uint32_t>(98 - r.height)));
        // The size that needs just this scale: one more would need a higher one.
        const Size least{.height = static_cast<int32_t>(r.height * n / 8),
                         .width = static_cast<int32_t>(r.width * n / 8)};
        if (n < 8 && (least.height == 0 || least.width == 0)) continue;
        compare_region(encoded, full, r, n == 1 ? Size{1, 1} : least, n, decoder,
                       fmt::format("{} at {}/8, region {}×{} at ({}, {})", k.name, n, r.width,
                                   r.height, r.x, r.y));
      }
    }
  }
}

TEST(Jpeg, DecodesNoMoreThanIsNeeded) {
  const Encoded encoded = make_jpeg(picture(640, 480, 3));
  Decoder decoder;
  const auto size = [&](Region r, Size least) {
    const Pixels p = decoder.decode(encoded, r, least, 3).pixels;
    return Size{p.height, p.width};
  };
  EXPECT_EQ(size({0, 0, 640, 480}, {480, 640}), (Size{480, 640}));
  EXPECT_EQ(size({0, 0, 640, 480}, {240, 320}), (Size{240, 320}));
  EXPECT_EQ(size({0, 0, 640, 480}, {241, 1}), (Size{480, 640}));
  EXPECT_EQ(size({0, 0, 640, 480}, {60, 80}), (Size{60, 80}));
  const Size part = size({200, 200, 100, 100}, {100, 100});
  EXPECT_LE(part.width, 100 + 16 + 2);
  EXPECT_LE(part.height, 102);
}

TEST(Jpeg, InkIsMultipliedOut) {
  Picture ink{.width = 16, .height = 16, .channels = 4, .bytes = {}};
  for (int i = 0; i < 256; ++i) ink.bytes.insert(ink.bytes.end(), {200, 100, 50, 128});
  // As Adobe stores it, 255 is no ink: 200·128/255, 100·128/255, 50·128/255.
  const Picture adobe = decode(make_jpeg(ink, {.quality = 100}), 3);
  const auto near = [](const Picture& p, std::array<int, 3> rgb) {
    for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(p.at(8, 8, static_cast<int64_t>(c)), rgb[c], 2);
  };
  near(adobe, {100, 50, 25});
  near(decode(make_jpeg(ink, {.adobe = false, .quality = 100}), 3), {27, 77, 102});
  EXPECT_NEAR(decode(make_jpeg(ink, {.quality = 100}), 1).at(3, 3, 0), 62, 3);
}

TEST(Jpeg, OurOwnAreReadBackNearly) {
  for (const int channels : {1, 3}) {
    Picture p{.width = 50, .height = 34, .channels = channels, .bytes = {}};
    for (int i = 0; i < 50 * 34 * channels; ++i) {
      p.bytes.push_back(static_cast<uint8_t>(i / channels % 50 * 3 + 40));
    }
    const Encoded encoded = encode_jpeg(p.pixels(), 95);
    EXPECT_EQ(probe(encoded), (ImageInfo{Encoding::jpeg, 50, 34, channels}));
    const Picture back = decode(encoded, channels);
    for (size_t i = 0; i < p.bytes.size(); ++i) ASSERT_NEAR(back.bytes[i], p.bytes[i], 6);
    EXPECT_EQ(encode_jpeg(p.pixels(), 95), encoded);
    EXPECT_LT(encode_jpeg(p.pixels(), 30).size(), encoded.size());
  }
}

TEST(Jpeg, TooManyScansAreRefused) {
  Encoded encoded = make_jpeg(picture(16, 16, 3), {.separate = true});
  const std::vector<std::byte> scan{std::byte{0xFF}, std::byte{0xDA}};
  const auto last = std::find_end(encoded.begin(), encoded.end(), scan.begin(), scan.end());
  const Encoded piece(last, encoded.end() - 2);
  const auto with_scans = [&](int more) {
    Encoded longer(encoded.begin(), encoded.end() - 2);
    for (int i = 0; i < more; ++i) longer.insert(longer.end(), piece.begin(), piece.end());
    longer.insert(longer.end(), {std::byte{0xFF}, std::byte{0xD9}});
    return longer;
  };
  EXPECT_EQ(decode(with_scans(97), 3).bytes, decode(encoded, 3).bytes);
  EXPECT_THAT(refusal([&] { decode(with_scans(98), 3); }).message,
              HasSubstr("more than 100 scans"));
}

// ---- PNG ----------------------------------------------------------------------------------------

TEST(Png, EveryKindGivesItsPixels) {
  const std::vector<png_color> palette{{10, 20, 30}, {200, 100, 50}, {0, 255, 0}, {7, 8, 9}};
  struct Case {
    const char* name;
    PngKind kind;
    std::vector<uint8_t> row;      // of four pixels, as stored
    std::vector<uint8_t> colours;  // of the four pixels
    int channels = 3;              // as probe() says
  };
  const std::vector<Case> cases = {
      {"gray 1",
       {.type = PNG_COLOR_TYPE_GRAY, .depth = 1},
       {0b10100000},
       {255, 255, 255, 0, 0, 0, 255, 255, 255, 0, 0, 0},
       1},
      {"gray 2",
       {.type = PNG_COLOR_TYPE_GRAY, .depth = 2},
       {0b00011011},
       {0, 0, 0, 85, 85, 85, 170, 170, 170, 255, 255, 255},
       1},
      {"gray 4",
       {.type = PNG_COLOR_TYPE_GRAY, .depth = 4},
       {0x01, 0xF8},
       {0, 0, 0, 17, 17, 17, 255, 255, 255, 136, 136, 136},
       1},
      {"gray 8",
       {.type = PNG_COLOR_TYPE_GRAY},
       {1, 2, 3, 250},
       {1, 1, 1, 2, 2, 2, 3, 3, 3, 250, 250, 250},
       1},
      {"gray 8 with one transparent value",
       {.type = PNG_COLOR_TYPE_GRAY, .clear_colour = true},
       {0, 2, 3, 250},
       {0, 0, 0, 2, 2, 2, 3, 3, 3, 250, 250, 250},
       1},
      {"gray 16",
       {.type = PNG_COLOR_TYPE_GRAY, .depth = 16},
       {0x00, 0x80, 0x00, 0x81, 0x12, 0x34, 0xFF, 0xFF},
       {0, 0, 0, 1, 1, 1, 18, 18, 18, 255, 255, 255},
       1},
      {"gray and alpha",
       {.type = PNG_COLOR_TYPE_GRAY_ALPHA},
       {9, 0, 8, 255, 7, 100, 6, 1},
       {9, 9, 9, 8, 8, 8, 7, 7, 7, 6, 6, 6},
       1},
      {"gray and alpha 16",
       {.type = PNG_COLOR_TYPE_GRAY_ALPHA, .depth = 16},
       {9, 9, 0, 0, 8, 8, 1, 1, 7, 7, 2, 2, 6, 6, 3, 3},
       {9, 9, 9, 8, 8, 8, 7, 7, 7, 6, 6, 6},
       1},
      {"palette 2",
       {.type = PNG_COLOR_TYPE_PALETTE, .depth = 2, .palette = palette},
       {0b11000110},
       {7, 8, 9, 10, 20, 30, 200, 100, 50, 0, 255, 0}},
      {"palette 8",
       {.type = PNG_COLOR_TYPE_PALETTE, .palette = palette},
       {0, 1, 2, 3},
       {10, 20, 30, 200, 100, 50, 0, 255, 0, 7, 8, 9}},
      {"palette with alpha",
       {.type = PNG_COLOR_TYPE_PALETTE, .palette = palette, .transparency = {0, 128}},
       {0, 1, 2, 3},
       {10, 20, 30, 200, 100, 50, 0, 255, 0, 7, 8, 9}},
      {"RGB", {}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
      {"RGB with one transparent value",
       {.clear_colour = true},
       {0, 0, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12},
       {0, 0, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
      {"RGB 16",
       {.type = PNG_COLOR_TYPE_RGB, .depth = 16},
       {1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12},
       {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
      {"RGBA",
       {.type = PNG_COLOR_TYPE_RGB_ALPHA},
       {1, 2, 3, 0, 4, 5, 6, 255, 7, 8, 9, 100, 10, 11, 12, 3},
       {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
      {"RGBA 16",
       {.type = PNG_COLOR_TYPE_RGB_ALPHA, .depth = 16},
       {1, 1, 2, 2, 3, 3, 0, 0, 4,  4,  5,  5,  6,  6,  9,   9,
        7, 7, 8, 8, 9, 9, 1, 1, 10, 10, 11, 11, 12, 12, 255, 255},
       {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
  };
  for (const Case& one : cases) {
    for (const bool interlaced : {false, true}) {
      PngKind kind = one.kind;
      kind.interlaced = interlaced;
      std::vector<uint8_t> rows;
      for (int y = 0; y < 3; ++y) rows.insert(rows.end(), one.row.begin(), one.row.end());
      const Encoded encoded = make_png(4, 3, rows, kind);
      EXPECT_EQ(probe(encoded), (ImageInfo{Encoding::png, 4, 3, one.channels})) << one.name;
      const Picture colours = decode(encoded, 3);
      for (size_t i = 0; i < 36; ++i) {
        ASSERT_EQ(colours.bytes[i], one.colours[i % 12]) << one.name << " value " << i;
      }
      const Picture gray = decode(encoded, 1);
      for (size_t i = 0; i < 12; ++i) {
        const uint8_t* const rgb = &one.colours[i % 4 * 3];
        ASSERT_NEAR(gray.bytes[i], 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2], 0.51)
            << one.name;
      }
    }
  }
}

TEST(Png, RegionsAreThoseOfTheWholeImage) {
  const Picture whole = picture(61, 43, 3);
  Decoder decoder;
  for (const bool interlaced : {false, true}) {
    const Encoded encoded = make_png(whole, interlaced);
    EXPECT_EQ(decode(encoded, 3).bytes, whole.bytes);
    for (const Region r : {Region{0, 0, 61, 43}, Region{60, 42, 1, 1}, Region{7, 5, 20, 30}}) {
      const Decoded part = decoder.decode(encoded, r, {1, 1}, 3);
      ASSERT_EQ(part.pixels.width, r.width);
      ASSERT_EQ(part.pixels.height, r.height);
      for (int32_t y = 0; y < r.height; ++y) {
        for (int32_t x = 0; x < 3 * r.width; ++x) {
          ASSERT_EQ(part.pixels.row(y)[x], whole.at(y + r.y, r.x + x / 3, x % 3));
        }
      }
    }
  }
}

// ---- raw ----------------------------------------------------------------------------------------

TEST(Raw, PlanesAreInterleavedAndCropped) {
  Encoded planes;
  for (int i = 0; i < 3 * 4 * 5; ++i) planes.push_back(static_cast<std::byte>(i));
  const ImageInfo info{Encoding::raw, 5, 4, 3};
  Decoder decoder;
  const Decoded part = decoder.decode_raw(planes, info, {3, 1, 2, 2}, 3);
  EXPECT_THAT(part.pixels.bytes, ElementsAre(8, 28, 48, 9, 29, 49, 13, 33, 53, 14, 34, 54));
  EXPECT_THAT(decoder.decode_raw(planes, info, {3, 1, 2, 1}, 1).pixels.bytes,
              ElementsAre(24, 25));  // 0.299·8 + 0.587·28 + 0.114·48 = 24.3
  const ImageInfo gray{Encoding::raw, 5, 12, 1};
  EXPECT_THAT(decoder.decode_raw(planes, gray, {0, 11, 2, 1}, 3).pixels.bytes,
              ElementsAre(55, 55, 55, 56, 56, 56));
  planes.pop_back();
  EXPECT_EQ(refusal([&] {
              decoder.decode_raw(planes, info, {0, 0, 5, 4}, 3);
            }).what,
            BadImage::damaged);
}

// ---- bad images ---------------------------------------------------------------------------------

std::vector<Encoded> samples() {
  std::vector<Encoded> all;
  for (const NamedKind& k : jpeg_kinds()) {
    all.push_back(make_jpeg(picture(24, 19, k.channels), k.kind));
  }
  all.push_back(make_jpeg(picture(24, 19, 4)));
  for (const bool interlaced : {false, true}) {
    all.push_back(make_png(picture(24, 19, 3), interlaced));
    all.push_back(make_png(picture(24, 19, 1), interlaced));
  }
  return all;
}

TEST(BadImages, CutShortAnywhereAreRefused) {
  Decoder decoder;
  for (const Encoded& whole : samples()) {
    ASSERT_NO_THROW(decoder.decode(whole, 3));
    for (size_t length = 0; length < whole.size(); ++length) {
      const Encoded cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
      EXPECT_THROW(decoder.decode(cut, 3), ImageError)
          << to_string(probe(whole).encoding) << " cut at " << length << " of " << whole.size();
    }
  }
}

TEST(BadImages, WithWrongBytesAreRefusedOrDecodedButNeverMore) {
  Decoder decoder;
  int refused = 0;
  for (const Encoded& whole : samples()) {
    for (size_t at = 0; at < whole.size(); ++at) {
      Encoded wrong = whole;
      wrong[at] ^= std::byte{0x55};
      try {
        const ImageInfo info = probe(wrong);
        if (info.pixels() > 1 << 20) continue;
        decoder.decode(wrong, 3);
        decoder.decode(wrong, {0, 0, (info.width + 1) / 2, (info.height + 1) / 2}, {4, 4}, 1);
      } catch (const ImageError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(BadImages, OfAnotherSizeThanTheyShouldHaveAreRefused) {
  Decoder decoder;
  for (const Encoded& encoded : {make_jpeg(picture(24, 19, 3)), make_png(picture(24, 19, 3))}) {
    for (const Region r : {Region{0, 0, 25, 19}, Region{0, 10, 5, 10}, Region{-1, 0, 5, 5},
                           Region{0, 0, 0, 5}, Region{INT32_MAX, 0, INT32_MAX, 5}}) {
      EXPECT_THAT(refusal([&] {
                    decoder.decode(encoded, r, {1, 1}, 3);
                  }).message,
                  HasSubstr("has 24×19 pixels"));
    }
  }
}

TEST(BadImages, LeaveTheDecoderAsGoodAsNew) {
  const Encoded jpeg = make_jpeg(picture(40, 30, 3), {.progressive = true});
  const Encoded png = make_png(picture(40, 30, 3));
  Decoder used;
  for (const Encoded* whole : {&jpeg, &png, &jpeg}) {
    const Encoded half(whole->begin(), whole->begin() + static_cast<ptrdiff_t>(whole->size() / 2));
    EXPECT_THROW(used.decode(half, 3), ImageError);
    EXPECT_THAT(used.decode(*whole, 3).pixels.bytes, ElementsAreArray(decode(*whole, 3).bytes));
    const Region r{5, 6, 20, 10};
    Decoder fresh;
    EXPECT_THAT(used.decode(*whole, r, {5, 5}, 3).pixels.bytes,
                ElementsAreArray(fresh.decode(*whole, r, {5, 5}, 3).pixels.bytes));
  }
}

}  // namespace
}  // namespace convoy::data
