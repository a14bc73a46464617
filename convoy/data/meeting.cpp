#include "convoy/data/meeting.hpp"

#include <cstddef>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "convoy/base/text.hpp"
#include "convoy/comm/task.hpp"

namespace convoy::data {
namespace {

constexpr int kTag = 0;

}  // namespace

std::string names_of(const comm::Communicator& c, const std::vector<int>& ranks, int first) {
  std::vector<std::string> names;
  names.reserve(ranks.size());
  for (const int rank : ranks) {
    names.push_back(
        fmt::format("rank {} ({})", first + rank, c.hosts()[static_cast<size_t>(rank)]));
  }
  return join(names);
}

std::string meet(comm::Communicator& all, bool is_well, Seconds deadline, const std::string& what) {
  const auto ranks = static_cast<size_t>(all.size());
  const std::byte own{is_well};
  std::vector<std::byte> wells(ranks, std::byte{1});
  std::vector<int> missing;
  comm::Tasks tasks;
  for (int rank = 0; rank < all.size(); ++rank) {
    if (rank == all.rank()) continue;
    comm::Requests both;
    both.add(all.send(rank, kTag, std::span(&own, 1)));
    both.add(all.receive(rank, kTag, std::span(&wells[static_cast<size_t>(rank)], 1)));
    missing.push_back(rank);
    tasks.add([](comm::Requests requests, std::vector<int>& open, int other) -> comm::Task {
      co_await std::move(requests);
      std::erase(open, other);
    }(std::move(both), missing, rank));
  }
  try {
    comm::wait([](comm::Tasks both) -> comm::Task { co_await std::move(both); }(std::move(tasks)),
               deadline, what);
  } catch (const comm::TimeoutError&) {
    throw comm::TimeoutError(fmt::format("{}: {} did not come within {}", what,
                                         names_of(all, missing, 0), to_string(deadline)));
  }
  std::vector<int> unwell;
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (wells[rank] == std::byte{0}) unwell.push_back(static_cast<int>(rank));
  }
  return names_of(all, unwell, 0);
}

}  // namespace convoy::data
