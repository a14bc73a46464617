#include "convoy/data/holders.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/data/prepare.hpp"

#include "tests/data/numbered.hpp"

namespace convoy::data {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

/// Shares of all kinds: equal, unequal, of workers without grains, of batches longer than an epoch,
/// with sample counts that nothing divides.
std::vector<Shares> all_shares() {
  std::vector<Shares> all;
  const std::vector<std::vector<GrainRange>> cuts{
      {{0, 6}},
      {{0, 3}, {3, 6}},
      {{0, 5}, {5, 6}, {6, 6}},
      {{4, 6}, {0, 0}, {0, 4}},
      {{0, 0}, {0, 1}, {1, 3}, {3, 3}, {3, 6}},
      {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 6}},
  };
  for (const int64_t samples : {1, 5, 37, 120}) {
    for (const int64_t grain : {1, 2}) {
      for (const std::vector<GrainRange>& ranges : cuts) {
        all.push_back(
            {.samples = samples, .batch = 6 * grain, .grain = grain, .seed = 3, .ranges = ranges});
      }
    }
  }
  return all;
}

std::string text_of(const Shares& shares) {
  return fmt::format("{} samples, batches of {}, grains of {}, {} workers", shares.samples,
                     shares.batch, shares.grain, shares.workers());
}

/// visit(shares, copies) for all that fit together.
template <class Visit>
void for_all(const Visit& visit) {
  for (const Shares& shares : all_shares()) {
    for (int copies = 1; copies <= shares.workers(); ++copies) {
      SCOPED_TRACE(testing::Message() << text_of(shares) << ", " << copies << " copies");
      visit(shares, copies);
    }
  }
}

std::vector<DataGroup> groups_of(int workers, int copies) {
  std::vector<DataGroup> groups;
  for (int first = 0; first < workers; first = groups.back().last) {
    groups.push_back(data_group(first, workers, copies));
  }
  return groups;
}

std::vector<int64_t> bytes_of(const Holders& holders, const std::vector<int64_t>& lengths,
                              int members) {
  std::vector<int64_t> bytes(static_cast<size_t>(members));
  for (size_t s = 0; s < holders.size(); ++s) {
    bytes.at(static_cast<size_t>(holders[s])) += lengths[s];
  }
  return bytes;
}

int64_t longest_of(const std::vector<int64_t>& lengths) {
  return *std::max_element(lengths.begin(), lengths.end());
}

// ---- shares -------------------------------------------------------------------------------------

TEST(Shares, AreAllGrainsOfABatchEachOnce) {
  for (const Shares& shares : all_shares()) EXPECT_NO_THROW(shares.check()) << text_of(shares);
  const Shares good{
      .samples = 10, .batch = 8, .grain = 2, .seed = 1, .ranges = {{0, 3}, {3, 3}, {3, 4}}};
  EXPECT_NO_THROW(good.check());
  const std::vector<std::vector<GrainRange>> wrong{{},       {{0, 3}},  {{0, 3}, {2, 4}},
                                                   {{0, 5}}, {{-1, 4}}, {{0, 2}, {3, 4}}};
  for (const std::vector<GrainRange>& ranges : wrong) {
    Shares shares = good;
    shares.ranges = ranges;
    EXPECT_THROW(shares.check(), std::logic_error) << ranges.size() << " ranges";
  }
  Shares ragged = good;
  ragged.batch = 9;
  EXPECT_THROW(ragged.check(), std::logic_error);
  Shares nothing = good;
  nothing.samples = 0;
  EXPECT_THROW(nothing.check(), std::logic_error);
}

TEST(Shares, NameTheWorkerOfEveryGrain) {
  const Shares shares{
      .samples = 10, .batch = 8, .grain = 2, .seed = 1, .ranges = {{3, 4}, {3, 3}, {0, 3}}};
  EXPECT_THAT(shares.worker_of_grains(), ElementsAre(2, 2, 2, 0));
}

// ---- groups -------------------------------------------------------------------------------------

TEST(DataGroups, CutTheWorkersIntoRunsAsEqualAsCanBe) {
  for (int workers = 1; workers <= 12; ++workers) {
    for (int copies = 1; copies <= workers; ++copies) {
      SCOPED_TRACE(testing::Message() << workers << " workers, " << copies << " copies");
      const std::vector<DataGroup> groups = groups_of(workers, copies);
      EXPECT_EQ(static_cast<int>(groups.size()), copies);
      EXPECT_EQ(groups.front().first, 0);
      EXPECT_EQ(groups.back().last, workers);
      for (const DataGroup& group : groups) {
        EXPECT_GE(group.size(), workers / copies);
        EXPECT_LE(group.size(), (workers + copies - 1) / copies);
        for (int worker = group.first; worker < group.last; ++worker) {
          EXPECT_EQ(data_group(worker, workers, copies), group);
          EXPECT_TRUE(group.has(worker));
        }
        EXPECT_FALSE(group.has(group.first - 1));
        EXPECT_FALSE(group.has(group.last));
      }
    }
  }
}

TEST(DataGroups, AreNotMoreThanTheWorkers) {
  EXPECT_THROW(data_group(0, 3, 4), std::logic_error);
  EXPECT_THROW(data_group(0, 3, 0), std::logic_error);
}

// ---- who holds what -----------------------------------------------------------------------------

TEST(Runs, AreContiguousAndEquallyLongButForARecord) {
  for (const int64_t samples : {1, 2, 37, 200}) {
    for (const uint32_t longest : {1U, 9U, 5000U}) {
      for (int members = 1; members <= 9; ++members) {
        SCOPED_TRACE(testing::Message() << samples << " samples of up to " << longest << " bytes, "
                                        << members << " members");
        const std::vector<int64_t> lengths = mixed_lengths(samples, longest);
        const Holders holders = runs(lengths, members);
        ASSERT_EQ(static_cast<int64_t>(holders.size()), samples);
        EXPECT_TRUE(std::is_sorted(holders.begin(), holders.end()));
        const int64_t all = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
        for (const int64_t bytes : bytes_of(holders, lengths, members)) {
          EXPECT_LE(bytes, all / members + longest_of(lengths));
          EXPECT_GE(bytes, all / members - longest_of(lengths));
        }
      }
    }
  }
}

TEST(Runs, AreEqualWhereRecordsAre) {
  const std::vector<int64_t> lengths(12, 100);
  EXPECT_THAT(runs(lengths, 3), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2));
  EXPECT_THAT(runs(lengths, 1), Each(0));
}

TEST(HoldersOfAnEpoch, AreThoseWhoUseTheSamples) {
  for_all([](const Shares& shares, int copies) {
    const std::vector<int64_t> lengths = mixed_lengths(shares.samples, 50);
    const std::vector<int> worker_of = shares.worker_of_grains();
    for (const DataGroup& group : groups_of(shares.workers(), copies)) {
      for (const int64_t epoch : {0, 1, 4}) {
        const Holders holders = of_epoch(lengths, shares, group, epoch);
        ASSERT_EQ(static_cast<int64_t>(holders.size()), shares.samples);
        std::vector<int64_t> used(static_cast<size_t>(group.size()));
        for (int64_t k = 0; k < shares.samples; ++k) {
          const int64_t position = epoch * shares.samples + k;
          const auto sample = stream_at(position, shares.samples, shares.seed).sample;
          const auto grain = static_cast<size_t>(position % shares.batch / shares.grain);
          const int32_t holder = holders[static_cast<size_t>(sample)];
          ASSERT_TRUE(holder >= 0 && holder < group.size()) << "sample " << sample;
          if (!group.has(worker_of[grain])) continue;
          EXPECT_EQ(holder, worker_of[grain] - group.first) << "sample " << sample;
          used[static_cast<size_t>(holder)] += lengths[static_cast<size_t>(sample)];
        }
        // Whoever uses more than its part holds that and no more; the others share the rest.
        const std::vector<int64_t> held = bytes_of(holders, lengths, group.size());
        const int64_t least = *std::min_element(held.begin(), held.end());
        for (size_t m = 0; m < held.size(); ++m) {
          EXPECT_LE(held[m], std::max(used[m], least + 2 * longest_of(lengths)));
        }
      }
    }
  });
}

// Samples that the group does not use in either epoch have no reason to move far.
TEST(HoldersOfAnEpoch, MostlyKeepWhatNobodyOfTheGroupUses) {
  const Shares shares{.samples = 4000,
                      .batch = 40,
                      .grain = 1,
                      .seed = 3,
                      .ranges = {{0, 2}, {2, 4}, {4, 22}, {22, 40}}};
  const std::vector<int64_t> lengths(4000, 10);
  const DataGroup group{.first = 0, .last = 2};
  const Holders first = of_epoch(lengths, shares, group, 1);
  const Holders second = of_epoch(lengths, shares, group, 2);
  int64_t moved = 0;
  for (size_t s = 0; s < first.size(); ++s) moved += first[s] != second[s];
  EXPECT_LT(moved, 4000 / 8) << "a tenth is used in each epoch, by one of two members";
}

TEST(Eras, BeginWithTheFirstStepThatBeginsInTheirEpoch) {
  for (const Shares& shares : all_shares()) {
    for (int64_t step = 0; step < 100; ++step) {
      EXPECT_EQ(era_of(step, shares, 0), 0);
      EXPECT_EQ(era_of(step, shares, 1), step * shares.batch / shares.samples);
      EXPECT_EQ(era_of(step, shares, 3), step * shares.batch / shares.samples / 3);
    }
  }
}

TEST(Eras, BeginWithRunsAndGoOnWithTheHoldersOfTheirEpoch) {
  for_all([](const Shares& shares, int copies) {
    const std::vector<int64_t> lengths = mixed_lengths(shares.samples, 50);
    for (const DataGroup& group : groups_of(shares.workers(), copies)) {
      EXPECT_EQ(of_era(lengths, shares, group, 0, 0), runs(lengths, group.size()));
      EXPECT_EQ(of_era(lengths, shares, group, 0, 2), runs(lengths, group.size()));
      EXPECT_EQ(of_era(lengths, shares, group, 3, 2), of_epoch(lengths, shares, group, 6));
    }
  });
}

TEST(MostHeld, IsWhatTheFullestWorkerHoldsOrARecordMore) {
  for_all([](const Shares& shares, int copies) {
    for (const uint32_t longest : {1U, 5000U}) {
      const std::vector<int64_t> lengths = mixed_lengths(shares.samples, longest);
      for (const int64_t era : {0, 1, 2, 5}) {
        int64_t most = 0;
        for (const DataGroup& group : groups_of(shares.workers(), copies)) {
          const Holders holders = of_era(lengths, shares, group, era, 2);
          const std::vector<int64_t> held = bytes_of(holders, lengths, group.size());
          most = std::max(most, *std::max_element(held.begin(), held.end()));
        }
        const int64_t said = most_held(lengths, shares, copies, era, 2).value;
        EXPECT_GE(said, most) << "era " << era;
        EXPECT_LE(said, most + longest_of(lengths)) << "era " << era;
      }
    }
  });
}

// ---- who needs what -----------------------------------------------------------------------------

std::vector<StepNeeds> needs_of_group(int64_t step, const Shares& shares, DataGroup group,
                                      const Holders& holders) {
  std::vector<StepNeeds> needs;
  needs.reserve(static_cast<size_t>(group.size()));
  for (int m = 0; m < group.size(); ++m) {
    needs.push_back(needs_of(step, shares, group, m, holders));
  }
  return needs;
}

TEST(Needs, AreEveryPositionOfAStepOnce) {
  for_all([](const Shares& shares, int copies) {
    const std::vector<int64_t> lengths = mixed_lengths(shares.samples, 50);
    for (const int64_t step : {0, 1, 6, 7, 50}) {
      std::vector<std::vector<int64_t>> by_worker;
      for (const DataGroup& group : groups_of(shares.workers(), copies)) {
        const Holders holders = runs(lengths, group.size());
        for (StepNeeds& needs : needs_of_group(step, shares, group, holders)) {
          by_worker.push_back(std::move(needs.mine));
        }
      }
      ASSERT_EQ(static_cast<int>(by_worker.size()), shares.workers());
      int64_t positions = 0;
      for (int worker = 0; worker < shares.workers(); ++worker) {
        const GrainRange& range = shares.ranges[static_cast<size_t>(worker)];
        std::vector<int64_t> expected;
        for (int64_t k = range.first * shares.grain; k < range.last * shares.grain; ++k) {
          expected.push_back(
              stream_at(step * shares.batch + k, shares.samples, shares.seed).sample);
        }
        EXPECT_EQ(by_worker[static_cast<size_t>(worker)], expected) << "worker " << worker;
        positions += static_cast<int64_t>(expected.size());
      }
      EXPECT_EQ(positions, shares.batch);
    }
  });
}

TEST(Needs, OfOneAreWhatTheOthersSend) {
  for_all([](const Shares& shares, int copies) {
    const std::vector<int64_t> lengths = mixed_lengths(shares.samples, 50);
    for (const DataGroup& group : groups_of(shares.workers(), copies)) {
      for (const Holders& holders :
           {runs(lengths, group.size()), of_epoch(lengths, shares, group, 2)}) {
        for (const int64_t step : {0, 3, 20}) {
          const std::vector<StepNeeds> all = needs_of_group(step, shares, group, holders);
          for (size_t from = 0; from < all.size(); ++from) {
            ASSERT_EQ(all[from].sends.size(), all.size());
            EXPECT_THAT(all[from].sends[from], IsEmpty());
            ASSERT_EQ(all[from].holders.size(), all[from].mine.size());
            for (size_t to = 0; to < all.size(); ++to) {
              if (to == from) continue;
              std::vector<int64_t> wanted;
              for (size_t i = 0; i < all[to].mine.size(); ++i) {
                const int64_t sample = all[to].mine[i];
                EXPECT_EQ(all[to].holders[i], holders[static_cast<size_t>(sample)]);
                if (all[to].holders[i] == static_cast<int32_t>(from)) wanted.push_back(sample);
              }
              EXPECT_EQ(all[from].sends[to], wanted) << "from " << from << " to " << to;
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace convoy::data
