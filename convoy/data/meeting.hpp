#pragma once
// How the workers of a store wait for each other, and how they are called in messages.

#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/comm/communicator.hpp"

namespace convoy::data {

/// "rank 3 (node2) and rank 4 (node2)": ranks of a communicator as they are called in the world,
/// where its first one is `first`.
std::string names_of(const comm::Communicator& c, const std::vector<int>& ranks, int first);

/// Waits until all ranks have come here; throws comm::TimeoutError naming those that have not.
/// Returns the names of the other ranks that are not well, "" if there are none.
std::string meet(comm::Communicator& all, bool is_well, Seconds deadline, const std::string& what);

}  // namespace convoy::data
