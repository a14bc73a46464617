#include "convoy/data/loader.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/loading.hpp"

namespace convoy::data {
namespace {

using testing::Each;
using testing::HasSubstr;

TEST(TrainLoader, YieldsWhatDirectPreparationYieldsForAnyNumberOfThreads) {
  const Source source = small_source();
  const job::Augment augment{.flip = true, .pad_crop = 2, .cutout = 2};
  for (const int threads : {1, 2, 3, 8}) {
    const LoaderOptions options = small_options(&augment, threads);
    TrainLoader loader(source, options);
    for (int64_t step = 0; step < 8; ++step) {  // 96 samples: over two epoch borders
      for (int64_t grain = 0; grain < 4; ++grain) {
        expect_right(loader.get(step, grain), source, options, step, grain);
        loader.release(step, grain);
      }
    }
  }
}

TEST(TrainLoader, TakesUpTheStreamAtAnyStep) {
  const Source source = small_source();
  LoaderOptions options = small_options(nullptr, 2);
  options.first_step = 1000;
  TrainLoader loader(source, options);
  expect_right(loader.get(1000, 3), source, options, 1000, 3);
  expect_right(loader.get(1001, 0), source, options, 1001, 0);
}

TEST(TrainLoader, KeepsItsOwnCopyOfTheAugmentation) {
  const Source source = small_source();
  const job::Augment augment{.flip = true, .pad_crop = 2, .cutout = 2};
  auto given = std::make_unique<job::Augment>(augment);
  LoaderOptions options = small_options(given.get(), 1);
  TrainLoader loader(source, options);
  given.reset();
  options.augment = &augment;
  for (int64_t step = 0; step < 5; ++step) {
    for (int64_t grain = 0; grain < 4; ++grain) {
      expect_right(loader.get(step, grain), source, options, step, grain);
      loader.release(step, grain);
    }
  }
}

TEST(TrainLoader, ServesLanesThatAskInAnyOrder) {
  const Source source = small_source();
  const job::Augment augment{.flip = true, .pad_crop = 1, .cutout = 0};
  const LoaderOptions options = small_options(&augment, 2);
  TrainLoader loader(source, options);
  constexpr int64_t kSteps = 30;
  std::vector<std::vector<int64_t>> orders;
  for (uint32_t step = 0; step < kSteps; ++step) {
    orders.push_back({0, 1, 2, 3});
    std::shuffle(orders.back().begin(), orders.back().end(), std::mt19937(step));
  }
  std::atomic<int64_t> taken{0};
  const auto lane = [&] {
    for (int64_t i = taken++; i < kSteps * 4; i = taken++) {
      const int64_t step = i / 4;
      const int64_t grain = orders.at(static_cast<size_t>(step)).at(static_cast<size_t>(i % 4));
      expect_right(loader.get(step, grain), source, options, step, grain);
      loader.release(step, grain);
    }
  };
  std::vector<std::thread> lanes;
  lanes.reserve(3);
  for (int i = 0; i < 3; ++i) lanes.emplace_back(lane);
  for (std::thread& thread : lanes) thread.join();
}

TEST(TrainLoader, NeverPreparesMoreThanItsSlotsHold) {
  const auto probe = std::make_shared<Probe>();
  LoaderOptions options = small_options(nullptr, 3);
  options.ahead = 1;
  TrainLoader loader(probe_source(probe), options);
  probe->wait_for_asked(24);  // two batches of 12
  // A slot is only filled again after release; everything before it has been handed out.
  for (int64_t grain = 0; grain < 4; ++grain) {
    loader.get(0, grain);
    loader.get(1, grain);
  }
  EXPECT_EQ(probe->asked(), 24);
  loader.release(0, 2);
  loader.release(0, 0);
  loader.get(2, 0);
  loader.get(2, 1);
  EXPECT_EQ(probe->asked(), 30);
}

TEST(TrainLoader, CountsNoWaitForAGrainThatIsReady) {
  const auto probe = std::make_shared<Probe>();
  probe->hold();
  TrainLoader loader(probe_source(probe), small_options(nullptr, 1));
  EXPECT_EQ(loader.waited(), Seconds{0});
  std::atomic<bool> asking{false};
  std::thread lane([&] {
    asking = true;
    asking.notify_all();
    loader.get(0, 0);
  });
  asking.wait(false);
  probe->let_go();
  lane.join();
  probe->wait_for_asked(36);
  const Seconds waited = loader.waited();
  loader.get(0, 1);
  loader.get(0, 2);
  EXPECT_EQ(loader.waited(), waited);
}

TEST(TrainLoader, PassesAnErrorOfItsThreadsToTheLanes) {
  const int64_t broken = stream_at(17, 1000, 5).sample;  // in grain 1 of step 1
  const auto probe = std::make_shared<Probe>(broken);
  for (const int threads : {1, 3}) {
    TrainLoader loader(probe_source(probe), small_options(nullptr, threads));
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        loader.get(1, 1);
        FAIL() << "the error was lost";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "this sample is broken");
      }
    }
  }
}

TEST(TrainLoader, EndsAWaitAtItsDeadlineAndSaysWhy) {
  LoaderOptions options = small_options(nullptr, 1);
  options.ahead = 1;
  options.deadline = {0.05};
  TrainLoader loader(probe_source(std::make_shared<Probe>()), options);
  try {
    loader.get(2, 1);  // needs the slot of a grain of step 0
    FAIL() << "no slot was free for it";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("grain 1 of step 2 within 50 ms"));
    EXPECT_THAT(error.what(), HasSubstr("grain 0 of step 0 was not released"));
  }
  EXPECT_GE(loader.waited().value, 0.05);
}

TEST(TrainLoader, RefusesGrainsAskedForOrReleasedOutOfTurn) {
  TrainLoader loader(small_source(), small_options(nullptr, 1));
  loader.get(0, 1);
  loader.release(0, 1);
  EXPECT_THROW(loader.get(0, 1), std::logic_error);
  EXPECT_THROW(loader.release(0, 1), std::logic_error);
  EXPECT_THROW(loader.get(0, 4), std::logic_error);
  LoaderOptions ragged = small_options(nullptr, 1);
  ragged.grain = 5;
  EXPECT_THROW(TrainLoader(small_source(), ragged), std::logic_error);
}

TEST(TrainLoader, CanBeDestroyedAtAnyMoment) {
  const Source source = small_source();
  for (int64_t used = 0; used < 30; ++used) {
    TrainLoader loader(source, small_options(nullptr, 1 + static_cast<int>(used % 4)));
    for (int64_t i = 0; i < used; ++i) {
      loader.get(i / 4, i % 4);
      loader.release(i / 4, i % 4);
    }
  }
}

TEST(TrainLoader, SaysHowMuchMemoryItsSlotsTake) {
  LoaderOptions options = small_options(nullptr, 1);
  options.ahead = 2;  // 3 batches × 4 slots of 3 samples: 3·108 floats rounded up to 336, 3 labels
  EXPECT_EQ(TrainLoader::memory(options, {3, 6, 6}), Bytes{12 * (336 * 4 + 3 * 4)});
  options.grains = {.first = 1, .last = 2};
  EXPECT_EQ(TrainLoader::memory(options, {3, 6, 6}), Bytes{3 * (336 * 4 + 3 * 4)});
  options.grains = GrainRange{};
  EXPECT_EQ(TrainLoader::memory(options, {3, 6, 6}), Bytes{0});
}

TEST(EvalGrain, VisitsEverySampleOnceAndFillsUpWithZeros) {
  const Source source = small_source();
  const Dataset& test = *source.test;  // 9 samples
  std::vector<float> inputs(4 * kValues);
  std::vector<int32_t> labels(4);
  std::vector<float> expected(kValues);
  int64_t sample = 0;
  for (int64_t index = 0; index < 4; ++index) {
    std::fill(inputs.begin(), inputs.end(), -7.0F);
    const int64_t count = eval_grain(source, test, index, 4, inputs, labels);
    EXPECT_EQ(count, (std::array<int64_t, 4>{4, 4, 1, 0}).at(static_cast<size_t>(index)));
    for (int64_t k = 0; k < count; ++k, ++sample) {
      prepare(source, test, {.sample = sample, .epoch = 0}, 0, nullptr, expected);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), inputs.begin() + k * kValues));
      EXPECT_EQ(labels[static_cast<size_t>(k)], test.label(sample));
    }
    EXPECT_THAT(std::span(inputs).subspan(static_cast<size_t>(count * kValues)), Each(0.0F));
    EXPECT_THAT(std::span(labels).subspan(static_cast<size_t>(count)), Each(-1));
  }
  EXPECT_EQ(sample, test.size());
}

}  // namespace
}  // namespace convoy::data
