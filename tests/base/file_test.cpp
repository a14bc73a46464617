#include "convoy/base/file.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include "convoy/base/error.hpp"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A folder that goes with the test.
class Files : public ::testing::Test {
 public:
  Files() { fs::create_directories(folder_); }
  ~Files() override { fs::remove_all(folder_); }

 protected:
  fs::path at(const std::string& name) const { return folder_ / name; }

  fs::path write(const std::string& name, const std::vector<uint8_t>& bytes) const {
    std::ofstream file(at(name), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return at(name);
  }

  std::string text_of(const std::string& name) const {
    const std::vector<uint8_t> bytes = read_file(at(name));
    return {bytes.begin(), bytes.end()};
  }

  size_t count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

 private:
  fs::path folder_ =
      fs::path(::testing::TempDir()) / ("convoy_file_test_" + std::to_string(::getpid()));
};

std::vector<uint8_t> gzip(const std::vector<uint8_t>& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::vector<uint8_t> packed(deflateBound(&stream, bytes.size()));
  std::vector<uint8_t> input = bytes;
  stream.next_in = input.data();
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::vector<uint8_t> pattern(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * i >> 3);
  return bytes;
}

std::string refusal(const fs::path& path) {
  try {
    read_file(path);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_F(Files, AreReadWhole) {
  const std::vector<uint8_t> bytes = pattern((size_t{1} << 20) + 17);
  EXPECT_EQ(read_file(write("plain", bytes)), bytes);
  EXPECT_TRUE(read_file(write("empty", {})).empty());
}

TEST_F(Files, ThatAreGzippedAreInflatedWhateverTheirName) {
  const std::vector<uint8_t> bytes = pattern((size_t{3} << 20) + 5);
  EXPECT_EQ(read_file(write("packed.gz", gzip(bytes))), bytes);
  EXPECT_EQ(read_file(write("packed", gzip(bytes))), bytes);
  EXPECT_TRUE(read_file(write("nothing.gz", gzip({}))).empty());
}

TEST_F(Files, OfSeveralGzipMembersAreTheirContentsInOrder) {
  const std::vector<uint8_t> first = pattern(3'000'000);
  const std::vector<uint8_t> second = pattern(10);
  std::vector<uint8_t> packed = gzip(first);
  const std::vector<uint8_t> more = gzip(second);
  packed.insert(packed.end(), more.begin(), more.end());
  std::vector<uint8_t> both = first;
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(read_file(write("two.gz", packed)), both);
  packed.push_back('?');
  EXPECT_THAT(refusal(write("more.gz", packed)), HasSubstr("damaged"));
}

TEST_F(Files, ThatAreDamagedAreRefusedByName) {
  const std::vector<uint8_t> good = gzip(pattern(100'000));
  std::vector<uint8_t> cut = good;
  cut.resize(good.size() / 2);
  EXPECT_THAT(refusal(write("cut.gz", cut)), AllOf(HasSubstr("cut.gz"), HasSubstr("cut short")));
  std::vector<uint8_t> no_trailer = good;
  no_trailer.resize(good.size() - 4);
  EXPECT_THAT(refusal(write("trailer.gz", no_trailer)), HasSubstr("trailer.gz"));
  std::vector<uint8_t> flipped = good;
  flipped[good.size() / 2] ^= 0x40;
  EXPECT_THAT(refusal(write("flipped.gz", flipped)), HasSubstr("damaged"));
  std::vector<uint8_t> wrong_sum = good;
  wrong_sum[good.size() - 6] ^= 1;
  EXPECT_THAT(refusal(write("sum.gz", wrong_sum)), HasSubstr("damaged"));
}

TEST_F(Files, ThatCannotBeReadAreRefusedByNameAndReason) {
  EXPECT_THAT(refusal(at("missing")), AllOf(HasSubstr("missing"), HasSubstr("No such file")));
  EXPECT_THAT(refusal(at("")), HasSubstr("Is a directory"));
}

TEST_F(Files, AreReplacedAsAWhole) {
  write_atomically(at("a"), "first");
  EXPECT_EQ(text_of("a"), "first");
  write_atomically(at("a"), [](const Append& append) {
    const std::vector<uint8_t> piece = {'x', 'y'};
    append(piece);
    append(piece);
  });
  EXPECT_EQ(text_of("a"), "xyxy");
  EXPECT_EQ(count(), 1U);
}

TEST_F(Files, KeepTheirOldContentWhenWritingFails) {
  write_atomically(at("a"), "old");
  const auto write_half = [](const Append& append) {
    const std::vector<uint8_t> piece = {'n', 'e'};
    append(piece);
    fail("the disk is full");
  };
  EXPECT_THROW(write_atomically(at("a"), write_half), Error);
  EXPECT_EQ(text_of("a"), "old");
  EXPECT_EQ(count(), 1U) << "the temporary file is left behind";
}

TEST_F(Files, InFoldersThatDoNotExistCannotBeWritten) {
  try {
    write_atomically(at("no/such/folder/a"), "text");
    FAIL() << "wrote into a folder that does not exist";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no/such/folder/a"), HasSubstr("No such file")));
  }
}

TEST(Checksum, DependsOnEveryByteAndTheSeed) {
  const std::vector<uint8_t> bytes = pattern(1000);
  const uint64_t sum = checksum(bytes);
  EXPECT_EQ(checksum(bytes), sum);
  EXPECT_NE(checksum(bytes, 1), sum);
  std::vector<uint8_t> changed = bytes;
  changed[999] ^= 1;
  EXPECT_NE(checksum(changed), sum);
}

}  // namespace
}  // namespace convoy
