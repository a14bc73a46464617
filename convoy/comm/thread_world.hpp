#pragma once
// Ranks as threads of one process: the Communicator's contract without a network, for tests and for
// trying things out.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/communicator.hpp"

namespace convoy::comm {

/// Runs body(communicator) on `ranks` threads and waits for all. `hosts` (one for each rank; empty:
/// all on one) lets tests pretend that there are several. If a body throws, the others' requests
/// fail with a message that names the rank, and the first exception is rethrown.
void run_as_threads(int ranks, const std::function<void(Communicator&)>& body,
                    const std::vector<std::string>& hosts = {});

}  // namespace convoy::comm
