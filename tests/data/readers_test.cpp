#include "convoy/data/readers.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/data/helpers.hpp"

namespace convoy::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;
using Bytes = std::vector<uint8_t>;

void put(Bytes& bytes, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes.push_back(static_cast<uint8_t>(value >> shift));
}

Bytes idx(uint32_t magic, std::initializer_list<uint32_t> extents, const Bytes& content) {
  Bytes bytes;
  put(bytes, magic);
  for (const uint32_t extent : extents) put(bytes, extent);
  bytes.insert(bytes.end(), content.begin(), content.end());
  return bytes;
}

Bytes counting(size_t count, uint8_t from = 0) {
  Bytes bytes(count);
  std::iota(bytes.begin(), bytes.end(), from);
  return bytes;
}

Bytes gzip(const Bytes& plain) {
  Bytes packed(plain.size() + 256);
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = const_cast<uint8_t*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

Bytes record(std::initializer_list<uint8_t> labels, uint8_t first_pixel) {
  Bytes bytes(labels);
  const Bytes pixels = counting(3072, first_pixel);
  bytes.insert(bytes.end(), pixels.begin(), pixels.end());
  return bytes;
}

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string refusal_of(const job::Data& options) {
  return refusal([&] { open(options); });
}

// ---- idx ----------------------------------------------------------------------------------------

// Three training and two test images of 2×3 pixels; each test damages one file of it.
class Idx : public testing::Test {
 protected:
  Idx() {
    folder_.write("train-images-idx3-ubyte", idx(0x803, {3, 2, 3}, counting(18)));
    folder_.write("train-labels-idx1-ubyte", idx(0x801, {3}, {0, 4, 2}));
    folder_.write("t10k-images-idx3-ubyte", idx(0x803, {2, 2, 3}, counting(12, 100)));
    folder_.write("t10k-labels-idx1-ubyte", idx(0x801, {2}, {4, 1}));
  }
  job::Data job() const { return files("idx", folder_.string()); }
  std::string refused() const { return refusal_of(job()); }
  Folder folder_;
};

TEST_F(Idx, GivesPixelsLabelsShapeAndClasses) {
  const Source source = open(job());
  EXPECT_EQ(source.train->size(), 3);
  EXPECT_EQ(source.test->size(), 2);
  EXPECT_EQ(source.train->shape(), (model::Shape{1, 2, 3}));
  EXPECT_EQ(source.train->classes(), 5);
  EXPECT_EQ(source.test->classes(), 5);
  EXPECT_THAT(source.train->pixels(2), ElementsAre(12, 13, 14, 15, 16, 17));
  EXPECT_THAT(source.test->pixels(0), ElementsAreArray(counting(6, 100)));
  EXPECT_EQ(source.train->label(1), 4);
  EXPECT_EQ(source.test->label(1), 1);
}

TEST_F(Idx, ReadsGzipAndBothSpellings) {
  const uint64_t plain = open(job()).fingerprint;
  for (const std::string name :
       {"train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"}) {
    std::string dotted = name;
    dotted[dotted.rfind('-')] = '.';
    const auto old = folder_.path() / (name + "-ubyte");
    folder_.write(dotted + "-ubyte.gz", gzip(read_file(old)));
    std::filesystem::remove(old);
  }
  EXPECT_EQ(open(job()).fingerprint, plain);
}

TEST_F(Idx, RefusesAWrongMagicNumber) {
  folder_.write("train-labels-idx1-ubyte", idx(0x803, {3}, {0, 4, 2}));
  EXPECT_THAT(refused(), AllOf(HasSubstr("train-labels-idx1-ubyte"), HasSubstr("0x00000801"),
                               HasSubstr("0x00000803")));
}

TEST_F(Idx, RefusesMissingAndExtraBytesNamingBothSizes) {
  folder_.write("t10k-images-idx3-ubyte", idx(0x803, {2, 2, 3}, counting(11)));
  EXPECT_THAT(refused(), AllOf(HasSubstr("t10k-images-idx3-ubyte"), HasSubstr("28 bytes in all"),
                               HasSubstr("found 27 bytes (1 missing)")));
  folder_.write("t10k-images-idx3-ubyte", idx(0x803, {2, 2, 3}, counting(14)));
  EXPECT_THAT(refused(), HasSubstr("found 30 bytes (2 too many)"));
  folder_.write("t10k-images-idx3-ubyte", Bytes{0, 0, 8});
  EXPECT_THAT(refused(), HasSubstr("expected a header of 16 bytes, found a file of 3 bytes"));
}

TEST_F(Idx, RefusesAHeaderWhoseProductWouldOverflow) {
  folder_.write("train-images-idx3-ubyte",
                idx(0x803, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, counting(18)));
  EXPECT_THAT(refused(), HasSubstr("4294967295×4294967295"));
  folder_.write("train-images-idx3-ubyte", idx(0x803, {0, 2, 3}, {}));
  EXPECT_THAT(refused(), HasSubstr("at least one image"));
}

TEST_F(Idx, RefusesCountsAndShapesThatDoNotAgree) {
  folder_.write("train-labels-idx1-ubyte", idx(0x801, {2}, {0, 4}));
  EXPECT_THAT(refused(), AllOf(HasSubstr("holds 2 labels"), HasSubstr("holds 3 images")));
  folder_.write("train-labels-idx1-ubyte", idx(0x801, {3}, {0, 4, 2}));
  folder_.write("t10k-images-idx3-ubyte", idx(0x803, {2, 3, 2}, counting(12)));
  EXPECT_THAT(refused(), AllOf(HasSubstr("3×2"), HasSubstr("2×3")));
}

TEST_F(Idx, RefusesATestLabelThatTrainingNeverSaw) {
  folder_.write("t10k-labels-idx1-ubyte", idx(0x801, {2}, {4, 5}));
  EXPECT_THAT(refused(), AllOf(HasSubstr("t10k-labels-idx1-ubyte"),
                               HasSubstr("label number 1 is 5"), HasSubstr("end at 4")));
}

TEST_F(Idx, NamesAMissingFileAndHowToGetIt) {
  std::filesystem::remove(folder_.path() / "train-labels-idx1-ubyte");
  EXPECT_THAT(refused(), AllOf(HasSubstr(folder_.string()), HasSubstr("train-labels-idx1-ubyte"),
                               HasSubstr("scripts/get-data mnist")));
}

TEST_F(Idx, RefusesADamagedGzipStream) {
  Bytes packed = gzip(idx(0x803, {3, 2, 3}, counting(18)));
  packed.resize(packed.size() - 12);
  folder_.write("train-images-idx3-ubyte", packed);
  EXPECT_THAT(refused(), AllOf(HasSubstr("train-images-idx3-ubyte"), HasSubstr("gzip")));
}

// ---- CIFAR --------------------------------------------------------------------------------------

void write_cifar10(const Folder& folder, const std::string& prefix) {
  for (uint8_t batch = 1; batch <= 5; ++batch) {
    folder.write(fmt::format("{}data_batch_{}.bin", prefix, batch),
                 record({batch}, batch) + record({0}, static_cast<uint8_t>(10 * batch)));
  }
  folder.write(prefix + "test_batch.bin", record({9}, 77));
}

TEST(Cifar10, JoinsItsFiveBatchesFromFolderOrSubFolder) {
  for (const std::string prefix : {"", "cifar-10-batches-bin/"}) {
    const Folder folder;
    write_cifar10(folder, prefix);
    const Source source = open(files("cifar10", folder.string()));
    EXPECT_EQ(source.train->size(), 10);
    EXPECT_EQ(source.test->size(), 1);
    EXPECT_EQ(source.train->shape(), (model::Shape{3, 32, 32}));
    EXPECT_EQ(source.train->classes(), 10);
    EXPECT_EQ(source.train->label(4), 3);
    EXPECT_THAT(source.train->pixels(4), ElementsAreArray(counting(3072, 3)));
    EXPECT_THAT(source.train->pixels(9), ElementsAreArray(counting(3072, 50)));
    EXPECT_EQ(source.test->label(0), 9);
  }
}

TEST(Cifar10, RefusesPartialRecordsWrongLabelsAndMissingFiles) {
  const Folder folder;
  write_cifar10(folder, "");
  const job::Data job = files("cifar10", folder.string());
  folder.write("data_batch_3.bin", record({1}, 0) + Bytes(100));
  EXPECT_THAT(refusal_of(job), AllOf(HasSubstr("data_batch_3.bin"), HasSubstr("3073 bytes"),
                                     HasSubstr("found 3173 bytes, 1 records and 100 bytes more")));
  folder.write("data_batch_3.bin", Bytes{});
  EXPECT_THAT(refusal_of(job), HasSubstr("found 0 bytes"));
  folder.write("data_batch_3.bin", record({1}, 0) + record({10}, 0));
  EXPECT_THAT(refusal_of(job), AllOf(HasSubstr("data_batch_3.bin"),
                                     HasSubstr("of record 1 is 10, expected 0 to 9")));
  std::filesystem::remove(folder.path() / "data_batch_3.bin");
  EXPECT_THAT(refusal_of(job), AllOf(HasSubstr(folder.string()), HasSubstr("data_batch_3.bin"),
                                     HasSubstr("scripts/get-data cifar10")));
}

TEST(Cifar100, UsesTheFineLabel) {
  const Folder folder;
  folder.write("train.bin", record({19, 99}, 1) + record({3, 42}, 2));
  folder.write("test.bin", record({0, 7}, 3));
  const job::Data job = files("cifar100", folder.string());
  const Source source = open(job);
  EXPECT_EQ(source.train->classes(), 100);
  EXPECT_EQ(source.train->label(0), 99);
  EXPECT_EQ(source.train->label(1), 42);
  EXPECT_THAT(source.train->pixels(1), ElementsAreArray(counting(3072, 2)));
  folder.write("test.bin", record({0, 100}, 3));
  EXPECT_THAT(refusal_of(job), AllOf(HasSubstr("test.bin"), HasSubstr("expected 0 to 99")));
}

// ---- synthetic ----------------------------------------------------------------------------------

TEST(Synthetic, IsTheSameEveryTimeAndDiffersBetweenTrainingAndTest) {
  const job::Data job = synthetic({2, 9, 7}, 3, 20);
  const Source a = open(job);
  const Source b = open(job);
  EXPECT_EQ(a.train->size(), 20);
  EXPECT_EQ(a.test->size(), 5);
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(a.train->label(i), i % 3);
    EXPECT_THAT(a.train->pixels(i), ElementsAreArray(b.train->pixels(i)));
  }
  EXPECT_THAT(a.train->pixels(0), Not(ElementsAreArray(a.train->pixels(3))));
  EXPECT_THAT(a.train->pixels(0), Not(ElementsAreArray(a.test->pixels(0))));
}

TEST(Synthetic, ClassesCanBeLearned) {
  const Source source = open(synthetic({1, 8, 8}, 5, 500));
  std::vector<std::vector<double>> centres(5, std::vector<double>(64));
  for (int64_t i = 0; i < source.train->size(); ++i) {
    const auto pixels = source.train->pixels(i);
    auto& centre = centres.at(static_cast<size_t>(source.train->label(i)));
    for (size_t k = 0; k < 64; ++k) centre[k] += pixels[k] / 100.0;
  }
  int64_t right = 0;
  for (int64_t i = 0; i < source.test->size(); ++i) {
    const auto pixels = source.test->pixels(i);
    std::vector<double> distances;
    for (const auto& centre : centres) {
      double distance = 0;
      for (size_t k = 0; k < 64; ++k) distance += std::pow(pixels[k] - centre[k], 2);
      distances.push_back(distance);
    }
    const auto best = std::min_element(distances.begin(), distances.end()) - distances.begin();
    right += best == source.test->label(i) ? 1 : 0;
  }
  EXPECT_GT(right, source.test->size() * 9 / 10);
}

TEST(Synthetic, ALongSetRepeatsItsFirstSamples) {
  const Source source = open(synthetic({3, 224, 224}, 10, 1281167));
  const int64_t distinct = source.train->distinct();
  EXPECT_EQ(source.train->size(), 1281167);
  EXPECT_LT(distinct * source.train->shape().size(), 65 << 20);
  EXPECT_EQ(distinct % 10, 0);
  EXPECT_EQ(source.train->pixels(5 + 7 * distinct).data(), source.train->pixels(5).data());
  EXPECT_EQ(source.train->label(5 + 7 * distinct), source.train->label(5));
}

TEST(Synthetic, RefusesImpossibleSizes) {
  job::Data job = synthetic({3, 8}, 10, 100);
  EXPECT_THAT(refusal_of(job), AllOf(HasSubstr("data.shape"), HasSubstr("found [3, 8]")));
  job.shape = {3, 0, 8};
  EXPECT_THAT(refusal_of(job), HasSubstr("found [3, 0, 8]"));
  job.shape = {int64_t{1} << 40, int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_THAT(refusal_of(job), HasSubstr("data.shape"));
  job.shape = {3, 8, 8};
  job.classes = 0;
  EXPECT_THAT(refusal_of(job), HasSubstr("data.classes"));
  job.classes = 2;
  job.size = 0;
  EXPECT_THAT(refusal_of(job), HasSubstr("data.size"));
}

// ---- open ---------------------------------------------------------------------------------------

TEST(Open, NamesTheNearestKind) {
  EXPECT_THAT(refusal_of(files("cifar-10", "x")),
              AllOf(HasSubstr("data.kind"), HasSubstr("did you mean 'cifar10'?")));
}

TEST(Open, RefusesAMissingPath) {
  EXPECT_THAT(refusal_of(files("idx", "")), HasSubstr("data.path is missing"));
  EXPECT_THAT(refusal_of(files("idx", "/no/such/folder")),
              AllOf(HasSubstr("/no/such/folder"), HasSubstr("scripts/get-data")));
}

TEST_F(Idx, MeasuresMeanAndDeviationOverTheTrainingSamplesInUse) {
  job::Data data = job();
  const Source whole = open(data);  // pixels 0 … 17: mean 8.5, variance (18² − 1)/12
  EXPECT_FLOAT_EQ(whole.mean.at(0), 8.5F / 255);
  EXPECT_FLOAT_EQ(whole.std.at(0), std::sqrt(323.0F / 12) / 255);
  data.limit = 2;  // pixels 0 … 11
  const Source limited = open(data);
  EXPECT_EQ(limited.train->size(), 2);
  EXPECT_EQ(limited.test->size(), 2);
  EXPECT_EQ(limited.train->classes(), 5);
  EXPECT_FLOAT_EQ(limited.mean.at(0), 5.5F / 255);
  EXPECT_NE(limited.fingerprint, whole.fingerprint);
  data.limit = 100;
  EXPECT_EQ(open(data).train->size(), 3);
  data.limit = -1;
  EXPECT_THAT(refusal_of(data), HasSubstr("data.limit"));
}

TEST_F(Idx, TakesMeanAndDeviationFromTheJob) {
  job::Data data = job();
  data.mean = {0.25};
  data.std = {0.5};
  const Source source = open(data);
  EXPECT_THAT(source.mean, ElementsAre(0.25F));
  EXPECT_THAT(source.std, ElementsAre(0.5F));
  data.mean = {0.1, 0.2, 0.3};
  EXPECT_THAT(refusal_of(data), AllOf(HasSubstr("data.mean"), HasSubstr("found 3")));
  data.mean = {};
  data.std = {0};
  EXPECT_THAT(refusal_of(data), AllOf(HasSubstr("data.std"), HasSubstr("above 0")));
}

TEST_F(Idx, AChannelThatNeverVariesKeepsDeviationOne) {
  folder_.write("train-images-idx3-ubyte", idx(0x803, {3, 2, 3}, Bytes(18, 51)));
  const Source source = open(job());
  EXPECT_FLOAT_EQ(source.mean.at(0), 0.2F);
  EXPECT_EQ(source.std.at(0), 1.0F);
}

TEST_F(Idx, TheFingerprintSeesEveryPixelAndLabel) {
  const uint64_t before = open(job()).fingerprint;
  folder_.write("t10k-labels-idx1-ubyte", idx(0x801, {2}, {4, 2}));
  const uint64_t label_changed = open(job()).fingerprint;
  EXPECT_NE(label_changed, before);
  folder_.write("train-images-idx3-ubyte", idx(0x803, {3, 2, 3}, counting(17) + Bytes{99}));
  EXPECT_NE(open(job()).fingerprint, label_changed);
}

}  // namespace
}  // namespace convoy::data
