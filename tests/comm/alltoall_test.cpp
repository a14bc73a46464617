#include "convoy/comm/alltoall.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/comm/thread_world.hpp"

namespace convoy::comm {
namespace {

constexpr Seconds kPatience{20};

/// Byte `index` of the stream from one rank to another.
std::byte byte_at(int from, int to, int64_t index) {
  return static_cast<std::byte>(from * 89 + to * 37 + index * 7 + index / 251);
}

/// How many bytes go from one rank to another.
using Length = int64_t (*)(int from, int to);

struct Lengths {
  const char* name;
  Length of;
};
constexpr Lengths kLengths[] = {
    {"nothing", [](int, int) { return int64_t{0}; }},
    {"one byte", [](int, int) { return int64_t{1}; }},
    {"odd lengths", [](int from, int to) { return int64_t{17} * from + 5 * to + 3; }},
    {"some pairs have nothing",
     [](int from, int to) { return (from + to) % 3 == 0 ? int64_t{0} : int64_t{1001}; }},
    {"only the first rank sends",
     [](int from, int) { return from == 0 ? int64_t{12345} : int64_t{0}; }},
};

Streams streams_of(const Communicator& c, Length length, std::vector<std::vector<std::byte>>& got,
                   std::vector<int64_t>& given) {
  const auto n = static_cast<size_t>(c.size());
  got.assign(n, {});
  given.assign(n, 0);
  Streams streams;
  for (int other = 0; other < c.size(); ++other) {
    streams.to.push_back(length(c.rank(), other));
    streams.from.push_back(length(other, c.rank()));
  }
  const int self = c.rank();
  streams.give = [&given, self](int to, std::span<std::byte> piece) {
    for (std::byte& b : piece) b = byte_at(self, to, given[static_cast<size_t>(to)]++);
  };
  streams.take = [&got](int from, std::span<const std::byte> piece) {
    auto& all = got[static_cast<size_t>(from)];
    all.insert(all.end(), piece.begin(), piece.end());
  };
  return streams;
}

void expect_exchange(int ranks, Length length, Bytes room) {
  run_as_threads(ranks, [&](Communicator& c) {
    std::vector<std::vector<std::byte>> got;
    std::vector<int64_t> given;
    Streams streams = streams_of(c, length, got, given);
    const Traffic said = alltoall_traffic(c.rank(), streams.to, room);
    wait(alltoall(c, std::move(streams), room, 2), kPatience, "the exchange");
    EXPECT_EQ(c.sent().messages, said.messages) << "rank " << c.rank();
    EXPECT_EQ(c.sent().bytes.value, said.bytes.value) << "rank " << c.rank();
    for (int from = 0; from < ranks; ++from) {
      const auto& bytes = got[static_cast<size_t>(from)];
      const int64_t expected = from == c.rank() ? 0 : length(from, c.rank());
      ASSERT_EQ(static_cast<int64_t>(bytes.size()), expected);
      for (int64_t i = 0; i < expected; ++i) {
        ASSERT_EQ(bytes[static_cast<size_t>(i)], byte_at(from, c.rank(), i))
            << "byte " << i << " from rank " << from << " to rank " << c.rank();
      }
    }
  });
}

TEST(Alltoall, BringsEveryStreamWholeAndSendsWhatItsCostSays) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (const Lengths& lengths : kLengths) {
      for (const int64_t room : {1, 2, 64, 2000, 1 << 20}) {
        if (room <= 2 && std::string(lengths.name) == "only the first rank sends") continue;
        SCOPED_TRACE(testing::Message()
                     << ranks << " ranks, " << lengths.name << ", room for " << room << " bytes");
        expect_exchange(ranks, lengths.of, Bytes{room});
      }
    }
  }
}

TEST(Alltoall, BringsLongStreams) {
  expect_exchange(
      3, [](int from, int to) { return int64_t{3'000'000} + 1001 * from + to; }, Bytes{1 << 18});
}

TEST(Alltoall, SendsMessagesOfASegmentAndNoneLongerThanMpiCanCount) {
  EXPECT_EQ(segment_bytes(Bytes{64 << 20}), 32 << 20);
  EXPECT_EQ(segment_bytes(Bytes{0}), 1);
  EXPECT_EQ(segment_bytes(Bytes{int64_t{1} << 40}), int64_t{1} << 30);
  const std::vector<int64_t> to{0, int64_t{5} << 32, 1};
  EXPECT_EQ(alltoall_traffic(0, to, Bytes{int64_t{1} << 40}),
            (Traffic{21, Bytes{(int64_t{5} << 32) + 1}}));
}

TEST(Alltoall, TakesTheTimeOfItsRounds) {
  const LinkSpeed link{.latency = {1e-3},
                       .per_byte = {1e-6},
                       .add_per_byte = {},
                       .per_message = {},
                       .long_per_byte = {2e-6},
                       .longest = {1000}};
  // Three rounds of two segments each.
  EXPECT_DOUBLE_EQ(alltoall_time(4, Bytes{1000}, Bytes{1000}, link).value, 3 * (2e-3 + 1e-3));
  EXPECT_DOUBLE_EQ(alltoall_time(4, Bytes{4000}, Bytes{4000}, link).value, 3 * (2e-3 + 8e-3));
  EXPECT_DOUBLE_EQ(alltoall_time(4, Bytes{0}, Bytes{1000}, link).value, 0);
}

TEST(Alltoall, EndsWithTheNameOfTheMissingRank) {
  run_as_threads(3, [&](Communicator& c) {
    if (c.rank() == 2) return;  // never takes part
    std::vector<std::vector<std::byte>> got;
    std::vector<int64_t> given;
    Streams streams = streams_of(
        c, [](int, int) { return int64_t{100}; }, got, given);
    try {
      wait(alltoall(c, std::move(streams), Bytes{64}, 0), Seconds{0.05}, "the exchange of epoch 3");
      ADD_FAILURE() << "ended without rank 2";
    } catch (const TimeoutError& error) {
      EXPECT_NE(std::string(error.what()).find("the exchange of epoch 3"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("rank 2"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace convoy::comm
