#include "convoy/data/packed.hpp"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/data/packed_format.hpp"
#include "convoy/data/packed_writer.hpp"

#include "tests/data/helpers.hpp"
#include "tests/data/images.hpp"

namespace convoy::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::byte> bytes_of(const std::filesystem::path& path) {
  const std::vector<uint8_t> bytes = read_file(path);
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

/// Two splits, three records: gray raw pixels, a colour JPEG, a gray PNG.
class Packed : public testing::Test {
 protected:
  static constexpr uint64_t kKey = 17;
  std::filesystem::path path() const { return folder_.path() / "set.pack"; }
  std::unique_ptr<PackedWriter> writer(uint64_t key = kKey) const {
    return std::make_unique<PackedWriter>(path(), key, std::vector<std::string>{"cat", "dog"},
                                          std::vector<Split>{{"train", 0, 3}, {"test", 0, 1}});
  }
  void append(PackedWriter& to, int64_t item) const {
    switch (item) {
      case 0:
        to.append({.bytes = raw_,
                   .image = {Encoding::raw, 3, 2, 1},
                   .label = 1,
                   .source = "train/dog/a",
                   .moments = measure_planes(as_uint8(raw_), 1)});
        break;
      case 1:
        to.leave_out({.source = "train/dog/b", .what = BadImage::damaged, .message = "is torn"});
        break;
      case 2:
        to.append({.bytes = jpeg_,
                   .image = probe(jpeg_),
                   .label = 0,
                   .source = "train/cat/c.jpg",
                   .moments = measure(colours_.pixels())});
        break;
      default:
        to.append({.bytes = png_,
                   .image = probe(png_),
                   .label = 1,
                   .source = "test/dog/d.png",
                   .moments = {}});
    }
  }
  void write() const {
    const auto to = writer();
    for (int64_t i = to->items(); i < 4; ++i) append(*to, i);
    to->finish();
  }
  /// Opens and reads everything.
  void read_all() const {
    const PackedFile file(path());
    for (int64_t i = 0; i < file.size(); ++i) file.verify(i);
  }

  Folder folder_;
  Encoded raw_{std::byte{0},  std::byte{10}, std::byte{20},
               std::byte{30}, std::byte{40}, std::byte{50}};
  Picture colours_ = picture(9, 5, 3);
  Encoded jpeg_ = make_jpeg(colours_);
  Encoded png_ = make_png(picture(4, 6, 1));
};

TEST_F(Packed, GivesBackWhatWasPutIn) {
  write();
  PackedFile file(path());
  EXPECT_EQ(file.size(), 3);
  EXPECT_THAT(file.summary().classes, ElementsAre("cat", "dog"));
  EXPECT_EQ(file.split("train"), (Split{"train", 0, 2}));
  EXPECT_EQ(file.split("test"), (Split{"test", 2, 1}));
  EXPECT_EQ(file.bytes(), static_cast<int64_t>(std::filesystem::file_size(path())));
  file.map();
  const std::vector<Encoded> expected{raw_, jpeg_, png_};
  const std::vector<int32_t> labels{1, 0, 1};
  const std::vector<std::string> sources{"train/dog/a", "train/cat/c.jpg", "test/dog/d.png"};
  for (int64_t i = 0; i < 3; ++i) {
    const auto k = static_cast<size_t>(i);
    const PackedRecord record = file.record(i);
    Encoded bytes(static_cast<size_t>(record.length));
    file.read(i, bytes);
    EXPECT_EQ(bytes, expected[k]);
    const auto mapped = file.mapped(i);
    EXPECT_EQ(Encoded(mapped.begin(), mapped.end()), expected[k]);
    EXPECT_EQ(record.label, labels[k]);
    EXPECT_EQ(record.source, sources[k]);
  }
  EXPECT_EQ(file.record(0).image, (ImageInfo{Encoding::raw, 3, 2, 1}));
  EXPECT_EQ(file.record(1).image, (ImageInfo{Encoding::jpeg, 9, 5, 3}));
  EXPECT_EQ(file.record(2).image, (ImageInfo{Encoding::png, 4, 6, 1}));
  Encoded together(static_cast<size_t>(file.length(0, 3)));
  file.read(0, 3, together);
  Encoded joined = raw_;
  joined.insert(joined.end(), jpeg_.begin(), jpeg_.end());
  joined.insert(joined.end(), png_.begin(), png_.end());
  EXPECT_EQ(together, joined);
  EXPECT_EQ(file.length(1, 1), 0);
}

TEST_F(Packed, MeasuresTheFirstSplitWithGrayInEveryChannel) {
  write();
  const PackedSummary summary = PackedFile(path()).summary();
  ASSERT_EQ(summary.channels, 3);
  for (int c = 0; c < 3; ++c) {
    double sum = 0 + 10 + 20 + 30 + 40 + 50;
    double squares = 100 + 400 + 900 + 1600 + 2500;
    for (int i = 0; i < 45; ++i) {
      const double value = colours_.at(i / 9, i % 9, c);
      sum += value;
      squares += value * value;
    }
    const double mean = sum / 51;
    EXPECT_NEAR(summary.mean[static_cast<size_t>(c)], mean / 255, 1e-6);
    EXPECT_NEAR(summary.std[static_cast<size_t>(c)], std::sqrt(squares / 51 - mean * mean) / 255,
                1e-6);
  }
}

TEST_F(Packed, RefusesASplitThatIsNotThere) {
  write();
  const PackedFile file(path());
  EXPECT_THAT(refusal([&] { file.split("val"); }),
              AllOf(HasSubstr("'val'"), HasSubstr("train, test")));
}

TEST_F(Packed, RefusesOtherFiles) {
  folder_.write("other", "CONVOYXX and so on");
  EXPECT_THAT(refusal([&] { PackedFile file(folder_.path() / "other"); }),
              HasSubstr("is not a packed file"));
  folder_.write("empty", "");
  EXPECT_THAT(refusal([&] { PackedFile file(folder_.path() / "empty"); }),
              HasSubstr("is not a packed file"));
  EXPECT_THAT(refusal([&] { PackedFile file(folder_.path() / "none"); }), HasSubstr("cannot open"));
  EXPECT_THAT(refusal([&] { PackedFile file(folder_.path()); }), HasSubstr("is not a file"));
  write();
  EXPECT_TRUE(is_packed(path()));
  EXPECT_FALSE(is_packed(folder_.path() / "other"));
  EXPECT_FALSE(is_packed(folder_.path()));
}

TEST_F(Packed, CutShortAnywhereIsRefused) {
  write();
  const auto whole = bytes_of(path());
  for (size_t length = 0; length < whole.size(); ++length) {
    folder_.write("set.pack", as_uint8(std::span(whole).first(length)));
    EXPECT_THROW(PackedFile file(path()), InputError) << length << " of " << whole.size();
  }
  auto longer = whole;
  longer.push_back(std::byte{0});
  folder_.write("set.pack", as_uint8(longer));
  EXPECT_THAT(refusal([&] { read_all(); }), HasSubstr("too long"));
}

TEST_F(Packed, EveryWrongByteIsFound) {
  write();
  const auto whole = bytes_of(path());
  for (size_t at = 0; at < whole.size(); ++at) {
    auto wrong = whole;
    wrong[at] ^= std::byte{1};
    folder_.write("set.pack", as_uint8(wrong));
    EXPECT_THROW(read_all(), InputError) << "byte " << at << " of " << whole.size();
  }
}

TEST_F(Packed, AWrongRecordIsNamed) {
  write();
  auto wrong = bytes_of(path());
  wrong[format::kHeader + raw_.size() + 20] ^= std::byte{0x80};
  folder_.write("set.pack", as_uint8(wrong));
  const PackedFile file(path());
  EXPECT_NO_THROW(file.verify(0));
  EXPECT_THAT(refusal([&] { file.verify(1); }),
              AllOf(HasSubstr(path().string()), HasSubstr("record 1 (train/cat/c.jpg)"),
                    HasSubstr("checksum is wrong")));
}

// Somebody who makes up a file also makes its checksums right.
TEST_F(Packed, WrongNumbersBehindRightChecksumsAreRefused) {
  write();
  const auto whole = bytes_of(path());
  format::Reader r(whole);
  r.take(24);
  const auto index_offset = r.get<uint64_t>();
  int refused = 0;
  const auto with = [&](size_t at, std::byte value) {
    auto made_up = whole;
    made_up[at] = value;
    const auto index = std::span(made_up).subspan(index_offset);
    const uint64_t index_checksum = format::hash(index);
    std::memcpy(made_up.data() + 40, &index_checksum, 8);
    const uint64_t header_checksum = format::hash(std::span(made_up).first(format::kHeaderChecked));
    std::memcpy(made_up.data() + 56, &header_checksum, 8);
    folder_.write("set.pack", as_uint8(made_up));
    try {
      PackedFile file(path());
      for (int64_t i = 0; i < file.size(); ++i) {
        Encoded room(static_cast<size_t>(file.record(i).length));
        file.read(i, i + 1, room);
      }
    } catch (const InputError&) {
      ++refused;
    }
  };
  for (size_t at = 8; at < format::kHeader - 8; ++at) {
    if (at >= 40 && at < 48) continue;  // the checksum that is made right
    const int before = refused;
    for (const uint8_t value : {0x00, 0x01, 0x7F, 0xFF}) {
      if (whole[at] != std::byte{value}) with(at, std::byte{value});
    }
    EXPECT_GE(refused - before, 3) << "every number of the header counts; byte " << at;
  }
  for (size_t at = index_offset; at < whole.size(); ++at) {
    for (const uint8_t value : {0x00, 0x7F, 0xFF}) with(at, std::byte{value});
  }
  EXPECT_GT(refused, 300);
}

TEST_F(Packed, AnotherVersionIsRefusedByItsNumber) {
  write();
  auto other = bytes_of(path());
  other[8] = std::byte{2};
  folder_.write("set.pack", as_uint8(other));
  EXPECT_THAT(refusal([&] { read_all(); }), AllOf(HasSubstr("version 2"), HasSubstr("version 1")));
}

// ---- writing ------------------------------------------------------------------------------------

TEST_F(Packed, IsNotThereBeforeItIsWhole) {
  {
    const auto to = writer();
    for (int64_t i = 0; i < 4; ++i) append(*to, i);
    EXPECT_FALSE(std::filesystem::exists(path()));
    to->finish();
    EXPECT_TRUE(std::filesystem::exists(path()));
  }
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    names.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(names, ElementsAre("set.pack"));
}

TEST_F(Packed, IsNeverOverwritten) {
  folder_.write("set.pack", "precious");
  EXPECT_THAT(refusal([&] { writer(); }), HasSubstr("exists already and is not overwritten"));
  EXPECT_EQ(bytes_of(path()).size(), 8U);
  EXPECT_FALSE(std::filesystem::exists(path().string() + ".part"));
}

TEST_F(Packed, IsWrittenByOneAtATime) {
  const auto first = writer();
  EXPECT_THAT(refusal([&] { writer(); }), HasSubstr("another process is packing it"));
}

TEST_F(Packed, ASplitWithoutRecordsIsRefused) {
  const auto to = writer();
  for (int64_t i = 0; i < 3; ++i) append(*to, i);
  to->leave_out({.source = "test/dog/d.png", .what = BadImage::empty, .message = "is empty"});
  EXPECT_THAT(refusal([&] { to->finish(); }), HasSubstr("no image of the split test"));
}

// Whatever is left of an interrupted writer, in any combination of the two files, it ends the same.
TEST_F(Packed, GoesOnFromWhateverIsLeft) {
  write();
  const auto whole = bytes_of(path());
  std::filesystem::remove(path());
  const std::string part = "set.pack.part";
  const std::string journal = "set.pack.journal";
  {
    const auto to = writer();
    for (int64_t i = 0; i < 4; ++i) append(*to, i);
  }
  const auto all_part = bytes_of(folder_.path() / part);
  const auto all_journal = bytes_of(folder_.path() / journal);
  int64_t most = 0;
  for (size_t journal_length = 0; journal_length <= all_journal.size(); journal_length += 11) {
    for (size_t part_length = 0; part_length <= all_part.size(); part_length += 61) {
      folder_.write(part, as_uint8(std::span(all_part).first(part_length)));
      folder_.write(journal, as_uint8(std::span(all_journal).first(journal_length)));
      const auto to = writer();
      most = std::max(most, to->items());
      for (int64_t i = to->items(); i < 4; ++i) append(*to, i);
      EXPECT_THAT(to->left_out(),
                  ElementsAre(LeftOut{"train/dog/b", BadImage::damaged, "is torn"}));
      to->finish();
      ASSERT_EQ(bytes_of(path()), whole) << part_length << ", " << journal_length;
      std::filesystem::remove(path());
    }
  }
  EXPECT_GE(most, 3) << "what was done is not done again";
}

TEST_F(Packed, GoesOnBehindTheLastWholeRecord) {
  write();
  const auto whole = bytes_of(path());
  std::filesystem::remove(path());
  {
    const auto to = writer();
    for (int64_t i = 0; i < 3; ++i) append(*to, i);
  }
  const std::string part = "set.pack.part";
  auto damaged = bytes_of(folder_.path() / part);
  damaged[format::kHeader + raw_.size() + 5] ^= std::byte{1};  // in the JPEG, item 2
  folder_.write(part, as_uint8(damaged));
  {
    const auto to = writer();
    EXPECT_EQ(to->items(), 2);
    EXPECT_EQ(to->records(), 1);
    for (int64_t i = 2; i < 4; ++i) append(*to, i);
    to->finish();
  }
  EXPECT_EQ(bytes_of(path()), whole);
}

TEST_F(Packed, ForgetsWhatWasLeftOfAnotherSource) {
  {
    const auto to = writer();
    append(*to, 0);
  }
  EXPECT_EQ(writer(kKey + 1)->items(), 0);
}

}  // namespace
}  // namespace convoy::data
