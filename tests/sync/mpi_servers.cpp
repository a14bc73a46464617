// Model servers between processes: run by ctest under mpirun. The same exercise as with workers as
// threads (model_servers_test.cpp).

#include <cstdio>
#include <exception>

#include "convoy/comm/mpi.hpp"

#include "tests/sync/server_exercise.hpp"

namespace convoy::sync {
namespace {

void exercise_all(comm::Communicator& world) {
  const Team team(world, Seconds{60});
  const auto program = plain_program();
  const auto optimizer = plain_optimizer();
  for (const Scheme scheme : {Scheme::stale, Scheme::asynchronous, Scheme::backup}) {
    for (const bool ahead : {false, true}) {
      Exercise e;
      e.last = 30;
      e.ahead = ahead;
      e.close_after = ahead ? 8 : 0;
      // A mean of two or four whole numbers is exact.
      e.options = server_options(scheme, 1, team.size() == 3 ? 1 : 0);
      ModelServers servers(team, *program, *optimizer, e.options);
      for (int segment = 0; segment < 2; ++segment) exercise(team, *program, servers, e);
    }
  }
}

}  // namespace
}  // namespace convoy::sync

int main() {
  convoy::comm::MpiSession session;
  try {
    convoy::sync::exercise_all(session.world());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", session.world().rank(), error.what());
    session.abort(1);
  }
  if (session.world().rank() == 0) std::printf("nothing was lost\n");
  return 0;
}
