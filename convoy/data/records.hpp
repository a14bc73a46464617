#pragma once
// Records in the memory of one worker, each in an allocation of its own, so that they can come and
// go one by one.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/data/packed.hpp"

namespace convoy::data {

/// The bytes of a record, wherever they lie; they stay for as long as somebody has this.
using RecordBytes = std::shared_ptr<const std::byte>;

/// A record that was read with a wrong checksum.
struct BadRecord {
  int64_t sample = 0;
  std::string message;  ///< names file, record and source
  bool operator==(const BadRecord&) const = default;
};

struct ReadOptions {
  int threads = 1;
  bool skip_bad = false;  ///< keep records whose checksum is wrong, and list them
  /// How much is here; one call at a time, from any of the threads.
  std::function<void(Bytes loaded, Bytes all)> progress;
};

/// Sample i is record first_record + i of the file. Not thread-safe, but for bytes().
class HeldRecords {
 public:
  HeldRecords(std::shared_ptr<const PackedFile> file, int64_t first_record, int64_t samples);

  const std::vector<int64_t>& lengths() const { return lengths_; }
  int64_t length(int64_t sample) const { return lengths_[static_cast<size_t>(sample)]; }

  /// Reads these samples from the file and checks their checksums. Returns those that are bad, in
  /// the order of samples; throws InputError for one of them unless they are to be skipped.
  std::vector<BadRecord> read(std::span<const int64_t> samples, const ReadOptions& options);

  bool has(int64_t sample) const { return held_[static_cast<size_t>(sample)] != nullptr; }
  RecordBytes get(int64_t sample) const;
  void put(int64_t sample, RecordBytes bytes);
  /// The memory is free once nobody else has the bytes.
  void drop(int64_t sample);
  /// Of all records held.
  Bytes bytes() const { return {bytes_.load(std::memory_order_relaxed)}; }

  /// What a record takes besides its bytes, and what a sample takes that is not held.
  static constexpr Bytes kPerRecord{48};
  static constexpr Bytes kPerSample{32};

 private:
  std::shared_ptr<const PackedFile> file_;
  int64_t first_record_;
  std::vector<int64_t> lengths_;
  std::vector<RecordBytes> held_;  // by sample; null: elsewhere
  std::atomic<int64_t> bytes_{0};
};

/// Room for `bytes`, shared.
std::shared_ptr<std::byte> make_bytes(int64_t bytes);

/// One side of the way of records from worker to worker: whole records, one after the other, as
/// one stream of bytes that is cut anywhere. A record is dropped once it is given away.
class OutgoingRecords {
 public:
  OutgoingRecords(HeldRecords& held, std::vector<int64_t> samples)
      : held_(held), samples_(std::move(samples)) {}
  int64_t bytes() const;  ///< in all
  void give(std::span<std::byte> piece);

 private:
  HeldRecords& held_;
  std::vector<int64_t> samples_;
  size_t next_ = 0;
  int64_t given_ = 0;  // of the next one
};

/// The other side.
class IncomingRecords {
 public:
  IncomingRecords(HeldRecords& held, std::vector<int64_t> samples)
      : held_(held), samples_(std::move(samples)) {}
  int64_t bytes() const;
  int64_t records() const { return static_cast<int64_t>(samples_.size()); }
  void take(std::span<const std::byte> piece);

 private:
  HeldRecords& held_;
  std::vector<int64_t> samples_;
  size_t next_ = 0;
  std::shared_ptr<std::byte> begun_;
  int64_t taken_ = 0;  // of the one begun
};

}  // namespace convoy::data
