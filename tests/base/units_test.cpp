#include "convoy/base/units.hpp"

#include <gtest/gtest.h>

#include "convoy/base/error.hpp"

namespace convoy {
namespace {

TEST(ParseBytes, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_bytes("4096"), Bytes{4096});
  EXPECT_EQ(parse_bytes("17B"), Bytes{17});
  EXPECT_EQ(parse_bytes("512MiB"), Bytes{512LL << 20});
  EXPECT_EQ(parse_bytes("2g"), Bytes{2LL << 30});
  EXPECT_EQ(parse_bytes("3 KiB"), Bytes{3072});
  EXPECT_EQ(parse_bytes("1.5 GB"), Bytes{1'500'000'000});
  EXPECT_EQ(parse_bytes("1TB"), Bytes{1'000'000'000'000});
  EXPECT_EQ(parse_bytes("0"), Bytes{0});
}

TEST(ParseBytes, RefusesWhatIsNoAmount) {
  for (const char* text : {"", "much", "MiB", "-1", "12 parsecs", "1e30", "nan", "inf"}) {
    EXPECT_THROW(parse_bytes(text), InputError) << text;
  }
}

TEST(BytesToString, PicksAUnitAndThreeDigits) {
  EXPECT_EQ(to_string(Bytes{17}), "17 B");
  EXPECT_EQ(to_string(Bytes{1023}), "1023 B");
  EXPECT_EQ(to_string(Bytes{1536}), "1.50 KiB");
  EXPECT_EQ(to_string(Bytes{312LL << 10}), "312 KiB");
  EXPECT_EQ(to_string(Bytes{(3LL << 30) / 2}), "1.50 GiB");
  EXPECT_EQ(to_string(Bytes{12LL << 40}), "12.0 TiB");
}

TEST(SecondsToString, PicksTheUnitPeopleUse) {
  EXPECT_EQ(to_string(Seconds{12e-6}), "12 µs");
  EXPECT_EQ(to_string(Seconds{0.012}), "12 ms");
  EXPECT_EQ(to_string(Seconds{4.2}), "4.2 s");
  EXPECT_EQ(to_string(Seconds{200}), "3 min 20 s");
  EXPECT_EQ(to_string(Seconds{3720}), "1 h 02 min");
  EXPECT_EQ(to_string(Seconds{-4.2}), "-4.2 s");
}

TEST(Units, AddAndCompare) {
  EXPECT_EQ(Bytes{2} + Bytes{3}, Bytes{5});
  EXPECT_EQ(3 * Bytes{4}, Bytes{12});
  EXPECT_LT(Seconds{1}, Seconds{2});
  EXPECT_GE((now() - now()).value, -1.0);
}

}  // namespace
}  // namespace convoy
