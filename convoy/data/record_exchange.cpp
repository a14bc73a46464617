#include "convoy/data/record_exchange.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/comm/alltoall.hpp"
#include "convoy/data/meeting.hpp"

namespace convoy::data {
namespace {

// Messages of one kind between two members are begun in the order of steps on both sides, so one
// tag serves all steps. Tags from comm::kTags on belong to the shuffle.
constexpr int kFetchTag = 0;
constexpr int kPaceTag = 1;
constexpr int kEndTag = 2;
constexpr int kShuffle = 1;

/// MPI counts in 31 bits; a longer message goes in several.
constexpr size_t kLongestMessage = size_t{1} << 30;

/// Records are fetched steps ahead, so it matters little when the thread looks at them.
constexpr Seconds kPause{500e-6};
constexpr Seconds kShortPause{10e-6};

/// Nobody waits for the thread itself: a step ahead may take as long as an evaluation in between.
constexpr Seconds kNoDeadline{std::numeric_limits<double>::infinity()};

/// The first member with grains; −1: none has.
int leader_of(const Shares& shares, DataGroup group) {
  for (int worker = group.first; worker < group.last; ++worker) {
    if (!shares.ranges[static_cast<size_t>(worker)].empty()) return worker - group.first;
  }
  return -1;
}

/// The step before which all ranges are known from the beginning. Where they never give any grain
/// to this group, there is nothing to do, and nothing that would keep members from beginning one
/// step after another: it knows of none.
int64_t first_unknown(const Shares& shares, DataGroup group, const ExchangeOptions& options) {
  return options.announced || leader_of(shares, group) < 0 ? options.first_step
                                                           : std::numeric_limits<int64_t>::max();
}

/// start(piece) for each message that `bytes` are cut into.
template <class Byte, class Start>
comm::Requests in_messages(std::span<Byte> bytes, const Start& start) {
  comm::Requests requests;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kLongestMessage));
    requests.add(start(piece));
    bytes = bytes.subspan(piece.size());
  }
  return requests;
}

comm::Task end_of(comm::Requests requests) {
  co_await std::move(requests);
}

}  // namespace

/// The records that change hands in a shuffle.
struct RecordExchange::Moving {
  Moving(HeldRecords& held, const Holders& before, const Holders& after, int member, int members) {
    std::vector<std::vector<int64_t>> to(static_cast<size_t>(members));
    std::vector<std::vector<int64_t>> from(static_cast<size_t>(members));
    for (size_t s = 0; s < before.size(); ++s) {
      if (before[s] == after[s]) continue;
      const auto sample = static_cast<int64_t>(s);
      if (before[s] == member) to[static_cast<size_t>(after[s])].push_back(sample);
      if (after[s] == member) from[static_cast<size_t>(before[s])].push_back(sample);
    }
    for (size_t m = 0; m < to.size(); ++m) {
      outgoing.emplace_back(held, std::move(to[m]));
      incoming.emplace_back(held, std::move(from[m]));
      bytes_to.push_back(outgoing.back().bytes());
      bytes_from.push_back(incoming.back().bytes());
    }
  }

  std::vector<OutgoingRecords> outgoing;
  std::vector<IncomingRecords> incoming;
  std::vector<int64_t> bytes_to;
  std::vector<int64_t> bytes_from;
};

RecordExchange::RecordExchange(HeldRecords& held, std::unique_ptr<comm::Communicator> members,
                               Shares shares, DataGroup group, Holders holders,
                               const ExchangeOptions& options)
    : held_(held),
      members_(std::move(members)),
      shares_(std::move(shares)),
      group_(group),
      options_(options),
      holders_(std::move(holders)),
      unknown_(first_unknown(shares_, group, options)),
      next_(options.first_step),
      era_(era_of(options.first_step, shares_, options.shuffle_epochs)),
      owed_(static_cast<size_t>(group.size())),
      heard_of_end_(static_cast<size_t>(group.size())),
      thread_(kNoDeadline, kPause) {
  check(options.ahead >= 1, "at least the step in use is here");
  const std::lock_guard lock(mutex_);
  begin_steps();
}

RecordExchange::~RecordExchange() = default;

// ---- which steps are begun

void RecordExchange::announce(Shares shares) {
  const std::lock_guard lock(mutex_);
  check(options_.announced && !ending_, "steps are announced before the end, if they are to be");
  announced_[unknown_++] = std::move(shares);
  begin_steps();
}

Shares RecordExchange::take_shares(int64_t step) {
  if (!options_.announced) return shares_;
  return std::move(announced_.extract(step).mapped());
}

const Shares& RecordExchange::shares_of(int64_t step) const {
  check(step >= options_.first_step && step < unknown_,
        "a loader takes grains of steps whose ranges are known");
  if (!options_.announced) return shares_;
  const auto begun = steps_.find(step);
  if (begun != steps_.end()) return begun->second.shares;
  check(step >= next_, "a grain is taken before its release");
  return announced_.at(step);
}

GrainRange RecordExchange::own_range(const Shares& shares) const {
  const int worker = group_.first + members_->rank();
  return shares.ranges[static_cast<size_t>(worker)];
}

bool RecordExchange::may_begin(int64_t step) const {
  if (shuffling_ || step >= unknown_) return false;
  if (ending_) return step < end_;
  const int64_t oldest = steps_.empty() ? next_ : steps_.begin()->first;
  return step < oldest + options_.ahead;
}

void RecordExchange::begin_steps() {
  for (; may_begin(next_); ++next_) {
    const int64_t step = next_;
    const int64_t era = era_of(step, shares_, options_.shuffle_epochs);
    if (era != era_) {
      era_ = era;
      shuffling_ = true;
      shuffled_ = step;
      thread_.post(fmt::format("the shuffle before step {}", step),
                   [this, step] { return shuffle(step); });
      return;
    }
    Step& begun = steps_[step];
    begun.shares = take_shares(step);
    begun.unreleased = own_range(begun.shares).size();
    begun.released.resize(static_cast<size_t>(begun.unreleased));
    thread_.post(fmt::format("the records of step {}", step),
                 [this, step] { return exchange(step); });
  }
}

void RecordExchange::close_if_over(int64_t step) {
  const Step& s = steps_.at(step);
  if (!s.exchanged || s.unreleased > 0) return;
  steps_.erase(step);
  begin_steps();
}

// ---- the loader's side

template <class Condition, class What>
void RecordExchange::wait_for(std::unique_lock<std::mutex>& lock, const Condition& holds,
                              const What& what) {
  // The thread may fail without a word to us, hence the looks in between. A shuffle may take much
  // longer than the deadline, as long as it gets on.
  constexpr auto kBetweenLooks = std::chrono::milliseconds(20);
  const Seconds begin = now();
  while (!holds()) {
    thread_.rethrow();
    if (now() - std::max(begin, moved_) > options_.deadline) throw comm::TimeoutError(what());
    changed_.wait_for(lock, kBetweenLooks);
  }
}

std::vector<RecordBytes> RecordExchange::take(int64_t step, int64_t grain) {
  std::unique_lock lock(mutex_);
  const auto refuse_if_ended = [&] {
    if (stopped_ || ending_) {
      fail("the store has ended; grain {} of step {} is not to be had", grain, step);
    }
  };
  refuse_if_ended();
  const GrainRange own = own_range(shares_of(step));
  check(own.has(grain), "a loader takes grains of its worker");
  const auto count = static_cast<ptrdiff_t>(shares_.grain);
  const auto first = static_cast<ptrdiff_t>(grain - own.first) * count;
  const auto is_here = [&] {
    refuse_if_ended();
    const auto found = steps_.find(step);
    if (found == steps_.end()) {
      check(step >= next_, "a grain is taken before its release");
      return false;
    }
    check(!found->second.released[static_cast<size_t>(grain - own.first)],
          "a grain is taken before its release");
    const std::vector<RecordBytes>& records = found->second.records;
    return found->second.looked_up &&
           std::none_of(records.begin() + first, records.begin() + first + count,
                        [](const RecordBytes& bytes) { return bytes == nullptr; });
  };
  wait_for(lock, is_here, [&] {
    return fmt::format("grain {} of step {} has not come within {}: {}", grain, step,
                       to_string(options_.deadline), what_lacks(step, grain));
  });
  const Step& s = steps_.at(step);
  return {s.records.begin() + first, s.records.begin() + first + count};
}

void RecordExchange::release(int64_t step, int64_t grain) {
  std::vector<RecordBytes> free;  // without the lock
  const std::lock_guard lock(mutex_);
  const auto found = steps_.find(step);
  check(found != steps_.end(), "a grain is taken once, released once");
  Step& s = found->second;
  const GrainRange own = own_range(s.shares);
  check(own.has(grain), "a loader releases grains of its worker");
  const auto index = static_cast<size_t>(grain - own.first);
  const auto count = static_cast<size_t>(shares_.grain);
  check(!s.released[index], "a grain is taken once, released once");
  for (size_t i = index * count; i < (index + 1) * count; ++i) {
    free.push_back(std::exchange(s.records[i], nullptr));
  }
  s.released[index] = true;
  --s.unreleased;
  close_if_over(step);
}

void RecordExchange::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

std::string RecordExchange::names_of(std::vector<int> members) const {
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  return data::names_of(*members_, members, group_.first);
}

std::string RecordExchange::what_a_shuffle_lacks() const {
  std::vector<int> missing;
  for (size_t m = 0; m < owed_.size(); ++m) {
    if (owed_[m] > 0) missing.push_back(static_cast<int>(m));
  }
  return missing.empty() ? fmt::format("the shuffle before step {} still sends to {}", next_,
                                       names_of({given_}))
                         : fmt::format("the shuffle before step {} still waits for {}", next_,
                                       names_of(missing));
}

std::string RecordExchange::what_lacks(int64_t step, int64_t grain) const {
  std::vector<int> missing;
  const auto found = steps_.find(step);
  if (found != steps_.end()) {
    const Step& s = found->second;
    const auto first = static_cast<size_t>((grain - own_range(s.shares).first) * shares_.grain);
    for (size_t i = first; i < first + static_cast<size_t>(shares_.grain) && s.looked_up; ++i) {
      if (s.records[i] == nullptr) missing.push_back(s.holders[i]);
    }
    return "records are missing from " + names_of(missing);
  }
  if (shuffling_) return what_a_shuffle_lacks();
  const auto& [oldest, s] = *steps_.begin();
  if (s.unreleased > 0) {
    return fmt::format("step {} is not begun before all grains of step {} are released", next_,
                       oldest);
  }
  for (size_t m = 0; m < s.under_way.size(); ++m) {
    if (s.under_way[m] > 0) missing.push_back(static_cast<int>(m));
  }
  return fmt::format("the records of step {} have not all gone to and come from {}", oldest,
                     names_of(missing));
}

StoreCounters RecordExchange::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

// ---- the records of a step

comm::Task RecordExchange::exchange(int64_t step) {
  const int self = members_->rank();
  const auto members = static_cast<size_t>(group_.size());
  Shares shares;
  {
    const std::lock_guard lock(mutex_);
    shares = steps_.at(step).shares;
  }
  StepNeeds needs = needs_of(step, shares, group_, self, holders_);
  std::vector<std::vector<size_t>> places(members);
  const int leader = leader_of(shares, group_);
  const auto is_idle = [&](int member) {
    const int worker = group_.first + member;
    return shares.ranges[static_cast<size_t>(worker)].empty();
  };
  const auto is_paced = [&](size_t m) {
    const int member = static_cast<int>(m);
    return self == leader ? is_idle(member) : member == leader && is_idle(self);
  };
  {
    // From here on a shuffle cannot take away what the step needs.
    const std::lock_guard lock(mutex_);
    Step& s = steps_.at(step);
    s.records.resize(needs.mine.size());
    for (size_t i = 0; i < needs.mine.size(); ++i) {
      if (needs.holders[i] == self) {
        s.records[i] = held_.get(needs.mine[i]);
      } else {
        places[static_cast<size_t>(needs.holders[i])].push_back(i);
      }
    }
    s.samples = std::move(needs.mine);
    s.holders = std::move(needs.holders);
    s.looked_up = true;
    for (size_t m = 0; m < members; ++m) {
      s.under_way.push_back(int{!needs.sends[m].empty()} + int{!places[m].empty()} +
                            int{is_paced(m)});
    }
  }
  changed_.notify_all();

  comm::Tasks all;
  for (size_t m = 0; m < members; ++m) {
    const int member = static_cast<int>(m);
    if (is_paced(m)) all.add(pace(member, step, self == leader));
    if (!needs.sends[m].empty()) all.add(send_records(member, step, std::move(needs.sends[m])));
    if (!places[m].empty()) all.add(receive_records(member, step, std::move(places[m])));
  }
  co_await std::move(all);

  {
    const std::lock_guard lock(mutex_);
    steps_.at(step).exchanged = true;
    close_if_over(step);
  }
  changed_.notify_all();
}

comm::Task RecordExchange::pace(int member, int64_t step, bool leads) {
  if (leads) {
    co_await members_->send(member, kPaceTag, {});
  } else {
    co_await members_->receive(member, kPaceTag, {});
  }
  const std::lock_guard lock(mutex_);
  --steps_.at(step).under_way[static_cast<size_t>(member)];
}

comm::Task RecordExchange::send_records(int to, int64_t step, std::vector<int64_t> samples) {
  size_t size = 0;
  for (const int64_t sample : samples) size += static_cast<size_t>(held_.length(sample));
  const std::shared_ptr<std::byte> message = make_bytes(static_cast<int64_t>(size));
  std::byte* at = message.get();
  for (const int64_t sample : samples) {
    const auto length = static_cast<size_t>(held_.length(sample));
    std::memcpy(at, held_.get(sample).get(), length);
    at += length;
  }
  const std::span<const std::byte> bytes(message.get(), size);
  comm::Requests requests = in_messages(bytes, [&](std::span<const std::byte> piece) {
    return members_->deliver(to, kFetchTag, piece);
  });
  co_await std::move(requests);
  const std::lock_guard lock(mutex_);
  --steps_.at(step).under_way[static_cast<size_t>(to)];
}

comm::Task RecordExchange::receive_records(int from, int64_t step, std::vector<size_t> places) {
  std::vector<int64_t> lengths;
  int64_t size = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const size_t place : places) {
      lengths.push_back(held_.length(steps_.at(step).samples[place]));
      size += lengths.back();
    }
  }
  const std::shared_ptr<std::byte> message = make_bytes(size);
  const std::span<std::byte> bytes(message.get(), static_cast<size_t>(size));
  comm::Requests requests = in_messages(
      bytes, [&](std::span<std::byte> piece) { return members_->receive(from, kFetchTag, piece); });
  co_await std::move(requests);
  {
    const std::lock_guard lock(mutex_);
    Step& s = steps_.at(step);
    int64_t at = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      s.records[places[i]] = RecordBytes(message, message.get() + at);
      at += lengths[i];
    }
    --s.under_way[static_cast<size_t>(from)];
    counters_.fetched_records += static_cast<int64_t>(places.size());
    counters_.fetched += Bytes{size};
  }
  changed_.notify_all();
}

// ---- records change hands

// Steps before it have what they need, each its own share of it; those after it are begun at its
// end.
comm::Task RecordExchange::shuffle(int64_t step) {
  const Seconds begin = now();
  const int64_t era = era_of(step, shares_, options_.shuffle_epochs);
  Holders after = of_era(held_.lengths(), shares_, group_, era, options_.shuffle_epochs);
  Moving moving(held_, holders_, after, members_->rank(), group_.size());
  {
    const std::lock_guard lock(mutex_);
    owed_ = moving.bytes_from;
    moved_ = begin;
  }
  comm::Streams streams;
  streams.to = moving.bytes_to;
  streams.from = moving.bytes_from;
  streams.give = [this, &moving](int to, std::span<std::byte> piece) {
    moving.outgoing[static_cast<size_t>(to)].give(piece);
    const std::lock_guard lock(mutex_);
    given_ = to;
    moved_ = now();
  };
  streams.take = [this, &moving](int from, std::span<const std::byte> piece) {
    moving.incoming[static_cast<size_t>(from)].take(piece);
    const std::lock_guard lock(mutex_);
    owed_[static_cast<size_t>(from)] -= static_cast<int64_t>(piece.size());
    moved_ = now();
  };
  comm::Task all = comm::alltoall(*members_, std::move(streams), options_.segment, kShuffle);
  // Soon everybody waits for it, and MPI moves long messages only while it is asked.
  thread_.set_pause(kShortPause);
  co_await std::move(all);
  thread_.set_pause(kPause);
  holders_ = std::move(after);
  {
    const std::lock_guard lock(mutex_);
    ++counters_.shuffles;
    for (const IncomingRecords& from : moving.incoming) counters_.moved_records += from.records();
    for (const int64_t bytes : moving.bytes_from) counters_.moved += Bytes{bytes};
    counters_.shuffling += now() - begin;
    shuffling_ = false;
    begin_steps();
  }
  changed_.notify_all();
}

// ---- the end

comm::Task RecordExchange::agree_on_the_end() {
  const auto n = static_cast<size_t>(group_.size());
  std::vector<int64_t> ends(n);
  const auto bytes_of = [&](size_t m) { return std::as_writable_bytes(std::span(&ends[m], 1)); };
  const auto self = static_cast<size_t>(members_->rank());
  {
    const std::lock_guard lock(mutex_);
    // Whoever has begun a shuffle needs the others for it, even if its own part is over.
    ends[self] = next_ + (shuffled_ == next_ ? 1 : 0);
    heard_of_end_[self] = true;
  }
  comm::Tasks all;
  for (size_t m = 0; m < n; ++m) {
    if (m == self) continue;
    const int member = static_cast<int>(m);
    comm::Requests sent;
    sent.add(members_->send(member, kEndTag, bytes_of(self)));
    all.add(end_of(std::move(sent)));
    all.add([](RecordExchange& own, int from, std::span<std::byte> to) -> comm::Task {
      co_await own.members_->receive(from, kEndTag, to);
      const std::lock_guard lock(own.mutex_);
      own.heard_of_end_[static_cast<size_t>(from)] = true;
    }(*this, member, bytes_of(m)));
  }
  co_await std::move(all);
  {
    const std::lock_guard lock(mutex_);
    const int64_t end = *std::max_element(ends.begin(), ends.end());
    check(end <= unknown_, "all workers have announced the same steps when they end");
    end_ = end;
    begin_steps();
  }
  changed_.notify_all();
}

bool RecordExchange::is_over() const {
  return end_ >= 0 && !shuffling_ && next_ >= end_ &&
         std::all_of(steps_.begin(), steps_.end(),
                     [](const auto& step) { return step.second.exchanged; });
}

void RecordExchange::finish() {
  std::unique_lock lock(mutex_);
  if (ending_) return;
  ending_ = true;
  thread_.post("the end of the data store", [this] { return agree_on_the_end(); });
  wait_for(
      lock, [&] { return is_over(); },
      [&] {
        std::vector<int> missing;
        for (size_t m = 0; m < heard_of_end_.size(); ++m) {
          if (!heard_of_end_[m]) missing.push_back(static_cast<int>(m));
        }
        return fmt::format(
            "the data store has not ended within {}: {}", to_string(options_.deadline),
            end_ < 0 ? names_of(missing) + " did not come to its end"
                     : fmt::format("records before step {} are still on their way", end_));
      });
}

}  // namespace convoy::data
