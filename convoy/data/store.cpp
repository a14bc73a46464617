#include "convoy/data/store.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "convoy/base/error.hpp"
#include "convoy/data/meeting.hpp"
#include "convoy/data/prepare.hpp"

namespace convoy::data {
namespace {

Shares shares_of(const StoreOptions& options) {
  Shares shares{.samples = options.samples,
                .batch = options.batch,
                .grain = options.grain,
                .seed = options.seed,
                .ranges = options.ranges};
  if (shares.ranges.empty()) shares.ranges = {{.first = 0, .last = options.batch / options.grain}};
  shares.check();
  return shares;
}

}  // namespace

struct Store::Parts {
  Parts(std::shared_ptr<const PackedFile> from, int64_t first, comm::Communicator* world,
        const StoreOptions& options)
      : file(std::move(from)),
        first_record(first),
        shares(shares_of(options)),
        announced(options.announced),
        next_announced(options.first_step),
        held(file, first, options.samples) {
    const int workers = world != nullptr ? world->size() : 1;
    const int worker = world != nullptr ? world->rank() : 0;
    check(workers == shares.workers(), "each worker has a range of grains");
    const DataGroup group = data_group(worker, workers, options.copies);
    if (announced && options.copies < workers) lag = options.ahead - 1;
    std::unique_ptr<comm::Communicator> all;
    std::unique_ptr<comm::Communicator> members;
    if (world != nullptr) {
      all = world->split(0);
      members = world->split(group.first);
    }

    const int64_t era = era_of(options.first_step, shares, options.shuffle_epochs);
    Holders holders = of_era(held.lengths(), shares, group, era, options.shuffle_epochs);
    std::vector<int64_t> own;
    for (int64_t s = 0; s < options.samples; ++s) {
      if (holders[static_cast<size_t>(s)] == worker - group.first) own.push_back(s);
    }
    read(own, options, all.get());
    if (group.size() == 1) return;
    exchange = std::make_unique<RecordExchange>(held, std::move(members), shares, group,
                                                std::move(holders),
                                                ExchangeOptions{
                                                    .first_step = options.first_step,
                                                    .announced = options.announced,
                                                    .shuffle_epochs = options.shuffle_epochs,
                                                    .ahead = options.ahead,
                                                    .segment = options.segment,
                                                    .deadline = options.deadline,
                                                });
  }

  /// Returns when all workers have read their part; throws if one of them cannot.
  void read(const std::vector<int64_t>& own, const StoreOptions& options, comm::Communicator* all) {
    std::exception_ptr problem;
    try {
      bad = held.read(
          own,
          {.threads = options.threads, .skip_bad = options.skip_bad, .progress = options.progress});
    } catch (...) {
      problem = std::current_exception();
    }
    std::string unwell;
    const std::string path = file->path().string();
    try {
      if (all != nullptr) unwell = meet(*all, !problem, options.load_deadline, "reading " + path);
    } catch (const comm::TimeoutError&) {
      if (!problem) throw;
    }
    if (problem) std::rethrow_exception(problem);
    if (!unwell.empty()) refuse("{} could not be read by {}", path, unwell);
  }

  std::shared_ptr<const PackedFile> file;
  int64_t first_record;
  Shares shares;
  bool announced;
  int64_t next_announced;  // step
  int lag = 0;
  HeldRecords held;
  std::vector<BadRecord> bad;
  std::unique_ptr<RecordExchange> exchange;  // null: everything is here
};

Store::Store(std::shared_ptr<const PackedFile> file, int64_t first_record,
             comm::Communicator* world, const StoreOptions& options)
    : parts_(std::make_unique<Parts>(std::move(file), first_record, world, options)) {}

Store::~Store() = default;

void Store::announce(int64_t step, std::vector<GrainRange> ranges) {
  Parts& p = *parts_;
  check(p.announced && step == p.next_announced, "steps are announced in order, if they are to be");
  Shares shares = p.shares;
  shares.ranges = std::move(ranges);
  check(shares.workers() == p.shares.workers(), "each worker has a range of grains");
  shares.check();
  ++p.next_announced;
  if (p.exchange) p.exchange->announce(std::move(shares));
}

int Store::lag() const {
  return parts_->lag;
}

bool Store::is_announced() const {
  return parts_->announced && parts_->exchange != nullptr;
}

std::vector<Stored> Store::take(int64_t step, int64_t grain) {
  Parts& p = *parts_;
  std::vector<RecordBytes> fetched;
  if (p.exchange) fetched = p.exchange->take(step, grain);
  std::vector<Stored> samples;
  for (int64_t k = 0; k < p.shares.grain; ++k) {
    const int64_t position = step * p.shares.batch + grain * p.shares.grain + k;
    const int64_t sample = stream_at(position, p.shares.samples, p.shares.seed).sample;
    const RecordBytes bytes = p.exchange ? fetched[static_cast<size_t>(k)] : p.held.get(sample);
    const PackedRecord record = p.file->record(p.first_record + sample);
    samples.push_back({.bytes = {bytes.get(), static_cast<size_t>(record.length)},
                       .image = record.image,
                       .label = record.label});
  }
  return samples;
}

void Store::release(int64_t step, int64_t grain) {
  if (parts_->exchange) parts_->exchange->release(step, grain);
}

void Store::stop() {
  if (parts_->exchange) parts_->exchange->stop();
}

void Store::finish() {
  if (parts_->exchange) parts_->exchange->finish();
}

Bytes Store::held() const {
  return parts_->held.bytes();
}

StoreCounters Store::counters() const {
  return parts_->exchange ? parts_->exchange->counters() : StoreCounters{};
}

const std::vector<BadRecord>& Store::bad_records() const {
  return parts_->bad;
}

Bytes Store::memory(const PackedFile& file, int64_t first_record, const StoreOptions& options) {
  const Shares shares = shares_of(options);
  std::vector<int64_t> lengths;
  for (int64_t s = 0; s < options.samples; ++s) {
    lengths.push_back(file.record(first_record + s).length);
  }
  const int64_t all = file.length(first_record, first_record + options.samples);
  const double mean = static_cast<double>(all) / static_cast<double>(options.samples);

  const int64_t every = options.shuffle_epochs;
  const int64_t era = era_of(options.first_step, shares, every);
  Bytes most = most_held(lengths, shares, options.copies, era, every);
  if (every > 0) most = std::max(most, most_held(lengths, shares, options.copies, era + 1, every));
  const auto records = static_cast<int64_t>(static_cast<double>(most.value) / mean);
  Bytes memory =
      most + records * HeldRecords::kPerRecord + options.samples * HeldRecords::kPerSample;
  if (options.copies == shares.workers()) return memory;

  int64_t share = 0;
  for (const GrainRange& range : shares.ranges) share = std::max(share, range.size());
  // A member sends about as much as it receives.
  memory += Bytes{
      static_cast<int64_t>(2 * mean * static_cast<double>(options.ahead * share * options.grain))};
  if (every > 0) memory += options.segment;
  return memory;
}

}  // namespace convoy::data
