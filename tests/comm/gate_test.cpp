// Messages through gates arrive whole, and what is urgent overtakes.

#include "convoy/comm/gate.hpp"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/comm/thread_world.hpp"

namespace convoy::comm {
namespace {

constexpr Seconds kPatience{30};

std::vector<float> values(size_t count, float first) {
  std::vector<float> all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

Task all_of(Requests requests) {
  co_await std::move(requests);
}
Task one(std::unique_ptr<Request> request) {
  co_await std::move(request);
}

TEST(Gate, SendsPartsInSlicesOneAfterTheOther) {
  for (const size_t count : {0U, 1U, 7U, 8U, 9U, 1000U}) {
    run_as_threads(2, [&](Communicator& c) {
      Gate gate(Bytes{64}, Bytes{32});
      const std::vector<float> first = values(count, 1);
      const std::vector<float> second = values(3, -5);
      if (c.rank() == 0) {
        const Traffic before = c.sent();
        wait(gate.send(c, 1, 7, {std::as_bytes(std::span(first)), std::as_bytes(std::span(second))},
                       0),
             kPatience, "sending");
        const Traffic sent = c.sent() - before;
        EXPECT_EQ(sent.messages, gate.slices({4 * static_cast<int64_t>(count)}) + 1);
        EXPECT_EQ(sent.bytes.value, 4 * static_cast<int64_t>(count + 3));
      } else {
        std::vector<float> a(count);
        std::vector<float> b(3);
        Requests requests;
        gate.receive(c, 0, 7, std::as_writable_bytes(std::span(a)), requests);
        gate.receive(c, 0, 7, std::as_writable_bytes(std::span(b)), requests);
        wait(all_of(std::move(requests)), kPatience, "receiving");
        EXPECT_EQ(a, first);
        EXPECT_EQ(b, second);
      }
    });
  }
}

TEST(Gate, LetsTheUrgentOvertake) {
  run_as_threads(2, [&](Communicator& c) {
    constexpr size_t kLong = 4096;
    Gate gate(Bytes{64}, Bytes{32});
    if (c.rank() == 0) {
      const std::vector<float> much = values(kLong, 0);
      const std::vector<float> little = values(16, 0);
      Task slow = gate.send(c, 1, 1, {std::as_bytes(std::span(much))}, 5);
      EXPECT_FALSE(slow.advance());
      Task urgent = gate.send(c, 1, 2, {std::as_bytes(std::span(little))}, -5);
      const Seconds begin = now();
      while (!urgent.advance() && now() - begin < kPatience) {
        EXPECT_FALSE(slow.advance()) << "it was posted first, but can wait";
      }
      EXPECT_TRUE(urgent.done());
      wait(slow, kPatience, "sending");
    } else {
      std::vector<float> much(kLong);
      std::vector<float> little(16);
      Requests requests;
      gate.receive(c, 0, 1, std::as_writable_bytes(std::span(much)), requests);
      gate.receive(c, 0, 2, std::as_writable_bytes(std::span(little)), requests);
      wait(all_of(std::move(requests)), kPatience, "receiving");
      EXPECT_EQ(much, values(kLong, 0));
      EXPECT_EQ(little, values(16, 0));
    }
  });
}

TEST(Gate, KeepsNoMoreOnTheWayThanItMay) {
  run_as_threads(2, [&](Communicator& c) {
    Gate gate(Bytes{64}, Bytes{32});
    const std::vector<float> all = values(64, 0);
    if (c.rank() == 0) {
      const Traffic before = c.sent();
      Task task = gate.send(c, 1, 1, {std::as_bytes(std::span(all))}, 0);
      for (int i = 0; i < 100; ++i) EXPECT_FALSE(task.advance()) << "nobody receives";
      EXPECT_EQ((c.sent() - before).bytes.value, 64);
      const int ready = 1;
      wait(one(c.send(1, 2, std::as_bytes(std::span(&ready, 1)))), kPatience, "telling");
      wait(task, kPatience, "sending");
    } else {
      int ready = 0;
      wait(one(c.receive(0, 2, std::as_writable_bytes(std::span(&ready, 1)))), kPatience,
           "hearing");
      std::vector<float> here(all.size());
      Requests requests;
      gate.receive(c, 0, 1, std::as_writable_bytes(std::span(here)), requests);
      wait(all_of(std::move(requests)), kPatience, "receiving");
      EXPECT_EQ(here, all);
    }
  });
}

TEST(Gate, IsAsWideAsTheLinkIsFast) {
  LinkSpeed link;
  link.per_byte = {1 / 12.5e6};  // 100 Mbit/s
  EXPECT_LE(Gate::window(link).value, 128 << 10);
  link.per_byte = {1 / 1.25e9};
  EXPECT_GE(Gate::window(link).value, 2 << 20);
  link.per_byte = {0};
  EXPECT_GT(Gate::window(link).value, 0);
}

}  // namespace
}  // namespace convoy::comm
