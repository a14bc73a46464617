#include "convoy/data/pack.hpp"

#include <csignal>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convoy/data/dataset.hpp"

#include "tests/data/helpers.hpp"
#include "tests/data/images.hpp"

namespace convoy::data {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// 30 images of three classes and several kinds: large and small, gray and colour, JPEG and PNG.
class Pack : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 30; ++i) {
      const Picture p =
          picture(20 + 3 * i, 70 - 2 * i, i % 7 == 0 ? 1 : 3, static_cast<uint64_t>(i) + 1);
      const bool png = i % 5 == 0;
      const Encoded bytes = png ? make_png(p, i % 2 == 0) : make_jpeg(p);
      folder_.write(fmt::format("images/{}/{}/{:02}.{}", i % 6 < 4 ? "train" : "val",
                                std::array{"ant", "bee", "cow"}[static_cast<size_t>(i % 3)], i,
                                png ? "png" : "jpg"),
                    as_uint8(bytes));
    }
  }
  PackOptions options(const std::string& to = "set.pack") const {
    PackOptions o;
    o.source = folder_.path() / "images";
    o.to = folder_.path() / to;
    return o;
  }
  std::vector<uint8_t> bytes(const std::string& name) const {
    return read_file(folder_.path() / name);
  }

  Folder folder_;
};

TEST_F(Pack, KeepsImagesAsTheyWere) {
  const PackReport report = pack(options());
  EXPECT_EQ(report.ending, PackEnding::finished);
  EXPECT_EQ(report.kind, "folder");
  EXPECT_EQ(report.records, 30);
  const PackedFile file(options().to);
  EXPECT_THAT(file.summary().classes, ElementsAre("ant", "bee", "cow"));
  EXPECT_EQ(file.split("train").count, 20);
  EXPECT_EQ(file.split("test").count, 10);
  EXPECT_THAT(verify_all(file), IsEmpty());
  for (int64_t i = 0; i < file.size(); ++i) {
    const PackedRecord record = file.record(i);
    Encoded stored(static_cast<size_t>(record.length));
    file.read(i, stored);
    const std::vector<uint8_t> source =
        read_file(folder_.path() / "images" / std::string(record.source));
    EXPECT_TRUE(std::ranges::equal(as_uint8(stored), source)) << record.source;
    EXPECT_EQ(record.image, probe(stored));
    const std::string name = file.summary().classes.at(static_cast<size_t>(record.label));
    EXPECT_THAT(std::string(record.source), HasSubstr("/" + name + "/"));
  }
}

TEST_F(Pack, MeasuresTheTrainingPixels) {
  pack(options());
  const PackedFile file(options().to);
  Decoder decoder;
  std::vector<double> sum(3);
  std::vector<double> squares(3);
  double count = 0;
  for (int64_t i = 0; i < file.split("train").count; ++i) {
    Encoded stored(static_cast<size_t>(file.record(i).length));
    file.read(i, stored);
    const Pixels p = decoder.decode(stored, 3).pixels;
    count += static_cast<double>(p.width) * p.height;
    for (size_t k = 0; k < p.bytes.size(); ++k) {
      sum[k % 3] += p.bytes[k];
      squares[k % 3] += static_cast<double>(p.bytes[k]) * p.bytes[k];
    }
  }
  for (size_t c = 0; c < 3; ++c) {
    const double mean = sum[c] / count;
    EXPECT_NEAR(file.summary().mean[c], mean / 255, 1e-6);
    EXPECT_NEAR(file.summary().std[c], std::sqrt(squares[c] / count - mean * mean) / 255, 1e-6);
  }
}

TEST_F(Pack, IsTheSameWithAnyNumberOfThreads) {
  for (const int resize : {0, 24}) {
    std::vector<uint8_t> first;
    for (const int threads : {1, 4, 7}) {
      PackOptions o = options(fmt::format("{}-{}.pack", resize, threads));
      o.threads = threads;
      o.resize = resize;
      pack(o);
      const std::vector<uint8_t> packed = read_file(o.to);
      if (first.empty()) first = packed;
      EXPECT_TRUE(packed == first) << threads << " threads";
    }
  }
}

TEST_F(Pack, ReducesLargeImagesOnly) {
  PackOptions o = options();
  o.resize = 40;
  o.quality = 95;
  pack(o);
  const PackedFile file(o.to);
  Decoder decoder;
  int reduced = 0;
  for (int64_t i = 0; i < file.size(); ++i) {
    const PackedRecord record = file.record(i);
    const std::vector<uint8_t> source =
        read_file(folder_.path() / "images" / std::string(record.source));
    const ImageInfo before = probe(std::as_bytes(std::span(source)));
    Encoded stored(static_cast<size_t>(record.length));
    file.read(i, stored);
    EXPECT_EQ(record.image.channels, before.channels);
    if (std::min(before.width, before.height) <= 40) {
      EXPECT_TRUE(std::ranges::equal(as_uint8(stored), source));
      continue;
    }
    ++reduced;
    EXPECT_EQ(std::min(record.image.width, record.image.height), 40);
    EXPECT_NEAR(static_cast<double>(record.image.width) / record.image.height,
                static_cast<double>(before.width) / before.height, 0.03);
    EXPECT_EQ(record.image.encoding, Encoding::jpeg);
    EXPECT_EQ(probe(stored), record.image);
    const ImageMoments was =
        measure(decoder.decode(std::as_bytes(std::span(source)), before.channels).pixels);
    const ImageMoments is = measure(decoder.decode(stored, before.channels).pixels);
    EXPECT_NEAR(is[0].mean(), was[0].mean(), 0.01);
  }
  EXPECT_GT(reduced, 3);
}

TEST_F(Pack, RefusesToOverwrite) {
  folder_.write("set.pack", "precious");
  EXPECT_THAT(refusal([&] { pack(options()); }), HasSubstr("exists already"));
  EXPECT_EQ(bytes("set.pack").size(), 8U);
}

TEST_F(Pack, StoppedAnywhereItGoesOnToTheSameBytes) {
  pack(options("whole.pack"));
  std::atomic<int> stop = 0;
  PackOptions o = options();
  o.threads = 3;
  o.stop = &stop;
  int64_t until = 0;
  o.progress = [&](const PackStanding& standing) {
    if (standing.done >= until) stop = SIGINT;
  };
  for (until = 4; until < 30; until += 9) {
    stop = 0;
    const PackReport report = pack(o);
    EXPECT_EQ(report.ending, PackEnding::stopped);
    EXPECT_EQ(report.taken_up, until == 4 ? 0 : until - 9);
    EXPECT_FALSE(fs::exists(o.to));
  }
  stop = 0;
  until = 31;
  EXPECT_EQ(pack(o).ending, PackEnding::finished);
  EXPECT_TRUE(bytes("set.pack") == bytes("whole.pack"));
}

TEST_F(Pack, KilledItGoesOnToTheSameBytes) {
  pack(options("whole.pack"));
  PackOptions o = options();
  o.threads = 2;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    o.progress = [](const PackStanding& standing) {
      if (standing.done == 17) ::kill(::getpid(), SIGKILL);
    };
    pack(o);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const PackReport report = pack(o);
  EXPECT_EQ(report.taken_up, 17);
  EXPECT_EQ(report.ending, PackEnding::finished);
  EXPECT_TRUE(bytes("set.pack") == bytes("whole.pack"));
}

TEST_F(Pack, BeginsAnewWhenASourceChanged) {
  std::atomic<int> stop = 0;
  PackOptions o = options();
  o.stop = &stop;
  o.progress = [&](const PackStanding& standing) { stop = standing.done >= 10 ? SIGINT : 0; };
  EXPECT_EQ(pack(o).ending, PackEnding::stopped);
  folder_.write("images/train/ant/00.png", as_uint8(make_png(picture(8, 8, 3))));
  stop = 0;
  o.progress = nullptr;
  EXPECT_EQ(pack(o).taken_up, 0);
  pack(options("whole.pack"));
  EXPECT_TRUE(bytes("set.pack") == bytes("whole.pack"));
}

// ---- bad images ---------------------------------------------------------------------------------

class PackWithBadImages : public Pack {
 protected:
  void SetUp() override {
    Pack::SetUp();
    folder_.write("images/train/ant/empty.jpg", std::vector<uint8_t>{});
    folder_.write("images/train/ant/text.png", std::string("not an image"));
    Encoded cut = make_jpeg(picture(40, 40, 3));
    cut.resize(cut.size() / 2);
    folder_.write("images/train/bee/cut.jpg", as_uint8(cut));
    Encoded large = make_png(picture(8, 8, 1));
    large[16] = std::byte{0x70};  // the width becomes absurd, and its checksum wrong
    folder_.write("images/val/cow/large.png", as_uint8(large));
    folder_.write("images/val/cow/notes.txt", std::string("let be"));
    fs::create_symlink("nowhere", folder_.path() / "images/val/cow/link.jpg");
  }
};

TEST_F(PackWithBadImages, NamesAllOfThemAndDoesNotFinish) {
  const PackReport report = pack(options());
  EXPECT_EQ(report.ending, PackEnding::bad);
  EXPECT_FALSE(fs::exists(options().to));
  std::map<std::string, BadImage> bad;
  for (const LeftOut& one : report.bad) bad[one.source] = one.what;
  EXPECT_EQ(bad, (std::map<std::string, BadImage>{
                     {"train/ant/empty.jpg", BadImage::empty},
                     {"train/ant/text.png", BadImage::not_an_image},
                     {"train/bee/cut.jpg", BadImage::damaged},
                     {"val/cow/large.png", BadImage::damaged},
                     {"val/cow/link.jpg", BadImage::unreadable},
                 }));
  EXPECT_THAT(report.others, ElementsAre("val/cow/notes.txt"));
}

TEST_F(PackWithBadImages, LeavesThemOutIfToldSoWithoutStartingAgain) {
  EXPECT_EQ(pack(options()).ending, PackEnding::bad);
  PackOptions o = options();
  o.skip_bad = true;
  const PackReport report = pack(o);
  EXPECT_EQ(report.ending, PackEnding::finished);
  EXPECT_EQ(report.taken_up, 35);
  EXPECT_EQ(report.bad.size(), 5U);
  EXPECT_EQ(report.records, 30);
  EXPECT_EQ(PackedFile(o.to).size(), 30);
}

// ---- other sources ------------------------------------------------------------------------------

std::vector<uint8_t> big_endian(std::initializer_list<uint32_t> numbers) {
  std::vector<uint8_t> bytes;
  for (const uint32_t n : numbers) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(n >> shift));
  }
  return bytes;
}

TEST(PackRaw, IdxKeepsPixelsLabelsAndMoments) {
  const Folder folder;
  for (const auto& [name, count] : {std::pair{"train", 5U}, {"t10k", 2U}}) {
    auto images = big_endian({0x803, count, 4, 3});
    auto labels = big_endian({0x801, count});
    for (uint32_t i = 0; i < count * 12; ++i) images.push_back(static_cast<uint8_t>(i * 3));
    for (uint32_t i = 0; i < count; ++i) labels.push_back(static_cast<uint8_t>(i % 4));
    folder.write(fmt::format("{}-images-idx3-ubyte", name), images);
    folder.write(fmt::format("{}-labels-idx1-ubyte", name), labels);
  }
  PackOptions o;
  o.source = folder.path();
  o.to = folder.path() / "set.pack";
  const PackReport report = pack(o);
  EXPECT_EQ(report.kind, "idx");
  const PackedFile file(o.to);
  const Source source = open(files("idx", folder.string()));
  EXPECT_EQ(file.summary().channels, 1);
  EXPECT_EQ(file.summary().mean, source.mean);
  EXPECT_EQ(file.summary().std, source.std);
  EXPECT_THAT(file.summary().classes, ElementsAre("0", "1", "2", "3"));
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(file.record(i).label, source.train->label(i));
    EXPECT_EQ(file.record(i).image, (ImageInfo{Encoding::raw, 3, 4, 1}));
    Encoded pixels(12);
    file.read(i, pixels);
    EXPECT_TRUE(std::ranges::equal(as_uint8(pixels), source.train->pixels(i)));
  }
  EXPECT_EQ(file.record(6).source, "test/1");
  o.to = folder.path() / "other.pack";
  o.resize = 2;
  EXPECT_THAT(refusal([&] { pack(o); }), HasSubstr("only image folders can be reduced"));
  o.resize = 0;
  o.kind = "cifar";
  EXPECT_THAT(refusal([&] { pack(o); }), HasSubstr("did you mean 'cifar10'"));
  o.kind = "folder";
  EXPECT_THAT(refusal([&] { pack(o); }), HasSubstr("no images were found"));
}

TEST(PackRaw, CifarIsRecognised) {
  const Folder folder;
  for (int i = 1; i <= 6; ++i) {
    std::vector<uint8_t> record(3073, static_cast<uint8_t>(40 * i));
    record[0] = static_cast<uint8_t>(i);
    folder.write(i == 6 ? std::string("cifar-10-batches-bin/test_batch.bin")
                        : fmt::format("cifar-10-batches-bin/data_batch_{}.bin", i),
                 record);
  }
  PackOptions o;
  o.source = folder.path();
  o.to = folder.path() / "set.pack";
  EXPECT_EQ(pack(o).kind, "cifar10");
  const PackedFile file(o.to);
  EXPECT_EQ(file.size(), 6);
  EXPECT_EQ(file.record(5).image, (ImageInfo{Encoding::raw, 32, 32, 3}));
  EXPECT_EQ(file.summary().classes.at(6), "frog");
  EXPECT_THAT(describe(file), AllOf(HasSubstr("5 images"), HasSubstr("6 raw"),
                                    HasSubstr("32×32 to 32×32"), HasSubstr("airplane")));
}

TEST(PackRealData, ImagenetteHasItsKnownCounts) {
  const char* root = std::getenv("CONVOY_DATA");
  const fs::path tar =
      fs::path(root != nullptr ? root : CONVOY_SOURCE_DIR "/data") / "imagenette2-224-part.tar";
  if (!fs::exists(tar)) {
    GTEST_SKIP() << "NOT TESTED: there is no " << tar.string()
                 << ". Set CONVOY_DATA to the folder that holds it";
  }
  const Folder folder;
  ASSERT_EQ(std::system(fmt::format("tar -xf '{}' -C '{}'", tar.string(), folder.string()).c_str()),
            0);
  PackOptions o;
  o.source = folder.path() / "imagenette2-224-part";
  o.to = folder.path() / "imagenette.pack";
  o.threads = 2;
  const PackReport report = pack(o);
  EXPECT_EQ(report.ending, PackEnding::finished);
  EXPECT_THAT(report.bad, IsEmpty());
  const PackedFile file(o.to);
  EXPECT_EQ(file.split("train").count, 2500);
  EXPECT_EQ(file.split("test").count, 500);
  EXPECT_EQ(file.summary().classes.size(), 10U);
  std::vector<int> labels(10);
  int gray = 0;
  for (int64_t i = 0; i < file.size(); ++i) {
    ++labels.at(static_cast<size_t>(file.record(i).label));
    gray += file.record(i).image.channels == 1 ? 1 : 0;
  }
  EXPECT_THAT(labels, testing::Each(300));
  EXPECT_EQ(gray, 62);
  EXPECT_THAT(verify_all(file), IsEmpty());
  // As of the whole of ImageNet, nearly: 0.485 0.456 0.406 and 0.229 0.224 0.225.
  EXPECT_NEAR(file.summary().mean[0], 0.465, 0.03);
  EXPECT_NEAR(file.summary().std[0], 0.27, 0.05);
}

}  // namespace
}  // namespace convoy::data
