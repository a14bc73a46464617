#include "convoy/comm/gate.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

namespace convoy::comm {
namespace {

/// The slice of a part that begins at `at`.
template <class Byte>
std::span<Byte> slice_at(std::span<Byte> part, size_t at, Bytes slice) {
  return part.subspan(at, std::min(static_cast<size_t>(slice.value), part.size() - at));
}

}  // namespace

Gate::Gate(Bytes most, Bytes slice) : most_(most), slice_(slice) {
  if (slice_.value == 0) {
    slice_.value = static_cast<int64_t>(
        std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(most.value, 8))) / 8);
  }
}

Bytes Gate::window(const LinkSpeed& link) {
  constexpr Bytes kLeast{64 << 10};
  constexpr Bytes kMost{8 << 20};
  constexpr double kWait = 6e-3;  // seconds
  const double bytes = kWait / std::max(link.per_byte.value, 1e-12);
  return {static_cast<int64_t>(std::clamp(bytes, double(kLeast.value), double(kMost.value)))};
}

Task Gate::enter(Bytes bytes, int priority) {
  const std::pair key(priority, arrivals_++);
  waiting_[key] = bytes;
  co_await Until(
      [this, key, bytes] {
        if (waiting_.begin()->first != key) return false;
        look();
        return inside_.value == 0 || (inside_ + bytes).value <= most_.value;
      },
      "for its turn to send");
  waiting_.erase(key);
  inside_ += bytes;
}

Task Gate::send(Communicator& c, int to, int tag, Parts parts, int priority) {
  const auto open = std::make_shared<int64_t>(0);
  Bytes all;
  for (const std::span<const std::byte> part : parts) {
    all.value += static_cast<int64_t>(part.size());
    for (size_t at = 0; at < part.size();) {
      const std::span<const std::byte> slice = slice_at(part, at, slice_);
      at += slice.size();
      const Bytes bytes{static_cast<int64_t>(slice.size())};
      co_await enter(bytes, priority);
      flights_[to].push_back({c.deliver(to, tag, slice), bytes, open});
      ++*open;
    }
  }
  // Named: g++ 12 may destroy temporaries of a co_await twice.
  Until arrived(
      [this, open] {
        if (*open > 0) look();
        return *open == 0;
      },
      fmt::format("sending {} to rank {} ({})", to_string(all), to,
                  c.hosts()[static_cast<size_t>(to)]));
  co_await std::move(arrived);
}

void Gate::receive(Communicator& c, int from, int tag, std::span<std::byte> part,
                   Requests& requests) const {
  for (size_t at = 0; at < part.size();) {
    const std::span<std::byte> slice = slice_at(part, at, slice_);
    at += slice.size();
    requests.add(c.receive(from, tag, slice));
  }
}

void Gate::look() {
  // Every task that waits asks, one after the other; looking once is enough.
  constexpr Seconds kAgain{20e-6};
  if (now() - looked_ < kAgain) return;
  for (auto& [to, flights] : flights_) {
    while (!flights.empty() && flights.front().request->done()) {
      inside_ = inside_ - flights.front().bytes;
      --*flights.front().open;
      flights.pop_front();
    }
  }
  looked_ = now();
}

}  // namespace convoy::comm
