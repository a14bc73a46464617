// The contract of the Communicator between processes: run by ctest under mpirun.

#include <cstdio>
#include <exception>

#include "convoy/comm/mpi.hpp"

#include "tests/comm/contract.hpp"

int main() {
  convoy::comm::MpiSession session;
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
