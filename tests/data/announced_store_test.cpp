// A store whose workers' shares change from step to step.

#include <algorithm>
#include <barrier>
#include <optional>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/random.hpp"
#include "convoy/comm/task.hpp"
#include "convoy/comm/thread_world.hpp"
#include "convoy/data/loader.hpp"

#include "tests/data/storing.hpp"

namespace convoy::data {
namespace {

using testing::HasSubstr;

constexpr int64_t kGrains = 5;

StoreOptions announced_options(int workers) {
  StoreOptions options = small_options(workers);
  options.announced = true;
  return options;
}

/// Contiguous parts of the batch, of any size, that fall to the workers in any order.
RangesOf random_ranges(int workers, uint64_t seed) {
  return [=](int64_t step) {
    Stream random(seed * 1000 + static_cast<uint64_t>(step), Purpose::test);
    std::vector<int64_t> cuts{0, kGrains};
    for (int w = 1; w < workers; ++w) cuts.push_back(random.below(kGrains + 1));
    std::sort(cuts.begin(), cuts.end());
    std::vector<GrainRange> ranges;
    for (size_t w = 0; w + 1 < cuts.size(); ++w) ranges.push_back({cuts[w], cuts[w + 1]});
    std::rotate(ranges.begin(), ranges.begin() + random.below(static_cast<uint32_t>(workers)),
                ranges.end());
    return ranges;
  };
}

/// One after the other, again and again.
RangesOf in_turn(const std::vector<std::vector<GrainRange>>& ranges) {
  return [=](int64_t step) { return ranges[static_cast<size_t>(step) % ranges.size()]; };
}

/// Announces what a worker in `step` has to, as the trainer does.
class Announcer {
 public:
  Announcer(Store& store, RangesOf ranges_of, int64_t first_step)
      : store_(store), ranges_of_(std::move(ranges_of)), next_(first_step) {}
  /// Calls told(step, ranges) for each.
  template <class Told>
  void before(int64_t step, const Told& told) {
    for (; next_ <= step + store_.lag(); ++next_) {
      store_.announce(next_, ranges_of_(next_));
      told(next_, ranges_of_(next_));
    }
  }
  void before(int64_t step) {
    before(step, [](int64_t, const std::vector<GrainRange>&) {});
  }

 private:
  Store& store_;
  RangesOf ranges_of_;
  int64_t next_;
};

/// All workers train for `steps` and end; their counters.
std::vector<StoreCounters> train(const NumberedFile& file, const StoreOptions& options,
                                 const RangesOf& ranges_of, int64_t steps) {
  SCOPED_TRACE(text_of(options));
  const auto workers = static_cast<int>(options.ranges.size());
  Visits visits;
  std::vector<StoreCounters> counters(options.ranges.size());
  std::barrier trained(workers);
  const int64_t end = options.first_step + steps;
  comm::run_as_threads(workers, [&](comm::Communicator& c) {
    const auto rank = static_cast<size_t>(c.rank());
    Store store(file.open(), NumberedFile::kFirst, &c, options);
    Announcer announcer(store, ranges_of, options.first_step);
    announcer.before(options.first_step);
    for (int64_t step = options.first_step; step < end; ++step) {
      train_on(store, file, options, ranges_of(step)[rank], step, visits);
      announcer.before(step + 1);
    }
    trained.arrive_and_wait();
    store.finish();
    counters[rank] = store.counters();
  });
  visits.expect_each_once(options.first_step * options.batch, end * options.batch, options.samples);
  return counters;
}

TEST(Store, BringsEverySampleOnceHoweverAnnouncedSharesMove) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  uint64_t seed = 0;
  for (int workers = 2; workers <= 4; ++workers) {
    for (int copies = 1; copies <= workers; ++copies) {
      for (const int64_t shuffle_epochs : {0, 1, 2}) {
        for (const int ahead : {1, 2, 3, 6}) {
          StoreOptions options = announced_options(workers);
          options.copies = copies;
          options.shuffle_epochs = shuffle_epochs;
          options.ahead = ahead;
          options.first_step = static_cast<int64_t>(seed % 5);
          train(file, options, random_ranges(workers, ++seed), 17);  // over four epoch borders
        }
      }
    }
  }
}

TEST(Store, ServesAnnouncedStepsInWhichAnyWorkersHaveNoGrains) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  const RangesOf ranges_of = in_turn({
      {{0, 5}, {5, 5}, {5, 5}, {5, 5}},  // with two copies, a group without grains
      {{0, 0}, {0, 5}, {5, 5}, {5, 5}},
      {{0, 0}, {0, 0}, {0, 1}, {1, 5}},
      {{0, 0}, {0, 0}, {0, 0}, {0, 5}},
      {{0, 2}, {2, 2}, {2, 2}, {2, 5}},
      {{0, 2}, {2, 3}, {3, 4}, {4, 5}},
  });
  // Those by which records are held leave workers without grains, too.
  for (const int first : {0, 5}) {
    for (const int copies : {1, 2}) {
      for (const int64_t shuffle_epochs : {0, 1}) {
        StoreOptions options = announced_options(4);
        options.ranges = {{0, first}, {first, 5}, {5, 5}, {5, 5}};
        options.copies = copies;
        options.shuffle_epochs = shuffle_epochs;
        train(file, options, ranges_of, 20);
      }
    }
  }
}

TEST(Store, CountsWhatCameToAWorkerWhoseShareMoves) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  for (const int64_t shuffle_epochs : {0, 1, 2}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      StoreOptions options = announced_options(4);
      options.shuffle_epochs = shuffle_epochs;
      options.first_step = 3;
      const RangesOf ranges_of = random_ranges(4, seed);
      constexpr int64_t kSteps = 12;
      const std::vector<StoreCounters> counters = train(file, options, ranges_of, kSteps);
      // Some of the steps that were announced ahead were begun, the same for all.
      const int64_t trained = options.first_step + kSteps;
      int matching = 0;
      for (int64_t end = trained; end <= trained + options.ahead; ++end) {
        bool all = true;
        for (int worker = 0; worker < 4; ++worker) {
          all = all && are_equal(counters[static_cast<size_t>(worker)],
                                 expected_counters(file, options, worker, end, ranges_of));
        }
        matching += all;
      }
      EXPECT_GE(matching, 1) << text_of(options) << ", seed " << seed;
    }
  }
}

TEST(Store, EndsAtAnyAnnouncedStep) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  for (const int64_t shuffle_epochs : {0, 1}) {
    for (int64_t steps = 0; steps <= 8; ++steps) {
      StoreOptions options = announced_options(3);
      options.shuffle_epochs = shuffle_epochs;
      const RangesOf ranges_of = random_ranges(3, static_cast<uint64_t>(steps));
      std::barrier met(3);
      Visits visits;
      comm::run_as_threads(3, [&](comm::Communicator& c) {
        const auto rank = static_cast<size_t>(c.rank());
        Store store(file.open(), NumberedFile::kFirst, &c, options);
        // All have been told the same, but need not have used it.
        for (int64_t step = 0; step < steps + 2; ++step) store.announce(step, ranges_of(step));
        const int64_t own = std::max<int64_t>(0, steps - c.rank() % 2);
        for (int64_t step = 0; step < own; ++step) {
          train_on(store, file, options, ranges_of(step)[rank], step, visits);
        }
        met.arrive_and_wait();
        store.finish();
        EXPECT_THROW(store.take(own, 0), Error);
        EXPECT_THROW(store.announce(steps + 2, ranges_of(steps + 2)), std::logic_error);
      });
    }
  }
}

TEST(Store, EndsBeforeAnythingIsAnnounced) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  comm::run_as_threads(2, [&](comm::Communicator& c) {
    Store store(file.open(), NumberedFile::kFirst, &c, announced_options(2));
    store.finish();
    EXPECT_EQ(store.counters().fetched_records, 0);
  });
}

TEST(Store, RefusesToEndIfOthersWereToldOfMoreSteps) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  StoreOptions options = announced_options(2);
  options.deadline = {0.2};
  std::barrier over(2);
  comm::run_as_threads(2, [&](comm::Communicator& c) {
    Store store(file.open(), NumberedFile::kFirst, &c, options);
    store.announce(0, options.ranges);
    if (c.rank() == 0) {
      store.announce(1, options.ranges);
      EXPECT_THROW(store.finish(), comm::TimeoutError);
    } else {
      try {
        store.finish();
        ADD_FAILURE() << "rank 0 has begun a step more";
      } catch (const std::logic_error& error) {
        EXPECT_THAT(error.what(), HasSubstr("announced the same steps"));
      }
    }
    over.arrive_and_wait();
  });
}

// As in training: what the store is told of a step, the loader is told, too.
TEST(Store, FeedsALoaderWhoseShareMoves) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  job::Data data = files("packed", file.path().string());
  data.shape = {1, 2, 3};
  const Source source = open(data);
  uint64_t seed = 0;
  for (const int copies : {1, 2, 3}) {  // two: one worker has everything, and the others fetch
    for (const int threads : {1, 3}) {
      for (const int64_t steps : {0, 1, 2, 3, 11}) {
        const RangesOf ranges_of = random_ranges(3, ++seed);
        comm::run_as_threads(3, [&](comm::Communicator& c) {
          const auto rank = static_cast<size_t>(c.rank());
          StoreOptions options = announced_options(3);
          options.copies = copies;
          options.shuffle_epochs = 1;
          Store store(source.packed.file, source.packed.first, &c, options);
          LoaderOptions loading;
          loading.batch = options.batch;
          loading.grain = options.grain;
          loading.grains = GrainRange{};
          loading.seed = options.seed;
          loading.threads = threads;
          loading.feed = &store;
          std::optional<TrainLoader> loader(std::in_place, source, loading);
          Announcer announcer(store, ranges_of, 0);
          const auto announce = [&](int64_t before) {
            announcer.before(before, [&](int64_t step, const std::vector<GrainRange>& ranges) {
              loader->set_grains(step, ranges[rank]);
            });
          };
          announce(0);
          std::vector<float> expected(6);
          for (int64_t step = 0; step < steps; ++step) {
            const GrainRange own = ranges_of(step)[rank];
            for (int64_t grain = own.first; grain < own.last; ++grain) {
              const Grain got = loader->get(step, grain);
              for (int64_t k = 0; k < options.grain; ++k) {
                const StreamSample which = stream_at(
                    step * options.batch + grain * options.grain + k, kSamples, options.seed);
                prepare(source, *source.train, which, options.seed, nullptr, expected);
                EXPECT_THAT(got.inputs.subspan(static_cast<size_t>(6 * k), 6),
                            testing::ElementsAreArray(expected));
              }
              loader->release(step, grain);
            }
            announce(step + 1);
          }
          loader.reset();
          store.finish();
        });
      }
    }
  }
}

TEST(Store, TakesAnnouncementsAsLongAheadAsAnyWorkerNeedsThem) {
  const NumberedFile file(mixed_lengths(kSamples, 50));
  for (const int copies : {1, 2, 3}) {
    for (const int ahead : {1, 3}) {
      for (const bool announced : {false, true}) {
        comm::run_as_threads(3, [&](comm::Communicator& c) {
          StoreOptions options = small_options(3);
          options.copies = copies;
          options.ahead = ahead;
          options.announced = announced;
          const Store store(file.open(), NumberedFile::kFirst, &c, options);
          EXPECT_EQ(store.lag(), announced && copies < 3 ? ahead - 1 : 0);
          // The last of three workers is alone with one of two copies.
          EXPECT_EQ(store.is_announced(),
                    announced && (copies == 1 || (copies == 2 && c.rank() < 2)));
        });
      }
    }
  }
}

TEST(Store, RefusesGrainsOfStepsThatWereNotAnnounced) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  const StoreOptions options = announced_options(2);
  std::barrier over(2);
  comm::run_as_threads(2, [&](comm::Communicator& c) {
    Store store(file.open(), NumberedFile::kFirst, &c, options);
    const GrainRange nominal = own_range(options, c.rank());
    EXPECT_THROW(store.take(0, nominal.first), std::logic_error);
    store.announce(0, {{2, 5}, {0, 2}});  // none is whose it is by the options
    EXPECT_THROW(store.take(0, nominal.first), std::logic_error);
    const int64_t grain = c.rank() == 0 ? 4 : 0;
    store.take(0, grain);
    store.release(0, grain);
    EXPECT_THROW(store.take(0, grain), std::logic_error);
    EXPECT_THROW(store.release(0, grain), std::logic_error);
    EXPECT_THROW(store.release(0, nominal.first), std::logic_error);
    EXPECT_THROW(store.take(1, grain), std::logic_error);
    over.arrive_and_wait();
    store.finish();
  });
}

TEST(Store, RefusesAnnouncementsThatCannotBe) {
  const NumberedFile file(mixed_lengths(kSamples, 150));
  // With two copies nothing travels, and it is refused all the same.
  for (const int copies : {1, 2}) {
    comm::run_as_threads(2, [&](comm::Communicator& c) {
      StoreOptions options = announced_options(2);
      options.copies = copies;
      options.first_step = 7;
      Store store(file.open(), NumberedFile::kFirst, &c, options);
      EXPECT_THROW(store.announce(0, {{0, 2}, {2, 5}}), std::logic_error);
      EXPECT_THROW(store.announce(8, {{0, 2}, {2, 5}}), std::logic_error);
      EXPECT_THROW(store.announce(7, {{0, 5}}), std::logic_error);
      EXPECT_THROW(store.announce(7, {{0, 2}, {3, 5}}), std::logic_error);
      store.announce(7, {{0, 2}, {2, 5}});
      EXPECT_THROW(store.announce(7, {{0, 2}, {2, 5}}), std::logic_error);
      store.finish();
    });
  }
  StoreOptions fixed = small_options(1);
  Store store(file.open(), NumberedFile::kFirst, nullptr, fixed);
  EXPECT_THROW(store.announce(0, {{0, 5}}), std::logic_error);
}

}  // namespace
}  // namespace convoy::data
