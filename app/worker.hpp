#pragma once
// How a verb runs as one of several workers, and ends when something goes wrong.

#include <functional>

#include "convoy/comm/mpi.hpp"
#include "convoy/sync/team.hpp"

namespace convoy::app {

/// Runs `verb` and returns its exit code. What all workers know to be wrong ends all in order, with
/// worker 0's message. What only this one knows is said, with its name, and ends all at once.
int as_worker(comm::MpiSession& session, const sync::Team& team, const std::function<int()>& verb);

}  // namespace convoy::app
