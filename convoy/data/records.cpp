#include "convoy/data/records.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "convoy/base/error.hpp"

namespace convoy::data {
namespace {

int64_t bytes_of(const HeldRecords& held, std::span<const int64_t> samples) {
  return std::transform_reduce(samples.begin(), samples.end(), int64_t{0}, std::plus<>(),
                               [&](int64_t sample) { return held.length(sample); });
}

/// What the threads that read have in common.
struct Reading {
  std::atomic<size_t> next{0};
  std::mutex mutex;  // guards what follows
  int64_t loaded = 0;
  Seconds told = now();
  std::vector<BadRecord> bad;
  std::exception_ptr error;
};

constexpr Seconds kBetweenNews{0.1};

}  // namespace

std::shared_ptr<std::byte> make_bytes(int64_t bytes) {
  auto room = std::make_shared_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
  return {room, room.get()};
}

HeldRecords::HeldRecords(std::shared_ptr<const PackedFile> file, int64_t first_record,
                         int64_t samples)
    : file_(std::move(file)), first_record_(first_record), held_(static_cast<size_t>(samples)) {
  lengths_.reserve(static_cast<size_t>(samples));
  for (int64_t s = 0; s < samples; ++s) lengths_.push_back(file_->record(first_record + s).length);
}

std::vector<BadRecord> HeldRecords::read(std::span<const int64_t> samples,
                                         const ReadOptions& options) {
  Reading reading;
  const Bytes all{bytes_of(*this, samples)};
  const auto read_one = [&](int64_t sample) {
    const int64_t record = first_record_ + sample;
    const std::shared_ptr<std::byte> room = make_bytes(length(sample));
    const std::span<std::byte> bytes(room.get(), static_cast<size_t>(length(sample)));
    file_->read(record, record + 1, bytes);
    std::string complaint;
    try {
      file_->verify(record, bytes);
    } catch (const InputError& error) {
      if (!options.skip_bad) throw;
      complaint = error.what();
    }
    const std::lock_guard lock(reading.mutex);
    put(sample, room);
    if (!complaint.empty()) reading.bad.push_back({sample, complaint});
    reading.loaded += length(sample);
    if (options.progress && now() - reading.told > kBetweenNews) {
      options.progress({reading.loaded}, all);
      reading.told = now();
    }
  };
  const auto run = [&] {
    try {
      for (size_t i = reading.next++; i < samples.size(); i = reading.next++) read_one(samples[i]);
    } catch (...) {
      reading.next = samples.size();
      const std::lock_guard lock(reading.mutex);
      if (!reading.error) reading.error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < options.threads; ++i) threads.emplace_back(run);
    run();
  }
  if (reading.error) std::rethrow_exception(reading.error);
  if (options.progress) options.progress({reading.loaded}, all);
  std::sort(reading.bad.begin(), reading.bad.end(),
            [](const BadRecord& a, const BadRecord& b) { return a.sample < b.sample; });
  return std::move(reading.bad);
}

RecordBytes HeldRecords::get(int64_t sample) const {
  check(has(sample), "a record is where the map of holders says");
  return held_[static_cast<size_t>(sample)];
}

void HeldRecords::put(int64_t sample, RecordBytes bytes) {
  check(!has(sample), "a record is put in its place once");
  held_[static_cast<size_t>(sample)] = std::move(bytes);
  bytes_ += length(sample);
}

void HeldRecords::drop(int64_t sample) {
  check(has(sample), "only a record that is here is dropped");
  held_[static_cast<size_t>(sample)].reset();
  bytes_ -= length(sample);
}

int64_t OutgoingRecords::bytes() const {
  return bytes_of(held_, samples_);
}

void OutgoingRecords::give(std::span<std::byte> piece) {
  while (!piece.empty()) {
    const int64_t sample = samples_.at(next_);
    const RecordBytes record = held_.get(sample);
    const auto count = std::min(piece.size(), static_cast<size_t>(held_.length(sample) - given_));
    std::memcpy(piece.data(), record.get() + given_, count);
    piece = piece.subspan(count);
    given_ += static_cast<int64_t>(count);
    if (given_ < held_.length(sample)) continue;
    held_.drop(sample);
    given_ = 0;
    ++next_;
  }
}

int64_t IncomingRecords::bytes() const {
  return bytes_of(held_, samples_);
}

void IncomingRecords::take(std::span<const std::byte> piece) {
  while (!piece.empty()) {
    const int64_t sample = samples_.at(next_);
    if (!begun_) begun_ = make_bytes(held_.length(sample));
    const auto count = std::min(piece.size(), static_cast<size_t>(held_.length(sample) - taken_));
    std::memcpy(begun_.get() + taken_, piece.data(), count);
    piece = piece.subspan(count);
    taken_ += static_cast<int64_t>(count);
    if (taken_ < held_.length(sample)) continue;
    held_.put(sample, std::exchange(begun_, nullptr));
    taken_ = 0;
    ++next_;
  }
}

}  // namespace convoy::data
