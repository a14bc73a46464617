#pragma once
// Messages between the ranks of a job. One contract, two makers: MPI (mpi.hpp) and threads of one
// process (thread_world.hpp), which tests use.
//
// Sending and receiving never block: they start something, and what they return says when it is
// done. Whoever waits does it with a deadline (task.hpp). Messages between two ranks with the same
// tag arrive in the order in which they were sent. One thread at a time may use a communicator;
// different threads may use different ones at the same time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy::comm {

/// A send or receive that was started. Its bytes belong to it until it is done; a request that is
/// given up before that is cancelled where possible. It does not outlive its communicator.
class Request {
 public:
  virtual ~Request() = default;
  /// True once it is done, and ever after. Never blocks; throws Error if it cannot be done any
  /// more.
  virtual bool done() = 0;
  /// "receiving 64 KiB from rank 3 (host-b)", for messages about what is missing.
  virtual std::string describe() const = 0;
};

/// What a rank has sent.
struct Traffic {
  int64_t messages = 0;
  Bytes bytes;
  bool operator==(const Traffic&) const = default;
  Traffic& operator+=(const Traffic& other) {
    messages += other.messages;
    bytes += other.bytes;
    return *this;
  }
  friend Traffic operator-(const Traffic& a, const Traffic& b) {
    return {a.messages - b.messages, a.bytes - b.bytes};
  }
};

/// Memory that all ranks of a communicator see, a part for each; only within one node.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  /// Rank `rank`'s part, zero at first, aligned to 64 bytes.
  virtual std::span<std::byte> part(int rank) const = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The host of each rank.
  virtual const std::vector<std::string>& hosts() const = 0;

  virtual std::unique_ptr<Request> send(int to, int tag, std::span<const std::byte> bytes) = 0;
  /// Like send, but done only when the other side has it, or has at least begun to receive it
  /// where it is long.
  virtual std::unique_ptr<Request> deliver(int to, int tag, std::span<const std::byte> bytes) = 0;
  /// The message must have exactly this length.
  virtual std::unique_ptr<Request> receive(int from, int tag, std::span<std::byte> bytes) = 0;

  // The next two block until all ranks have come to them, for no longer than patience().
  /// Collective over all ranks: those with the same color get a communicator of their own, in the
  /// order of their ranks here, and as patient.
  virtual std::unique_ptr<Communicator> split(int color) = 0;
  /// Collective over all ranks, which must be on one node.
  virtual std::unique_ptr<SharedMemory> share(Bytes each) = 0;

  Seconds patience() const { return patience_; }
  void set_patience(Seconds patience) { patience_ = patience; }

  /// Sent since the beginning, for comparing costs with what they were said to be.
  const Traffic& sent() const { return sent_; }

 protected:
  void count(size_t bytes) {
    ++sent_.messages;
    sent_.bytes += Bytes{static_cast<int64_t>(bytes)};
  }

 private:
  Traffic sent_;
  Seconds patience_{600};
};

/// Typed views, for the common case.
inline std::span<const std::byte> bytes_of(std::span<const float> values) {
  return std::as_bytes(values);
}
inline std::span<std::byte> bytes_of(std::span<float> values) {
  return std::as_writable_bytes(values);
}

}  // namespace convoy::comm
