#include "convoy/data/records.hpp"

#include <numeric>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/numbered.hpp"

namespace convoy::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kSamples = 61;

std::vector<int64_t> all_samples() {
  std::vector<int64_t> samples(kSamples);
  std::iota(samples.begin(), samples.end(), int64_t{0});
  return samples;
}

int64_t sum_of(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

class Records : public testing::Test {
 protected:
  HeldRecords none() const { return {file_.open(), NumberedFile::kFirst, kSamples}; }
  bool is_right(const HeldRecords& held, int64_t sample) const {
    const std::span<const std::byte> bytes(held.get(sample).get(),
                                           static_cast<size_t>(file_.length(sample)));
    return is_numbered(bytes, sample);
  }

  NumberedFile file_{mixed_lengths(kSamples, 300)};
};

TEST_F(Records, AreReadByAnyNumberOfThreads) {
  for (const int threads : {1, 2, 7, 100}) {
    HeldRecords held = none();
    EXPECT_EQ(held.lengths(), file_.lengths());
    EXPECT_EQ(held.bytes(), Bytes{0});
    EXPECT_THAT(held.read(all_samples(), {.threads = threads, .progress = {}}), IsEmpty());
    for (int64_t s = 0; s < kSamples; ++s) {
      ASSERT_TRUE(held.has(s));
      EXPECT_TRUE(is_right(held, s)) << "sample " << s << ", " << threads << " threads";
    }
    EXPECT_EQ(held.bytes(), Bytes{sum_of(file_.lengths())});
  }
}

TEST_F(Records, AreReadIfTheyAreWanted) {
  HeldRecords held = none();
  const std::vector<int64_t> wanted{3, 60, 7};
  held.read(wanted, {.threads = 2, .progress = {}});
  for (int64_t s = 0; s < kSamples; ++s) {
    EXPECT_EQ(held.has(s), s == 3 || s == 60 || s == 7) << "sample " << s;
  }
  EXPECT_EQ(held.bytes(), Bytes{file_.length(3) + file_.length(60) + file_.length(7)});
  EXPECT_THAT(none().read({}, {.threads = 2, .progress = {}}), IsEmpty());
}

TEST_F(Records, SayHowMuchIsHereAndInTheEndThatAllIs) {
  HeldRecords held = none();
  Bytes last;
  held.read(all_samples(), {.threads = 3, .progress = [&](Bytes loaded, Bytes all) {
                              EXPECT_GE(loaded, last);
                              EXPECT_EQ(all, Bytes{sum_of(file_.lengths())});
                              last = loaded;
                            }});
  EXPECT_EQ(last, Bytes{sum_of(file_.lengths())});
}

TEST_F(Records, ThatAreDamagedStopTheReadingByTheirName) {
  file_.damage(17);
  for (const int threads : {1, 4}) {
    HeldRecords held = none();
    EXPECT_THAT(refusal([&] { held.read(all_samples(), {.threads = threads, .progress = {}}); }),
                AllOf(HasSubstr(file_.path().string()), HasSubstr("record 20 (train/17)"),
                      HasSubstr("checksum")));
  }
}

TEST_F(Records, ThatAreDamagedAreKeptAndListedIfTheyAreToBeSkipped) {
  for (const int64_t sample : {40, 0, 17}) file_.damage(sample);
  for (const int threads : {1, 4}) {
    HeldRecords held = none();
    const std::vector<BadRecord> bad =
        held.read(all_samples(), {.threads = threads, .skip_bad = true, .progress = {}});
    ASSERT_EQ(bad.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      const int64_t sample = std::array<int64_t, 3>{0, 17, 40}.at(i);
      EXPECT_EQ(bad[i].sample, sample);
      EXPECT_THAT(bad[i].message, HasSubstr(fmt::format("record {} (train/{})",
                                                        NumberedFile::kFirst + sample, sample)));
      EXPECT_EQ(*held.get(sample), numbered_byte(sample, 0) ^ std::byte{0x80});
    }
    EXPECT_TRUE(is_right(held, 18));
    EXPECT_EQ(held.bytes(), Bytes{sum_of(file_.lengths())});
  }
}

TEST_F(Records, StayForAsLongAsSomebodyHasThem) {
  HeldRecords held = none();
  held.read(all_samples(), {.threads = 1, .progress = {}});
  const RecordBytes bytes = held.get(5);
  held.drop(5);
  EXPECT_FALSE(held.has(5));
  EXPECT_EQ(held.bytes(), Bytes{sum_of(file_.lengths()) - file_.length(5)});
  EXPECT_TRUE(is_numbered({bytes.get(), static_cast<size_t>(file_.length(5))}, 5));
  EXPECT_THROW(held.get(5), std::logic_error);
  EXPECT_THROW(held.drop(5), std::logic_error);
  EXPECT_THROW(held.put(6, bytes), std::logic_error);
  held.put(5, bytes);
  EXPECT_EQ(held.bytes(), Bytes{sum_of(file_.lengths())});
}

/// Lengths of pieces, one after the other without end.
using Cut = std::function<int64_t()>;

/// Lets all of `samples` go from one to the other, in pieces that both cut as they like.
void move(HeldRecords& from, HeldRecords& to, const std::vector<int64_t>& samples, const Cut& given,
          const Cut& taken) {
  OutgoingRecords outgoing(from, samples);
  IncomingRecords incoming(to, samples);
  ASSERT_EQ(outgoing.bytes(), incoming.bytes());
  EXPECT_EQ(incoming.records(), static_cast<int64_t>(samples.size()));
  std::vector<std::byte> stream(static_cast<size_t>(outgoing.bytes()));
  for (std::span<std::byte> rest(stream); !rest.empty();) {
    const auto piece = rest.first(std::min(rest.size(), static_cast<size_t>(given())));
    outgoing.give(piece);
    rest = rest.subspan(piece.size());
  }
  for (std::span<const std::byte> rest(stream); !rest.empty();) {
    const auto piece = rest.first(std::min(rest.size(), static_cast<size_t>(taken())));
    incoming.take(piece);
    rest = rest.subspan(piece.size());
  }
}

TEST_F(Records, ComeOverWholeHoweverTheyAreCut) {
  const auto always = [](int64_t length) { return [length] { return length; }; };
  const auto mixed = [](uint32_t longest) {
    return [longest, random = Stream(7, Purpose::test)]() mutable {
      return int64_t{1} + random.below(longest);
    };
  };
  const std::vector<std::pair<Cut, Cut>> cuts{
      {always(1), always(1)},   {always(1), always(1 << 20)}, {always(1 << 20), always(1)},
      {always(64), always(63)}, {mixed(1000), mixed(3)},      {mixed(10), mixed(500)}};
  for (const auto& [given, taken] : cuts) {
    HeldRecords from = none();
    HeldRecords to = none();
    from.read(all_samples(), {.threads = 1, .progress = {}});
    std::vector<int64_t> samples = all_samples();
    std::erase_if(samples, [](int64_t s) { return s % 3 == 1; });
    std::reverse(samples.begin(), samples.end());
    move(from, to, samples, given, taken);
    for (int64_t s = 0; s < kSamples; ++s) {
      EXPECT_EQ(from.has(s), s % 3 == 1) << "sample " << s;
      ASSERT_EQ(to.has(s), s % 3 != 1) << "sample " << s;
      EXPECT_TRUE(is_right(s % 3 == 1 ? from : to, s)) << "sample " << s;
    }
    EXPECT_EQ(from.bytes() + to.bytes(), Bytes{sum_of(file_.lengths())});
  }
}

TEST_F(Records, AreGivenAwayWithTheirLastByte) {
  HeldRecords from = none();
  HeldRecords to = none();
  from.read(all_samples(), {.threads = 1, .progress = {}});
  OutgoingRecords outgoing(from, {9, 4});
  IncomingRecords incoming(to, {9, 4});
  std::vector<std::byte> piece(static_cast<size_t>(file_.length(9) - 1));
  outgoing.give(piece);
  incoming.take(piece);
  EXPECT_TRUE(from.has(9));
  EXPECT_FALSE(to.has(9));
  outgoing.give(std::span(piece).first(1));
  incoming.take(std::span(piece).first(1));
  EXPECT_FALSE(from.has(9));
  EXPECT_TRUE(is_right(to, 9));
  EXPECT_TRUE(from.has(4));
}

}  // namespace
}  // namespace convoy::data
