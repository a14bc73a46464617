// The contract of the Communicator between processes: run by ctest under mpirun.
//
//   mpi_contract           checks all of it
//   mpi_contract absent    the last rank does not come where all others wait in the MPI library

#include <chrono>
#include <cstdio>
#include <exception>
#include <string_view>
#include <thread>

#include "convoy/comm/mpi.hpp"

#include "tests/comm/contract.hpp"

namespace {

void wait_for_the_absent(convoy::comm::Communicator& world) {
  world.set_patience(convoy::Seconds{1});
  if (world.rank() + 1 < world.size()) {
    world.split(0);
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(60));
  }
}

}  // namespace

int main(int argc, char** argv) {
  convoy::comm::MpiSession session;
  if (argc > 1 && std::string_view(argv[1]) == "absent") {
    wait_for_the_absent(session.world());
    return 0;
  }
  auto checks = convoy::comm::contract();
  checks["library_sums_are_right"] = convoy::comm::library_sums_are_right;
  for (const auto& [name, check] : checks) {
    try {
      check(session.world());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s: %s\n", session.world().rank(), name.c_str(), error.what());
      session.abort(1);
    }
    if (session.world().rank() == 0) std::printf("%s holds\n", name.c_str());
  }
  return 0;
}
