#pragma once
// What every Communicator promises, as checks that all ranks run together: with ranks as threads
// (communicator_test.cpp) and as processes of mpirun (mpi_contract.cpp). A check throws
// std::runtime_error that says what was wrong.

#include <functional>
#include <map>
#include <string>

#include "convoy/comm/communicator.hpp"

namespace convoy::comm {

/// By name; each may be run with any number of ranks.
const std::map<std::string, std::function<void(Communicator&)>>& contract();

/// Only with ranks that MPI has started.
void library_sums_are_right(Communicator& c);

}  // namespace convoy::comm
