#include "convoy/comm/turnstile.hpp"

#include <algorithm>

namespace convoy::comm {

Task ClientTurns::pass(int client) {
  Client& own = clients_[static_cast<size_t>(client)];
  if (own.pending++ == 0) order_.push_back(client);
  co_await Until([this, client] { return admitted(client); }, "waiting for others to be served");
  if (!std::exchange(own.begun, true)) own.moved = clock_();
}

void ClientTurns::leave(int client) {
  constexpr double kNew = 0.1;  // its part of what is typical
  Client& own = clients_[static_cast<size_t>(client)];
  const Seconds moved = clock_();
  const Seconds took = moved - own.moved;
  typical_ = typical_.value > 0 ? Seconds{(1 - kNew) * typical_.value + kNew * took.value} : took;
  own.moved = moved;
  if (--own.pending > 0) return;
  own.begun = false;
  std::erase(order_, client);
}

bool ClientTurns::admitted(int client) const {
  int before = 0;
  for (const int other : order_) {
    if (other == client) return true;
    if (!halted(other) && ++before == most_) return false;
  }
  return true;
}

bool ClientTurns::halted(int client) const {
  constexpr double kTimes = 5;
  constexpr Seconds kAtLeast{50e-3};
  const Seconds patience = std::max(kAtLeast, Seconds{kTimes * typical_.value});
  const Client& other = clients_[static_cast<size_t>(client)];
  return other.begun && clock_() - other.moved > patience;
}

}  // namespace convoy::comm
