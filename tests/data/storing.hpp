#pragma once
// What the tests of the store share.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/data/prepare.hpp"
#include "convoy/data/store.hpp"

#include "tests/data/numbered.hpp"

namespace convoy::data {

constexpr int64_t kSamples = 37;

/// Grains as equal as can be.
inline std::vector<GrainRange> equal_ranges(int workers, int64_t grains) {
  std::vector<GrainRange> ranges;
  for (int64_t w = 0; w < workers; ++w) {
    ranges.push_back({w * grains / workers, (w + 1) * grains / workers});
  }
  return ranges;
}

/// Five grains of two samples; nothing divides anything.
inline StoreOptions small_options(int workers) {
  StoreOptions options;
  options.samples = kSamples;
  options.batch = 10;
  options.grain = 2;
  options.ranges = equal_ranges(workers, 5);
  options.seed = 4;
  options.segment = Bytes{64};  // less than a record
  options.deadline = {20};
  options.load_deadline = {20};
  return options;
}

inline std::string text_of(const StoreOptions& options) {
  return fmt::format("{} workers, {} copies, shuffles every {} epochs, from step {}",
                     options.ranges.size(), options.copies, options.shuffle_epochs,
                     options.first_step);
}

/// How often each sample of the stream was seen, by (epoch, sample).
class Visits {
 public:
  void add(StreamSample which) {
    const std::lock_guard lock(mutex_);
    ++times_[{which.epoch, which.sample}];
  }
  /// Each sample of every whole epoch once, and those of the others at most once.
  void expect_each_once(int64_t first_position, int64_t last_position, int64_t samples) const {
    EXPECT_EQ(static_cast<int64_t>(times_.size()), last_position - first_position);
    for (const auto& [which, times] : times_) {
      EXPECT_EQ(times, 1) << "sample " << which.second << " of epoch " << which.first;
    }
    for (int64_t epoch = (first_position + samples - 1) / samples;
         (epoch + 1) * samples <= last_position; ++epoch) {
      for (int64_t s = 0; s < samples; ++s) {
        EXPECT_EQ(times_.count({epoch, s}), 1U) << "sample " << s << " of epoch " << epoch;
      }
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, int> times_;
};

inline GrainRange own_range(const StoreOptions& options, int worker) {
  return options.ranges[static_cast<size_t>(worker)];
}

/// Takes and releases all grains of a worker in a step, and looks at every byte.
inline void train_on(Store& store, const NumberedFile& file, const StoreOptions& options,
                     GrainRange own, int64_t step, Visits& visits) {
  for (int64_t grain = own.first; grain < own.last; ++grain) {
    const std::vector<Stored> samples = store.take(step, grain);
    ASSERT_EQ(static_cast<int64_t>(samples.size()), options.grain);
    for (int64_t k = 0; k < options.grain; ++k) {
      const int64_t position = step * options.batch + grain * options.grain + k;
      const StreamSample which = stream_at(position, options.samples, options.seed);
      const Stored& stored = samples[static_cast<size_t>(k)];
      ASSERT_EQ(static_cast<int64_t>(stored.bytes.size()), file.length(which.sample));
      EXPECT_TRUE(is_numbered(stored.bytes, which.sample))
          << "step " << step << ", grain " << grain << ", sample " << which.sample;
      EXPECT_EQ(stored.label, NumberedFile::label(which.sample));
      EXPECT_EQ(stored.image.width, file.length(which.sample));
      visits.add(which);
    }
    store.release(step, grain);
  }
}

using RangesOf = std::function<std::vector<GrainRange>(int64_t step)>;
inline RangesOf fixed_ranges(const StoreOptions& options) {
  return [ranges = options.ranges](int64_t) { return ranges; };
}

/// What the counters must be after all steps before `end`.
inline StoreCounters expected_counters(const NumberedFile& file, const StoreOptions& options,
                                       int worker, int64_t end, const RangesOf& ranges_of) {
  const Shares shares{options.samples, options.batch, options.grain, options.seed, options.ranges};
  const DataGroup group = data_group(worker, shares.workers(), options.copies);
  const int member = worker - group.first;
  StoreCounters c;
  int64_t era = era_of(options.first_step, shares, options.shuffle_epochs);
  Holders holders = of_era(file.lengths(), shares, group, era, options.shuffle_epochs);
  for (int64_t step = options.first_step; step < end; ++step) {
    if (era_of(step, shares, options.shuffle_epochs) != era) {
      era = era_of(step, shares, options.shuffle_epochs);
      const Holders after = of_era(file.lengths(), shares, group, era, options.shuffle_epochs);
      ++c.shuffles;
      for (int64_t s = 0; s < options.samples; ++s) {
        const auto i = static_cast<size_t>(s);
        if (after[i] != member || holders[i] == member) continue;
        ++c.moved_records;
        c.moved += Bytes{file.length(s)};
      }
      holders = after;
    }
    Shares of_step = shares;
    of_step.ranges = ranges_of(step);
    const StepNeeds needs = needs_of(step, of_step, group, member, holders);
    for (size_t i = 0; i < needs.mine.size(); ++i) {
      if (needs.holders[i] == member) continue;
      ++c.fetched_records;
      c.fetched += Bytes{file.length(needs.mine[i])};
    }
  }
  return c;
}

inline bool are_equal(const StoreCounters& a, const StoreCounters& b) {
  return a.fetched_records == b.fetched_records && a.fetched == b.fetched &&
         a.shuffles == b.shuffles && a.moved_records == b.moved_records && a.moved == b.moved;
}

}  // namespace convoy::data
