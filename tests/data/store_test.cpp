#include "convoy/data/store.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <limits>
#include <numeric>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/comm/task.hpp"
#include "convoy/comm/thread_world.hpp"
#include "convoy/data/loader.hpp"
#include "convoy/data/prepare.hpp"

#include "tests/data/storing.hpp"

namespace convoy::data {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

/// What a worker's store says in the end.
struct Ended {
  StoreCounters counters;
  Bytes held;
};

/// All workers train for `steps` and end. `between(store, worker, step)` is called after each step.
using Between = std::function<void(Store& store, int worker, int64_t step)>;
std::vector<Ended> train(const NumberedFile& file, const StoreOptions& options, int64_t steps,
                         const Between& between = {}) {
  SCOPED_TRACE(text_of(options));
  Visits visits;
  std::vector<Ended> ended(options.ranges.size());
  std::barrier trained(static_cast<ptrdiff_t>(options.ranges.size()));
  comm::run_as_threads(static_cast<int>(options.ranges.size()), [&](comm::Communicator& c) {
    Store store(file.open(), NumberedFile::kFirst, &c, options);
    for (int64_t step = options.first_step; step < options.first_step + steps; ++step) {
      train_on(store, file, options, own_range(options, c.rank()), step, visits);
      if (between) between(store, c.rank(), step);
    }
    trained.arrive_and_wait();
    store.finish();
    ended[static_cast<size_t>(c.rank())] = {store.counters(), store.held()};
  });
  visits.expect_each_once(options.first_step * options.batch,
                          (options.first_step + steps) * options.batch, options.samples);
  return ended;
}

// ---- the right records, once -------------------------------------------------------------------

TEST(Store, BringsEverySampleOnceToAnyNumberOfWorkers) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  for (int workers = 1; workers <= 5; ++workers) {
    for (int copies = 1; copies <= workers; ++copies) {
      for (const int64_t shuffle_epochs : {0, 1, 2}) {
        StoreOptions options = small_options(workers);
        options.copies = copies;
        options.shuffle_epochs = shuffle_epochs;
        train(file, options, 17);  // over four epoch borders
      }
    }
  }
}

TEST(Store, ServesAWorkerWithoutAWorld) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  StoreOptions options = small_options(1);
  for (const bool said : {true, false}) {
    options.ranges = equal_ranges(1, 5);
    StoreOptions given = options;
    if (!said) given.ranges.clear();
    Store store(file.open(), NumberedFile::kFirst, nullptr, given);
    Visits visits;
    for (int64_t step = 0; step < 8; ++step) train_on(store, file, options, {0, 5}, step, visits);
    visits.expect_each_once(0, 80, kSamples);
    store.finish();
  }
}

TEST(Store, ServesUnequalSharesAndWorkersWithoutGrains) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  const std::vector<std::vector<GrainRange>> cuts{
      {{0, 0}, {0, 5}},
      {{0, 5}, {5, 5}},
      {{0, 1}, {1, 1}, {1, 5}},
      {{4, 5}, {0, 4}, {4, 4}},
      {{0, 0}, {0, 0}, {0, 1}, {1, 5}, {5, 5}},
  };
  for (const std::vector<GrainRange>& ranges : cuts) {
    for (int copies = 1; copies <= static_cast<int>(ranges.size()); ++copies) {
      for (const int64_t shuffle_epochs : {0, 1}) {
        StoreOptions options = small_options(static_cast<int>(ranges.size()));
        options.ranges = ranges;
        options.copies = copies;
        options.shuffle_epochs = shuffle_epochs;
        train(file, options, 13);
      }
    }
  }
}

TEST(Store, ServesBatchesLongerThanAnEpoch) {
  const NumberedFile file(mixed_lengths(3, 50));
  for (const int64_t shuffle_epochs : {0, 1, 2}) {
    StoreOptions options = small_options(4);
    options.samples = 3;
    options.shuffle_epochs = shuffle_epochs;
    train(file, options, 6);
  }
}

TEST(Store, UsesOnlyTheFirstSamplesIfTold) {
  const NumberedFile file(mixed_lengths(kSamples, 50));
  StoreOptions options = small_options(3);
  options.samples = 23;
  options.shuffle_epochs = 1;
  const std::vector<Ended> ended = train(file, options, 9);
  int64_t held = 0;
  for (const Ended& worker : ended) held += worker.held.value;
  EXPECT_EQ(held, std::accumulate(file.lengths().begin(), file.lengths().begin() + 23, int64_t{0}));
}

TEST(Store, TakesUpTheStreamAtAnyStep) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  for (const int64_t first_step : {1, 4, 7, 1000}) {
    for (const int64_t shuffle_epochs : {0, 1, 2}) {
      StoreOptions options = small_options(3);
      options.first_step = first_step;
      options.shuffle_epochs = shuffle_epochs;
      train(file, options, 8);
    }
  }
}

TEST(Store, LetsRecordsChangeHandsInManySegments) {
  const NumberedFile file(mixed_lengths(kSamples, 3000));
  for (const int64_t segment : {64, 4000, 1 << 20}) {
    StoreOptions options = small_options(3);
    options.shuffle_epochs = 1;
    options.segment = Bytes{segment};
    for (const Ended& worker : train(file, options, 9))
      EXPECT_GT(worker.counters.moved.value, 1000);
  }
}

TEST(Store, HoldsOneStepAheadAsWellAsMany) {
  const NumberedFile file(mixed_lengths(kSamples, 50));
  for (const int ahead : {1, 2, 9}) {
    StoreOptions options = small_options(4);
    options.ahead = ahead;
    options.shuffle_epochs = 1;
    train(file, options, 12);
  }
}

// Through a loader, as in training: its threads take ahead of what is used, and are stopped
// wherever they are.
TEST(Store, FeedsALoaderWithWhatTheFileHas) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  job::Data data = files("packed", file.path().string());
  data.shape = {1, 2, 3};
  const Source source = open(data);
  for (const int threads : {1, 3}) {
    for (const int64_t steps : {0, 1, 2, 3, 9}) {
      comm::run_as_threads(3, [&](comm::Communicator& c) {
        StoreOptions options = small_options(3);
        options.shuffle_epochs = 1;
        options.deadline = {10};
        Store store(source.packed.file, source.packed.first, &c, options);
        const GrainRange own = own_range(options, c.rank());
        LoaderOptions loading;
        loading.batch = options.batch;
        loading.grain = options.grain;
        loading.grains = own;
        loading.seed = options.seed;
        loading.threads = threads;
        loading.feed = &store;
        std::optional<TrainLoader> loader(std::in_place, source, loading);
        std::vector<float> expected(6);
        for (int64_t step = 0; step < steps; ++step) {
          for (int64_t grain = own.first; grain < own.last; ++grain) {
            const Grain got = loader->get(step, grain);
            for (int64_t k = 0; k < options.grain; ++k) {
              const StreamSample which = stream_at(step * options.batch + grain * options.grain + k,
                                                   kSamples, options.seed);
              prepare(source, *source.train, which, options.seed, nullptr, expected);
              EXPECT_THAT(got.inputs.subspan(static_cast<size_t>(6 * k), 6),
                          testing::ElementsAreArray(expected));
            }
            loader->release(step, grain);
          }
        }
        loader.reset();
        store.finish();
      });
    }
  }
}

// ---- who has what -------------------------------------------------------------------------------

TEST(Store, HoldsEachSampleOnceForEveryCopy) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  const int64_t all = std::accumulate(file.lengths().begin(), file.lengths().end(), int64_t{0});
  for (const int copies : {1, 2, 4}) {
    for (const int64_t shuffle_epochs : {0, 1}) {
      StoreOptions options = small_options(4);
      options.copies = copies;
      options.shuffle_epochs = shuffle_epochs;
      int64_t held = 0;
      for (const Ended& worker : train(file, options, 9)) held += worker.held.value;
      EXPECT_EQ(held, copies * all) << text_of(options);
    }
  }
}

TEST(Store, CountsWhatCameToTheWorker) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  for (const int64_t shuffle_epochs : {0, 1, 2}) {
    for (const int64_t first_step : {0, 5}) {
      StoreOptions options = small_options(4);
      options.ranges = {{0, 1}, {1, 3}, {3, 3}, {3, 5}};
      options.shuffle_epochs = shuffle_epochs;
      options.first_step = first_step;
      constexpr int64_t kSteps = 12;
      const std::vector<Ended> ended = train(file, options, kSteps);
      // Some steps more were begun, the same for all: as many as one may be ahead, and a worker
      // without grains as many again.
      int matching = 0;
      for (int64_t end = first_step + kSteps; end <= first_step + kSteps + 2 * options.ahead;
           ++end) {
        bool all = true;
        for (int worker = 0; worker < 4; ++worker) {
          all = all &&
                are_equal(ended[static_cast<size_t>(worker)].counters,
                          expected_counters(file, options, worker, end, fixed_ranges(options)));
        }
        matching += all;
      }
      EXPECT_GE(matching, 1) << text_of(options);
    }
  }
}

TEST(Store, HasNothingToFetchForWhatAShuffleBrought) {
  const NumberedFile file(mixed_lengths(40, 150));
  StoreOptions options = small_options(4);
  options.samples = 40;  // an epoch is four steps
  options.first_step = 4;
  options.shuffle_epochs = 1;
  for (const Ended& worker : train(file, options, 8)) {
    EXPECT_EQ(worker.counters.fetched_records, 0);
    EXPECT_GE(worker.counters.shuffles, 1);
    EXPECT_GT(worker.counters.moved_records, 0);
  }
}

TEST(Store, FetchesNothingWhereEverybodyHasAll) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  StoreOptions options = small_options(3);
  options.copies = 3;
  options.shuffle_epochs = 1;
  for (const Ended& worker : train(file, options, 9)) {
    EXPECT_TRUE(are_equal(worker.counters, {}));
  }
}

TEST(Store, TakesTheMemoryItSays) {
  const NumberedFile file(mixed_lengths(400, 4000));
  for (const int copies : {1, 2, 4}) {
    for (const int64_t shuffle_epochs : {0, 1}) {
      StoreOptions options = small_options(4);
      options.samples = 400;
      options.copies = copies;
      options.shuffle_epochs = shuffle_epochs;
      options.segment = Bytes{1 << 14};
      const Bytes said = Store::memory(*file.open(), NumberedFile::kFirst, options);
      std::atomic<int64_t> most{0};
      train(file, options, 42, [&](const Store& store, int, int64_t) {
        int64_t seen = most;
        while (seen < store.held().value && !most.compare_exchange_weak(seen, store.held().value)) {
        }
      });
      EXPECT_GE(said.value, most.load()) << text_of(options);
      EXPECT_LE(said.value, 2 * most.load()) << text_of(options);
    }
  }
}

// ---- the end ------------------------------------------------------------------------------------

TEST(Store, EndsAtAnyStepWithWorkersAtDifferentOnes) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  for (const int64_t shuffle_epochs : {0, 1}) {
    for (int64_t steps = 0; steps <= 8; ++steps) {
      StoreOptions options = small_options(4);
      options.shuffle_epochs = shuffle_epochs;
      std::barrier met(4);
      Visits visits;
      comm::run_as_threads(4, [&](comm::Communicator& c) {
        Store store(file.open(), NumberedFile::kFirst, &c, options);
        // Nobody can be further ahead of another than this.
        const int64_t own = steps + c.rank() % options.ahead;
        for (int64_t step = 0; step < own; ++step) {
          train_on(store, file, options, own_range(options, c.rank()), step, visits);
        }
        met.arrive_and_wait();
        store.finish();
        store.finish();  // nothing more
        EXPECT_THROW(store.take(own, options.ranges[static_cast<size_t>(c.rank())].first), Error);
      });
    }
  }
}

TEST(Store, EndsWithGrainsTakenAndNotReleased) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  const StoreOptions options = small_options(3);
  comm::run_as_threads(3, [&](comm::Communicator& c) {
    Store store(file.open(), NumberedFile::kFirst, &c, options);
    const GrainRange own = own_range(options, c.rank());
    const std::vector<Stored> samples = store.take(0, own.first);
    store.finish();
    const StreamSample which = stream_at(own.first * options.grain, kSamples, options.seed);
    EXPECT_TRUE(is_numbered(samples.front().bytes, which.sample));
    store.release(0, own.first);
  });
}

TEST(Store, CanBeGivenUpAtAnyStep) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  for (int64_t steps = 0; steps < 8; ++steps) {
    StoreOptions options = small_options(3);
    options.shuffle_epochs = 1;
    std::barrier met(3);
    Visits visits;
    comm::run_as_threads(3, [&](comm::Communicator& c) {
      Store store(file.open(), NumberedFile::kFirst, &c, options);
      for (int64_t step = 0; step < steps; ++step) {
        train_on(store, file, options, own_range(options, c.rank()), step, visits);
      }
      met.arrive_and_wait();  // or those who need records of a store that is gone would wait
    });
  }
}

// ---- faults -------------------------------------------------------------------------------------

/// Takes and releases until somebody is missing; the message.
std::string train_until_timeout(Store& store, const NumberedFile& file, const StoreOptions& options,
                                int worker) {
  Visits visits;
  try {
    for (int64_t step = 0; step < 1000; ++step) {
      train_on(store, file, options, own_range(options, worker), step, visits);
    }
  } catch (const comm::TimeoutError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nobody was missed";
  return "";
}

/// Worker `silent` takes nothing; what the others say.
std::vector<std::string> train_with_one_silent(const NumberedFile& file,
                                               const StoreOptions& options, int silent) {
  const auto workers = static_cast<int>(options.ranges.size());
  std::vector<std::string> messages(options.ranges.size());
  std::barrier over(workers);
  comm::run_as_threads(workers, [&](comm::Communicator& c) {
    Store store(file.open(), NumberedFile::kFirst, &c, options);
    if (c.rank() != silent) {
      messages[static_cast<size_t>(c.rank())] = train_until_timeout(store, file, options, c.rank());
    }
    over.arrive_and_wait();
  });
  messages.erase(messages.begin() + silent);
  return messages;
}

TEST(Store, NamesTheStepAndTheWorkerThatDoesNotAnswer) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  StoreOptions options = small_options(3);
  options.deadline = {0.2};
  for (const std::string& message : train_with_one_silent(file, options, 2)) {
    EXPECT_THAT(message, AllOf(HasSubstr("step "), HasSubstr("within 200 ms"), HasSubstr("rank 2"),
                               testing::Not(HasSubstr("rank 1")), HasSubstr("(localhost)")));
  }
}

// Of a worker whose records nobody needs it is only known that it takes nothing.
TEST(Store, NamesTheWorkerThatDoesNotTakeWhatItIsSent) {
  std::vector<int64_t> lengths(kSamples, 1);
  lengths.front() = 60'000;  // the first worker has this one and no other
  const NumberedFile file(lengths);
  StoreOptions options = small_options(2);
  options.deadline = {0.2};
  for (const std::string& message : train_with_one_silent(file, options, 0)) {
    EXPECT_THAT(message, AllOf(HasSubstr("step "), HasSubstr("rank 0 (localhost)")));
  }
}

TEST(Store, NamesTheWorkerThatDoesNotShuffle) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  StoreOptions options = small_options(2);
  options.samples = 10;  // a step is an epoch, so that the silent one stands before a shuffle
  options.ahead = 1;
  options.shuffle_epochs = 1;
  options.deadline = {0.2};
  EXPECT_THAT(train_with_one_silent(file, options, 1),
              Each(AllOf(HasSubstr("the shuffle before step "), HasSubstr("rank 1 (localhost)"))));
}

TEST(Store, NamesTheWorkersThatDoNotComeToTheEnd) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  StoreOptions options = small_options(3);
  options.deadline = {0.2};
  std::barrier over(3);
  comm::run_as_threads(3, [&](comm::Communicator& c) {
    Store store(file.open(), NumberedFile::kFirst, &c, options);
    if (c.rank() != 1) {
      try {
        store.finish();
        ADD_FAILURE() << "ended without rank 1";
      } catch (const comm::TimeoutError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("within 200 ms"), HasSubstr("rank 1"),
                                        testing::Not(HasSubstr("rank 2"))));
      }
    }
    over.arrive_and_wait();
  });
}

TEST(Store, NamesTheWorkersThatStillReadTheFile) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  StoreOptions options = small_options(4);
  options.copies = 2;
  options.load_deadline = {0.2};
  std::barrier over(4);
  comm::run_as_threads(4, [&](comm::Communicator& c) {
    if (c.rank() == 3) {
      // Takes part in the splits of the world, as the store's constructor does, and no further.
      c.split(0);
      c.split(data_group(3, 4, 2).first);
    } else {
      try {
        Store store(file.open(), NumberedFile::kFirst, &c, options);
        ADD_FAILURE() << "begun without rank 3";
      } catch (const comm::TimeoutError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("reading " + file.path().string()),
                                        HasSubstr("rank 3 (localhost) did not come")));
      }
    }
    over.arrive_and_wait();
  });
}

// Whoever stops must not wait for records that will not come any more.
TEST(Store, LetsALoaderStopWhileItWaitsForOthers) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  job::Data data = files("packed", file.path().string());
  data.shape = {1, 2, 3};
  const Source source = open(data);
  StoreOptions options = small_options(2);
  options.deadline = {60};
  const Seconds begin = now();
  std::barrier over(2);
  comm::run_as_threads(2, [&](comm::Communicator& c) {
    Store store(source.packed.file, source.packed.first, &c, options);
    if (c.rank() == 0) {
      const GrainRange own = options.ranges[0];
      LoaderOptions loading;
      loading.batch = options.batch;
      loading.grain = options.grain;
      loading.grains = own;
      loading.seed = options.seed;
      loading.threads = 3;
      loading.ahead = 9;
      loading.feed = &store;
      TrainLoader loader(source, loading);
      loader.get(2, own.last - 1);  // the last step that the other worker sends by itself
    }
    over.arrive_and_wait();
  });
  EXPECT_LT(now() - begin, options.deadline);
}

TEST(Store, WaitsForAShuffleThatTakesLongerThanTheDeadlineButGetsOn) {
  const NumberedFile file(mixed_lengths(10, 2000));
  StoreOptions options = small_options(2);
  options.samples = 10;
  options.shuffle_epochs = 1;
  options.segment = Bytes{2};  // a byte at a time
  options.deadline = {0.1};
  Seconds took;
  for (const Ended& worker : train(file, options, 4)) {
    took = std::max(took, worker.counters.shuffling);
  }
  EXPECT_GT(took, options.deadline);
}

TEST(Store, RefusesADamagedRecordOnAllWorkersAndNamesItWhereItWasRead) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  file.damage(20);
  for (const int workers : {1, 2, 3}) {
    for (int copies = 1; copies <= workers; ++copies) {
      std::atomic<int> named{0};
      comm::run_as_threads(workers, [&](comm::Communicator& c) {
        StoreOptions options = small_options(workers);
        options.copies = copies;
        const std::string message =
            refusal([&] { Store(file.open(), NumberedFile::kFirst, &c, options); });
        EXPECT_THAT(message, HasSubstr(file.path().string()));
        if (message.find("record 23 (train/20)") != std::string::npos) {
          EXPECT_THAT(message, HasSubstr("checksum"));
          ++named;
        } else {
          EXPECT_THAT(message, HasSubstr("could not be read by rank "));
        }
      });
      EXPECT_EQ(named, copies);
    }
  }
}

TEST(Store, ListsDamagedRecordsWhereTheyWereReadAndBringsThemAsTheyAre) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  file.damage(20);
  StoreOptions options = small_options(3);
  options.skip_bad = true;
  std::atomic<int> listed{0};
  std::atomic<int> seen{0};
  comm::run_as_threads(3, [&](comm::Communicator& c) {
    Store store(file.open(), NumberedFile::kFirst, &c, options);
    for (const BadRecord& bad : store.bad_records()) {
      EXPECT_EQ(bad.sample, 20);
      EXPECT_THAT(bad.message, HasSubstr("record 23 (train/20)"));
      ++listed;
    }
    const GrainRange own = own_range(options, c.rank());
    for (int64_t step = 0; step < 4; ++step) {
      for (int64_t grain = own.first; grain < own.last; ++grain) {
        const std::vector<Stored> samples = store.take(step, grain);
        for (int64_t k = 0; k < options.grain; ++k) {
          const int64_t position = step * options.batch + grain * options.grain + k;
          if (position >= kSamples) continue;
          const int64_t sample = stream_at(position, kSamples, options.seed).sample;
          const Stored& stored = samples[static_cast<size_t>(k)];
          EXPECT_EQ(is_numbered(stored.bytes, sample), sample != 20);
          if (sample != 20) continue;
          ++seen;
          EXPECT_EQ(stored.bytes.front(), numbered_byte(20, 0) ^ std::byte{0x80});
          EXPECT_TRUE(stored.bytes.size() == static_cast<size_t>(file.length(20)));
        }
        store.release(step, grain);
      }
    }
    store.finish();
  });
  EXPECT_EQ(listed, 1);
  EXPECT_EQ(seen, 1);
}

TEST(Store, RefusesGrainsOfOthersAndThoseReleasedAlready) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  const StoreOptions options = small_options(2);
  comm::run_as_threads(2, [&](comm::Communicator& c) {
    Store store(file.open(), NumberedFile::kFirst, &c, options);
    const GrainRange own = own_range(options, c.rank());
    EXPECT_THROW(store.take(0, c.rank() == 0 ? own.last : own.first - 1), std::logic_error);
    store.take(0, own.first);
    store.release(0, own.first);
    EXPECT_THROW(store.take(0, own.first), std::logic_error);
    EXPECT_THROW(store.release(0, own.first), std::logic_error);
    store.finish();
  });
}

TEST(Store, RefusesRangesThatAreNotAllGrains) {
  const NumberedFile file(mixed_lengths(kSamples, 50));
  StoreOptions options = small_options(1);
  options.ranges = {{0, 4}};
  EXPECT_THROW(Store(file.open(), NumberedFile::kFirst, nullptr, options), std::logic_error);
  options = small_options(2);
  EXPECT_THROW(Store(file.open(), NumberedFile::kFirst, nullptr, options), std::logic_error);
}

}  // namespace
}  // namespace convoy::data
