#include "tests/comm/contract.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "convoy/comm/algorithm.hpp"
#include "convoy/comm/shared.hpp"
#include "convoy/comm/task.hpp"
#include "convoy/comm/two_level.hpp"

#include "tests/comm/sums.hpp"

namespace convoy::comm {
namespace {

constexpr Seconds kPatience{20};

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

std::vector<float> numbers(int seed, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), static_cast<float>(1000 * seed));
  return values;
}

Task exchange(Communicator& c, int to, int from, int tag, std::span<const float> mine,
              std::span<float> theirs) {
  Requests both;
  both.add(c.receive(from, tag, bytes_of(theirs)));
  both.add(c.send(to, tag, bytes_of(mine)));
  co_await std::move(both);
}

/// Around a ring, with messages of every kind of length.
void messages_arrive_whole(Communicator& c) {
  const int n = c.size();
  for (const int64_t count : {0, 1, 1000, 300000}) {
    const std::vector<float> mine = numbers(c.rank(), count);
    std::vector<float> theirs(mine.size(), -1.0F);
    const int before = (c.rank() + n - 1) % n;
    wait(exchange(c, (c.rank() + 1) % n, before, 5, mine, theirs), kPatience, "an exchange");
    expect(theirs == numbers(before, count), fmt::format("{} values did not arrive", count));
  }
}

void messages_of_one_tag_stay_in_order(Communicator& c) {
  constexpr int kMessages = 50;
  const int n = c.size();
  const int before = (c.rank() + n - 1) % n;
  std::vector<std::vector<float>> sent, arrived;
  for (int i = 0; i < kMessages; ++i) {
    sent.push_back(numbers(i, 10 * i));
    arrived.emplace_back(sent.back().size(), -1.0F);
  }
  Requests all;
  for (int i = 0; i < kMessages; ++i) {
    all.add(c.send((c.rank() + 1) % n, 1, bytes_of(std::span<const float>(sent[i]))));
  }
  for (int i = 0; i < kMessages; ++i) {
    all.add(c.receive(before, 1, bytes_of(std::span<float>(arrived[i]))));
  }
  wait([](Requests requests) -> Task { co_await std::move(requests); }(std::move(all)), kPatience,
       "many messages");
  expect(arrived == sent, "messages overtook each other");
}

void tags_keep_messages_apart(Communicator& c) {
  const int n = c.size();
  const int next = (c.rank() + 1) % n;
  const int before = (c.rank() + n - 1) % n;
  const std::vector<float> a = numbers(1, 10);
  const std::vector<float> b = numbers(2, 10);
  std::vector<float> got_a(10), got_b(10);
  Requests all;
  all.add(c.send(next, 11, bytes_of(std::span<const float>(a))));
  all.add(c.send(next, 12, bytes_of(std::span<const float>(b))));
  all.add(c.receive(before, 12, bytes_of(std::span<float>(got_b))));
  all.add(c.receive(before, 11, bytes_of(std::span<float>(got_a))));
  wait([](Requests requests) -> Task { co_await std::move(requests); }(std::move(all)), kPatience,
       "two tags");
  expect(got_a == a && got_b == b, "tags were confused");
}

void what_is_sent_is_counted(Communicator& c) {
  const int n = c.size();
  const Traffic before = c.sent();
  const std::vector<float> mine = numbers(0, 25);
  std::vector<float> theirs(25);
  wait(exchange(c, (c.rank() + 1) % n, (c.rank() + n - 1) % n, 0, mine, theirs), kPatience,
       "an exchange");
  expect(c.sent() - before == Traffic{1, Bytes{100}}, "one message of 100 bytes was not counted");
}

void parts_talk_among_themselves(Communicator& c) {
  const std::unique_ptr<Communicator> part = c.split(c.rank() % 2);
  expect(part->size() == (c.size() + 1 - c.rank() % 2) / 2, "a part has the wrong size");
  expect(part->rank() == c.rank() / 2, "a part has the wrong order");
  std::vector<float> values = {static_cast<float>(c.rank())};
  wait(ring_allreduce(*part, values, 0), kPatience, "a sum in a part");
  float sum = 0;
  for (int r = c.rank() % 2; r < c.size(); r += 2) sum += static_cast<float>(r);
  expect(values[0] == sum, "a part's sum is wrong");
}

/// Every algorithm in every form; the library's too where there is one.
void sums_are_right(Communicator& c, std::span<const Algorithm> algorithms) {
  for (const Algorithm algorithm : algorithms) {
    for (const int64_t count : {0, 1, 333, 100001}) {
      const std::string what = fmt::format("{} of {} values", to_string(algorithm), count);
      const std::vector<float> expected = sum_of(c.size(), count);
      std::vector<float> values = values_of(c.rank(), count);
      wait(allreduce(c, values, 0, algorithm), kPatience, what);
      expect(values == expected, what + " is wrong");

      const Strips strips = strips_for(algorithm, count, c.size());
      values = values_of(c.rank(), count);
      wait(part_reduce(c, values, strips, 1, algorithm), kPatience, what + " in parts");
      const Strip own = strips[static_cast<size_t>(c.rank())];
      expect(std::equal(values.begin() + own.begin, values.begin() + own.end,
                        expected.begin() + own.begin),
             what + " in parts is wrong");
      wait(part_broadcast(c, values, strips, 2, algorithm), kPatience, what + " from parts");
      expect(values == expected, what + " from parts is wrong");
    }
  }
}

void sums_by_messages_are_right(Communicator& c) {
  sums_are_right(c, std::span(kAlgorithms).first(4));
}

void sums_on_two_levels_are_right(Communicator& c) {
  TwoLevelSum sum(c, 5000);
  std::ranges::copy(values_of(c.rank(), 5000), sum.own().begin());
  wait(sum.allreduce(0, Algorithm::halving), kPatience, "a sum on two levels");
  expect(std::ranges::equal(sum.own(), sum_of(c.size(), 5000)), "a sum on two levels is wrong");
}

void memory_is_shared(Communicator& c) {
  for (const std::string& host : c.hosts()) {
    if (host != c.hosts().front()) return;  // only within a node
  }
  SharedSum sum(c, 1000);
  const std::vector<float> mine = numbers(c.rank(), 1000);
  std::copy(mine.begin(), mine.end(), sum.own().begin());
  wait(sum.allreduce(), kPatience, "a shared sum");
  std::vector<float> expected(1000, 0.0F);
  for (int r = 0; r < c.size(); ++r) add_to(numbers(r, 1000), expected);
  expect(std::equal(expected.begin(), expected.end(), sum.own().begin()),
         "the shared sum is wrong");
  wait(sum.barrier(), kPatience, "the others");
}

void a_wait_ends(Communicator& c) {
  std::vector<float> never(1);
  const int peer = (c.rank() + 1) % c.size();
  try {
    wait([](std::unique_ptr<Request> r) -> Task { co_await std::move(r); }(
                                            c.receive(peer, 99, bytes_of(std::span<float>(never)))),
         Seconds{0.05}, "something that never comes");
  } catch (const TimeoutError& error) {
    const std::string text = error.what();
    expect(text.find("something that never comes") != std::string::npos, "it is not named");
    expect(text.find(fmt::format("rank {}", peer)) != std::string::npos, "its peer is not named");
    return;
  }
  throw std::runtime_error("a wait for nothing came to an end");
}

/// As gradients and samples travel at the same time.
void threads_talk_at_once_over_parts_of_their_own(Communicator& c) {
  constexpr size_t kThreads = 3;
  constexpr int kRounds = 10;
  std::vector<std::unique_ptr<Communicator>> own;
  for (size_t i = 0; i < kThreads; ++i) own.push_back(c.split(0));
  std::vector<std::string> problems(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      try {
        for (int round = 0; round < kRounds; ++round) messages_arrive_whole(*own[i]);
      } catch (const std::exception& error) {
        problems[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) expect(problem.empty(), problem);
}

}  // namespace

void library_sums_are_right(Communicator& c) {
  sums_are_right(c, std::span(kAlgorithms).last(1));
}

const std::map<std::string, std::function<void(Communicator&)>>& contract() {
  static const std::map<std::string, std::function<void(Communicator&)>> checks = {
      {"messages_arrive_whole", messages_arrive_whole},
      {"messages_of_one_tag_stay_in_order", messages_of_one_tag_stay_in_order},
      {"tags_keep_messages_apart", tags_keep_messages_apart},
      {"what_is_sent_is_counted", what_is_sent_is_counted},
      {"parts_talk_among_themselves", parts_talk_among_themselves},
      {"threads_talk_at_once_over_parts_of_their_own",
       threads_talk_at_once_over_parts_of_their_own},
      {"memory_is_shared", memory_is_shared},
      {"sums_by_messages_are_right", sums_by_messages_are_right},
      {"sums_on_two_levels_are_right", sums_on_two_levels_are_right},
      {"a_wait_ends", a_wait_ends}};
  return checks;
}

}  // namespace convoy::comm
