#include "convoy/sync/team.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/comm/collectives.hpp"

namespace convoy::sync {
namespace {

/// Tags of the world communicator.
constexpr int kGatherTag = 1;
constexpr int kBroadcastTag = 2;

/// Messages are shorter than 2 GiB everywhere, and large ones are better sent in pieces.
constexpr size_t kPiece = size_t{8} << 20;

comm::Task gather_task(comm::Communicator& c, std::vector<std::vector<std::byte>>& all) {
  comm::Requests requests;
  const auto own = static_cast<size_t>(c.rank());
  for (int step = 1; step < c.size(); ++step) {
    const int from = (c.rank() + c.size() - step) % c.size();
    const int to = (c.rank() + step) % c.size();
    requests.add(c.receive(from, kGatherTag, all[static_cast<size_t>(from)]));
    requests.add(c.send(to, kGatherTag, all[own]));
  }
  co_await std::move(requests);
}

/// A binomial tree from rank 0, piece by piece.
comm::Task broadcast_task(comm::Communicator& c, std::span<std::byte> bytes) {
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const std::span<std::byte> piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    int distance = 1;
    while (distance <= c.rank()) distance *= 2;
    if (c.rank() > 0) co_await c.receive(c.rank() - distance / 2, kBroadcastTag, piece);
    comm::Requests sends;
    for (; c.rank() + distance < c.size(); distance *= 2) {
      sends.add(c.send(c.rank() + distance, kBroadcastTag, piece));
    }
    co_await std::move(sends);
  }
}

}  // namespace

const Team& Team::alone() {
  static const Team team;
  return team;
}

Team::Team(comm::Communicator& world, Seconds deadline, bool exchanges)
    : world_(&world), rank_(world.rank()) {
  set_deadline(deadline);
  members_.clear();
  std::vector<std::string> names;
  for (int r = 0; r < world.size(); ++r) {
    const std::string& host = world.hosts()[static_cast<size_t>(r)];
    const auto found = std::find(names.begin(), names.end(), host);
    const auto at = static_cast<size_t>(found - names.begin());
    if (found == names.end()) {
      names.push_back(host);
      members_.emplace_back();
    }
    if (r == rank_) {
      node_ = static_cast<int>(at);
      local_ = static_cast<int>(members_[at].size());
    }
    members_[at].push_back(r);
  }
  order_.clear();
  size_t least = members_.front().size();
  for (const std::vector<int>& ranks : members_) {
    order_.insert(order_.end(), ranks.begin(), ranks.end());
    least = std::min(least, ranks.size());
  }
  channels_ = static_cast<int>(least);
  if (size() == 1 && !exchanges) return;
  node_comm_ = world.split(node_);
  // Splitting is collective, so those without a counterpart everywhere take part, for nothing.
  auto across = world.split(std::min(local_, channels_));
  if ((nodes() > 1 || exchanges) && local_ < channels_) across_ = std::move(across);
}

void Team::set_deadline(Seconds deadline) {
  deadline_ = deadline;
  for (comm::Communicator* c : {world_, node_comm_.get(), across_.get()}) {
    if (c != nullptr) c->set_patience(patience());
  }
}

std::string Team::name(int rank) const {
  if (world_ == nullptr) return "this worker";
  return fmt::format("worker {} ({})", rank, world_->hosts()[static_cast<size_t>(rank)]);
}

std::vector<GrainRange> Team::ranges(int64_t grains, std::span<const int64_t> shares) const {
  check(shares.empty() || static_cast<int>(shares.size()) == size(), "a share for each worker");
  std::vector<GrainRange> all(order_.size());
  int64_t at = 0;
  for (size_t place = 0; place < order_.size(); ++place) {
    const auto rank = static_cast<size_t>(order_[place]);
    const auto p = static_cast<int64_t>(place);
    const int64_t share =
        shares.empty() ? grains * (p + 1) / size() - grains * p / size() : shares[rank];
    all[rank] = {at, at + share};
    at += share;
  }
  check(at == grains, "the shares are all grains");
  return all;
}

GrainRange Team::node_range(const std::vector<GrainRange>& ranges, int node) const {
  const std::vector<int>& ranks = members(node);
  return {ranges[static_cast<size_t>(ranks.front())].first,
          ranges[static_cast<size_t>(ranks.back())].last};
}

std::vector<std::vector<std::byte>> Team::gather(std::span<const std::byte> own,
                                                 const std::string& what, Seconds patience) const {
  std::vector<std::vector<std::byte>> all(order_.size(), std::vector<std::byte>(own.size()));
  std::copy(own.begin(), own.end(), all[static_cast<size_t>(rank_)].begin());
  if (size() > 1) comm::wait(gather_task(*world_, all), patience, what);
  return all;
}

void Team::from_first(comm::Communicator& c, std::span<std::byte> bytes,
                      const std::string& what) const {
  comm::wait(broadcast_task(c, bytes), patience(), what);
}

void Team::from_first(std::vector<std::byte>& bytes, const std::string& what) const {
  if (size() == 1) return;
  uint64_t length = bytes.size();
  from_first(*world_, std::as_writable_bytes(std::span(&length, 1)), what);
  bytes.resize(length);
  from_first(*world_, std::span(bytes), what);
}

std::string Team::text_from_first(const std::string& own, const std::string& what) const {
  const auto bytes = std::as_bytes(std::span(own));
  std::vector<std::byte> all(bytes.begin(), bytes.end());
  from_first(all, what);
  return {reinterpret_cast<const char*>(all.data()), all.size()};
}

std::vector<std::string> Team::gather_text(const std::string& own, const std::string& what) const {
  const auto length = static_cast<uint64_t>(own.size());
  std::vector<uint64_t> lengths;
  for (const auto& bytes : gather(std::as_bytes(std::span(&length, 1)), what, patience())) {
    std::memcpy(&lengths.emplace_back(), bytes.data(), sizeof(uint64_t));
  }
  std::string padded = own;
  padded.resize(*std::max_element(lengths.begin(), lengths.end()));
  std::vector<std::string> all;
  for (const auto& bytes : gather(std::as_bytes(std::span(padded)), what, patience())) {
    all.emplace_back(reinterpret_cast<const char*>(bytes.data()), lengths[all.size()]);
  }
  return all;
}

std::vector<int64_t> Team::gather_numbers(int64_t own, const std::string& what) const {
  std::vector<int64_t> all;
  for (const auto& bytes : gather(std::as_bytes(std::span(&own, 1)), what)) {
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof(int64_t));
  }
  return all;
}

void Team::meet(const std::string& what) const {
  const std::byte nothing{};
  gather(std::span(&nothing, 1), what);
}

NodeMemory::NodeMemory(const Team& team, Bytes size) {
  if (team.node_comm() == nullptr || team.locals() == 1) {
    own_ = AlignedBuffer(size);
    data_ = own_.bytes().data();
    return;
  }
  shared_ = team.node_comm()->share(team.local() == 0 ? size : Bytes{0});
  data_ = shared_->part(0).data();
}

void await(const std::function<bool()>& holds, Seconds deadline,
           const std::function<std::string()>& what) {
  constexpr int kEager = 1000;
  constexpr int kYielding = 2000;
  // The longer it has waited, the less a moment more matters, and the more its looks take from
  // those it waits for, if they share its cores.
  constexpr double kPart = 1.0 / 64;
  constexpr double kShortest = 30e-6;
  constexpr double kLongest = 1e-3;
  const Seconds begin = now();
  for (int polls = 0; !holds(); ++polls) {
    if (polls < kEager) continue;
    const Seconds waited = now() - begin;
    if (waited > deadline) {
      throw comm::TimeoutError(fmt::format("waited {} for {}", to_string(deadline), what()));
    }
    if (polls < kYielding) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(
          std::chrono::duration<double>(std::clamp(kPart * waited.value, kShortest, kLongest)));
    }
  }
}

}  // namespace convoy::sync
