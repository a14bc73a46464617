// A loader whose share of the batch changes between steps.

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/random.hpp"
#include "convoy/data/loader.hpp"

#include "tests/data/loading.hpp"

namespace convoy::data {
namespace {

using testing::Each;

constexpr int64_t kGrains = 8;

/// Eight grains of three.
LoaderOptions moving_options(const job::Augment* augment, int threads) {
  LoaderOptions options = small_options(augment, threads);
  options.batch = kGrains * options.grain;
  options.ahead = 1;
  return options;
}

struct Prepared {
  std::vector<float> inputs;
  std::vector<int32_t> labels;
  bool operator==(const Prepared&) const = default;
};

Prepared copy_of(const Grain& grain) {
  return {.inputs = {grain.inputs.begin(), grain.inputs.end()},
          .labels = {grain.labels.begin(), grain.labels.end()}};
}

/// The stream, from a loader to which nothing happens: by step and grain.
std::vector<std::vector<Prepared>> whole_stream(const Source& source, LoaderOptions options,
                                                int64_t steps) {
  options.grains.reset();
  TrainLoader loader(source, options);
  std::vector<std::vector<Prepared>> stream;
  for (int64_t step = options.first_step; step < options.first_step + steps; ++step) {
    stream.emplace_back();
    for (int64_t grain = 0; grain < kGrains; ++grain) {
      stream.back().push_back(copy_of(loader.get(step, grain)));
      loader.release(step, grain);
    }
  }
  return stream;
}

GrainRange random_range(Stream& random) {
  const int64_t a = random.below(kGrains + 1);
  const int64_t b = random.below(kGrains + 1);
  return {std::min(a, b), std::max(a, b)};
}

/// Most stay or move a little, some change altogether.
std::vector<GrainRange> random_ranges(int64_t steps, uint64_t seed) {
  Stream random(seed, Purpose::test);
  std::vector<GrainRange> ranges{random_range(random)};
  while (std::ssize(ranges) < steps) {
    GrainRange next = ranges.back();
    switch (random.below(4)) {
      case 0:
        next = random_range(random);
        break;
      case 1:
        next.first = std::max<int64_t>(0, next.first - 1);
        break;
      case 2:
        next.last = std::min(kGrains, next.last + 1);
        break;
      default:
        break;
    }
    ranges.push_back(next);
  }
  return ranges;
}

/// Each of `lanes` threads takes its part of a step and compares it with the stream.
void run_step(TrainLoader& loader, int64_t step, GrainRange range, int lanes,
              const std::vector<Prepared>& expected) {
  std::vector<std::thread> threads;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    threads.emplace_back([&, lane] {
      const int64_t last = range.first + range.size() * (lane + 1) / lanes;
      for (int64_t g = range.first + range.size() * lane / lanes; g < last; ++g) {
        EXPECT_EQ(copy_of(loader.get(step, g)), expected[static_cast<size_t>(g)])
            << "grain " << g << " of step " << step;
        loader.release(step, g);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TrainLoader, GivesLanesTheStreamHoweverSharesMove) {
  const Source source = small_source();
  const job::Augment augment{.flip = true, .pad_crop = 2, .cutout = 2};
  constexpr int64_t kSteps = 24;
  LoaderOptions options = moving_options(&augment, 1);
  options.first_step = 3;
  const auto stream = whole_stream(source, options, kSteps);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    options.threads = 1 + static_cast<int>(seed % 4);
    options.ahead = 1 + static_cast<int>(seed % 3);
    options.lanes = 1 + static_cast<int>(seed % 5) / 2;
    // How long before a step its range is known.
    const auto lag = static_cast<int64_t>(seed / 2 % 3);
    const std::vector<GrainRange> ranges = random_ranges(kSteps, seed);
    options.grains = seed % 2 == 0 ? GrainRange{} : ranges[0];
    TrainLoader loader(source, options);
    int64_t known = 0;
    for (int64_t i = 0; i < kSteps; ++i) {
      for (; known <= std::min(i + lag, kSteps - 1); ++known) {
        loader.set_grains(options.first_step + known, ranges[static_cast<size_t>(known)]);
      }
      run_step(loader, options.first_step + i, ranges[static_cast<size_t>(i)], options.lanes,
               stream[static_cast<size_t>(i)]);
      if (HasFailure()) FAIL() << "with seed " << seed;
    }
  }
}

TEST(TrainLoader, PreparesByTheLastShareAheadAndOnlyWhatIsMissing) {
  const auto probe = std::make_shared<Probe>();
  LoaderOptions options = moving_options(nullptr, 2);
  options.grains = {0, 4};
  TrainLoader loader(probe_source(probe), options);
  probe->wait_for_asked(24);  // two shares of 12 samples
  for (int64_t grain = 0; grain < 4; ++grain) {
    loader.get(0, grain);
    loader.release(0, grain);
  }
  probe->wait_for_asked(36);
  loader.set_grains(1, {1, 5});  // grain 4 of steps 1 and 2 is missing
  probe->wait_for_asked(42);
  for (int64_t grain = 1; grain < 5; ++grain) {
    loader.get(1, grain);
    loader.get(2, grain);
  }
  EXPECT_EQ(probe->asked(), 42);
}

TEST(TrainLoader, LeavesAndTakesUpTheStreamWithItsShare) {
  const Source source = small_source();
  LoaderOptions options = moving_options(nullptr, 2);
  options.grains = GrainRange{};
  TrainLoader loader(source, options);
  EXPECT_THROW(loader.get(0, 0), std::logic_error);
  int64_t step = 0;
  for (const GrainRange& range : {GrainRange{}, GrainRange{0, 8}, GrainRange{8, 8},
                                  GrainRange{7, 8}, GrainRange{}, GrainRange{0, 1}}) {
    loader.set_grains(step, range);
    for (int i = 0; i < 3; ++i, ++step) {
      for (int64_t grain = range.first; grain < range.last; ++grain) {
        expect_right(loader.get(step, grain), source, options, step, grain);
        loader.release(step, grain);
      }
    }
  }
}

TEST(TrainLoader, DoesNotGiveALaneAGrainThatBecameUnwantedWhileItWasFilled) {
  for (const int threads : {1, 2, 5}) {
    const auto probe = std::make_shared<Probe>();
    probe->hold();
    LoaderOptions options = moving_options(nullptr, threads);
    options.grains = {0, 4};
    TrainLoader loader(probe_source(probe), options);
    probe->wait_for_readers(threads);
    loader.set_grains(0, {6, 7});
    probe->let_go();
    loader.get(0, 6);
    EXPECT_THROW(loader.get(0, 0), std::logic_error);
    loader.release(0, 6);
    loader.get(1, 6);
  }
}

TEST(TrainLoader, GivesALaneAGrainThatBecameWantedAgainWhileItWasFilled) {
  const auto probe = std::make_shared<Probe>();
  probe->hold();
  LoaderOptions options = moving_options(nullptr, 2);
  options.grains = {0, 4};
  TrainLoader loader(probe_source(probe), options);
  probe->wait_for_readers(2);
  loader.set_grains(0, {});
  loader.set_grains(0, {0, 2});
  probe->let_go();
  for (const int64_t grain : {1, 0}) {
    EXPECT_EQ(loader.get(0, grain).labels[0],
              probe->label(stream_at(3 * grain, probe->size(), options.seed).sample));
    loader.release(0, grain);
  }
}

TEST(TrainLoader, CountsTheWaitForAGrainThatBecameWantedTooLate) {
  const auto probe = std::make_shared<Probe>();
  LoaderOptions options = moving_options(nullptr, 1);
  options.grains = {0, 1};
  options.deadline = {0.05};
  TrainLoader loader(probe_source(probe), options);
  probe->wait_for_asked(6);
  loader.get(0, 0);
  const Seconds before = loader.waited();
  probe->hold();
  loader.release(0, 0);
  loader.set_grains(1, {0, 2});
  EXPECT_THROW(loader.get(1, 1), Error);
  EXPECT_GE(loader.waited() - before, options.deadline);
  probe->let_go();
}

TEST(TrainLoader, CanBeDestroyedAtAnyMomentWhileSharesMove) {
  const Source source = small_source();
  for (int64_t used = 0; used < 30; ++used) {
    const std::vector<GrainRange> ranges = random_ranges(used + 1, static_cast<uint64_t>(used));
    LoaderOptions options = moving_options(nullptr, 1 + static_cast<int>(used % 4));
    options.grains = GrainRange{};
    TrainLoader loader(source, options);
    for (int64_t step = 0; step < used; ++step) {
      const GrainRange range = ranges[static_cast<size_t>(step)];
      loader.set_grains(step, range);
      for (int64_t grain = range.first; grain < range.last; ++grain) {
        loader.get(step, grain);
        loader.release(step, grain);
      }
    }
    loader.set_grains(used, ranges.back());
  }
}

TEST(TrainLoader, RefusesAChangeOfAStepThatALaneHasBegun) {
  TrainLoader loader(small_source(), moving_options(nullptr, 1));
  loader.get(0, 1);
  EXPECT_THROW(loader.set_grains(0, {0, 1}), std::logic_error);
  EXPECT_THROW(loader.set_grains(1, {0, kGrains + 1}), std::logic_error);
  loader.set_grains(1, {0, 1});
  EXPECT_THROW(loader.set_grains(0, {0, 1}), std::logic_error);
}

/// Gives pixels of its own, and notes what is taken.
class AnnouncedFeed final : public Feed {
 public:
  bool is_announced() const override { return true; }
  std::vector<Stored> take(int64_t step, int64_t grain) override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(taken_.insert({step, grain}).second);
    return std::vector<Stored>(
        3, {.bytes = pixels_, .image = {Encoding::raw, 2, 2, 1}, .label = label_of(step, grain)});
  }
  void release(int64_t step, int64_t grain) override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(released_.insert({step, grain}).second);
  }
  void stop() override {}
  static int32_t label_of(int64_t step, int64_t grain) {
    return static_cast<int32_t>(step * kGrains + grain);
  }
  std::set<std::pair<int64_t, int64_t>> taken() const {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(taken_, released_);
    return taken_;
  }

 private:
  mutable std::mutex mutex_;
  std::array<std::byte, 4> pixels_{};
  std::set<std::pair<int64_t, int64_t>> taken_;
  std::set<std::pair<int64_t, int64_t>> released_;
};

TEST(TrainLoader, TakesForLanesFromAnAnnouncedFeedWhatItWasToldAndNothingElse) {
  const auto probe = std::make_shared<Probe>();
  for (uint64_t seed = 0; seed < 12; ++seed) {
    AnnouncedFeed feed;
    LoaderOptions options = moving_options(nullptr, 1 + static_cast<int>(seed % 3));
    options.feed = &feed;
    options.ahead = 2;
    options.grains = GrainRange{};
    const std::vector<GrainRange> ranges = random_ranges(15, seed);
    std::set<std::pair<int64_t, int64_t>> told;
    {
      TrainLoader loader(probe_source(probe), options);
      int64_t known = 0;
      for (int64_t step = 0; step + 2 < std::ssize(ranges); ++step) {
        for (; known <= step + static_cast<int64_t>(seed % 3); ++known) {
          const GrainRange range = ranges[static_cast<size_t>(known)];
          loader.set_grains(known, range);
          for (int64_t g = range.first; g < range.last; ++g) told.insert({known, g});
        }
        const GrainRange range = ranges[static_cast<size_t>(step)];
        for (int64_t g = range.first; g < range.last; ++g) {
          EXPECT_THAT(loader.get(step, g).labels, Each(AnnouncedFeed::label_of(step, g)));
          loader.release(step, g);
        }
      }
      EXPECT_THROW(loader.get(known, 0), std::logic_error);
    }
    EXPECT_TRUE(std::ranges::includes(told, feed.taken()));
  }
}

TEST(TrainLoader, RefusesToGuessWhatToTakeFromAnAnnouncedFeed) {
  AnnouncedFeed feed;
  LoaderOptions options = moving_options(nullptr, 1);
  options.feed = &feed;
  const Source source = probe_source(std::make_shared<Probe>());
  EXPECT_THROW(TrainLoader(source, options), std::logic_error);
  options.grains = {0, 1};
  EXPECT_THROW(TrainLoader(source, options), std::logic_error);
}

}  // namespace
}  // namespace convoy::data
