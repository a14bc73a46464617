#include "convoy/comm/gate.hpp"

namespace convoy::comm {

Task Gate::enter(Bytes bytes, int priority) {
  const std::pair key(priority, arrivals_++);
  waiting_[key] = bytes;
  co_await Until(
      [this, key, bytes] {
        if (waiting_.begin()->first != key) return false;
        return inside_.value == 0 || (inside_ + bytes).value <= most_.value;
      },
      "for its turn to send");
  waiting_.erase(key);
  inside_ += bytes;
}

}  // namespace convoy::comm
