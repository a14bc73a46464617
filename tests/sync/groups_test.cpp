// Groups against servers, ranks as threads: one group gives the bits of training without servers;
// of several nothing is lost, and everybody ends with the same model.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/comm/thread_world.hpp"
#include "convoy/sync/group_model.hpp"

#include "tests/sync/training.hpp"

namespace convoy::sync {
namespace {

using testing::HasSubstr;

constexpr Seconds kDeadline{60};

struct Setting {
  std::vector<std::string> hosts;  ///< one for each rank
  int groups = 1;
  int servers = 1;
  bool own_ranks = false;
  int lanes = 1;
};

std::ostream& operator<<(std::ostream& out, const Setting& s) {
  return out << testing::PrintToString(s.hosts) << ", " << s.groups << " groups, " << s.servers
             << (s.own_ranks ? " servers of their own" : " servers");
}

/// A rank of a training in groups, with the same beginning as Training's.
class Member {
 public:
  Member(comm::Communicator& world, const Setting& setting, const Graph& graph,
         const std::string& optimizer, double clip, bool measured = false)
      : world_(world, kDeadline),
        layout_(lay_out(world_, setting.groups, setting.servers, setting.own_ranks)),
        optimizer_(optim::make_optimizer(options_of(optimizer))),
        program_(Training::compile(graph, engine::Algorithm::direct)),
        source(graph) {
    const int own = layout_.group[static_cast<size_t>(world.rank())];
    auto split = world.split(own == GroupLayout::kNone ? layout_.groups() : own);
    if (own != GroupLayout::kNone) {
      comm_ = std::move(split);
      group_.emplace(*comm_, kDeadline, true);
    }
    GroupOptions options;
    options.update = {kBatch / kGrain, false, clip, false};
    if (optimizer != "adam") options.momentum.total = options_of(optimizer).momentum;
    options.momentum.measured = measured;
    options.pause = Seconds{50e-6};
    options.stripe = Bytes{24 * 1024};  // several for each server, and not as buckets are cut
    model.emplace(world_, layout_, group_ ? &*group_ : nullptr, *program_, *optimizer_, options);
    StepperOptions stepping = Training::stepper_options(setting.lanes, clip);
    if (group_) {
      stepping.exchange.buckets = {Bytes{16 * 1024}};
      stepping.exchange.in_flight = Bytes{16 * 1024};
      stepping.exchange.remote = &*model;
    }
    stepper.emplace(*program_, *optimizer_, stepping, group_ ? *group_ : Team::alone());
    if (world.rank() == 0) engine::initialise(program_->arena(), 5, stepper->weights());
    model->load(stepper->weights(), stepper->states());
    stepper->weights_changed();
  }

  /// Trains on batches [first, last), as many of them as fall to this rank's group.
  GroupSegment segment(int64_t first, int64_t last) {
    model->begin_segment(first, last);
    while (group_) {
      const auto ticket = model->ticket();
      if (!ticket) break;
      results.push_back(stepper->step(ticket->batch, 0.05, source));
      batches.push_back(ticket->batch);
    }
    stepper->settle();
    const GroupSegment end = model->end_segment(stepper->weights(), stepper->states());
    stepper->weights_changed();
    return end;
  }

  std::vector<float> state() {
    std::vector<float> all(stepper->weights().begin(), stepper->weights().end());
    for (const std::span<float> s : stepper->states()) all.insert(all.end(), s.begin(), s.end());
    return all;
  }
  std::vector<float> weights() { return {stepper->weights().begin(), stepper->weights().end()}; }
  const Team& world() const { return world_; }
  bool leads() const { return group_ && group_->rank() == 0; }

 private:
  Team world_;
  GroupLayout layout_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<engine::Program> program_;
  std::unique_ptr<comm::Communicator> comm_;
  std::optional<Team> group_;

 public:
  std::optional<GroupModel> model;
  std::optional<Stepper> stepper;
  TestSource source;
  std::vector<StepResult> results;
  std::vector<int64_t> batches;
};

constexpr int64_t kSteps = 8;

void expect_the_bits_of_one_worker(const Graph& graph, const std::string& optimizer, double clip) {
  Training alone(graph, 1, optimizer, clip);
  std::vector<double> losses;
  for (int64_t step = 0; step < kSteps; ++step) losses.push_back(alone.step(step).loss);
  const std::vector<float> expected = alone.state();
  const std::vector<Setting> settings = {
      {{"a"}, 1, 1},
      {{"a", "a"}, 1, 2},
      {{"a", "b"}, 1, 1},
      {{"a", "b", "c"}, 1, 2},
      {{"a", "a", "b", "b"}, 1, 3, false, 2},
      {{"a", "b", "s"}, 1, 1, true},
      {{"a", "a", "a", "a"}, 1, 2, true},
  };
  for (const Setting& setting : settings) {
    SCOPED_TRACE(setting);
    comm::run_as_threads(
        static_cast<int>(setting.hosts.size()),
        [&](comm::Communicator& world) {
          Member member(world, setting, graph, optimizer, clip);
          // In two segments: the model comes and goes between them.
          member.segment(0, 3);
          const GroupSegment end = member.segment(3, kSteps);
          EXPECT_EQ(end.last, kSteps);
          EXPECT_EQ(end.staleness.mean(), 0);
          if (member.leads()) {
            for (size_t i = 0; i < losses.size(); ++i) {
              EXPECT_EQ(member.results[i].loss, losses[i]) << "step " << i;
            }
          }
          if (world.rank() == 0) {
            EXPECT_TRUE(member.state() == expected) << "other weights";
          }
        },
        setting.hosts);
  }
}

TEST(OneGroup, GivesTheWeightsOfOneWorkerWithSgd) {
  expect_the_bits_of_one_worker(small_resnet(), "sgd", 0);
}
TEST(OneGroup, GivesTheWeightsOfOneWorkerWithClippedAdam) {
  expect_the_bits_of_one_worker(small_resnet(), "adam", 1.0);
}
TEST(OneGroup, GivesTheWeightsOfOneWorkerWithLars) {
  expect_the_bits_of_one_worker(small_lenet(), "lars", 0);
}

const std::vector<Setting>& several_groups() {
  static const std::vector<Setting> all = {
      {{"a", "a"}, 2, 1},
      {{"a", "b"}, 2, 2},
      {{"a", "a", "b", "b"}, 2, 2},
      {{"a", "b", "a", "b"}, 4, 3},
      {{"a", "b", "c", "d", "e", "f"}, 3, 2},
      {{"a", "a", "b", "b", "s", "s"}, 2, 2, true},
  };
  return all;
}

TEST(Groups, TrainEveryBatchOnceAndAgree) {
  constexpr int64_t kMany = 24;
  for (const Setting& setting : several_groups()) {
    SCOPED_TRACE(setting);
    comm::run_as_threads(
        static_cast<int>(setting.hosts.size()),
        [&](comm::Communicator& world) {
          Member member(world, setting, small_resnet(), "sgd", 0);
          member.segment(0, 5);
          const GroupSegment end = member.segment(5, kMany);
          EXPECT_EQ(end.last, kMany);
          EXPECT_GT(end.pieces, 0);
          EXPECT_EQ(end.refused, 0);
          EXPECT_EQ(end.staleness.total(), end.pieces);
          std::vector<int64_t> taken(kMany);
          if (member.leads()) {
            for (const int64_t b : member.batches) ++taken[static_cast<size_t>(b)];
          }
          for (int64_t b = 0; b < kMany; ++b) {
            const std::vector<int64_t> all =
                member.world().gather_numbers(taken[static_cast<size_t>(b)], "test");
            EXPECT_EQ(std::accumulate(all.begin(), all.end(), int64_t{0}), 1) << "batch " << b;
          }
          for (const StepResult& r : member.results) EXPECT_TRUE(r.finite);
          const std::vector<float> own = member.weights();
          for (const auto& bytes : member.world().gather(std::as_bytes(std::span(own)), "test")) {
            EXPECT_EQ(std::memcmp(bytes.data(), own.data(), bytes.size()), 0) << "other weights";
          }
        },
        setting.hosts);
  }
}

TEST(Groups, ServersRefuseWhatIsNotFinite) {
  for (const double clip : {0.0, 1.0}) {
    for (const Setting& setting : several_groups()) {
      SCOPED_TRACE(setting);
      comm::run_as_threads(
          static_cast<int>(setting.hosts.size()),
          [&](comm::Communicator& world) {
            Member member(world, setting, small_resnet(), "sgd", clip);
            member.source.nan_at = {4, 2};
            const GroupSegment end = member.segment(0, 12);
            EXPECT_EQ(end.last, 12);
            EXPECT_GT(end.refused, 0);
            EXPECT_GT(end.pieces, end.refused);
            for (const float w : member.weights()) EXPECT_TRUE(std::isfinite(w));
          },
          setting.hosts);
    }
  }
}

TEST(Groups, MeasureTheMomentumInForce) {
  const Setting setting{{"a", "a", "a", "a"}, 4, 1};
  comm::run_as_threads(
      4,
      [&](comm::Communicator& world) {
        Member member(world, setting, small_resnet(), "sgd", 0, true);
        const GroupSegment end = member.segment(0, 300);
        ASSERT_TRUE(end.measured.has_value());
        EXPECT_NE(end.momentum, optim::explicit_momentum(0.9, 4)) << "it is corrected";
        EXPECT_LT(end.momentum, 0.9);
      },
      setting.hosts);
}

TEST(Groups, ASegmentCanBeClosed) {
  const Setting setting{{"a", "b", "a", "b"}, 2, 2};
  comm::run_as_threads(
      4,
      [&](comm::Communicator& world) {
        Member member(world, setting, small_resnet(), "sgd", 0);
        member.model->begin_segment(0, 1000);
        while (const auto ticket = member.model->ticket()) {
          member.stepper->step(ticket->batch, 0.05, member.source);
          if (ticket->batch >= 6) member.model->close();
        }
        member.stepper->settle();
        const GroupSegment end =
            member.model->end_segment(member.stepper->weights(), member.stepper->states());
        EXPECT_GE(end.last, 7);
        EXPECT_LT(end.last, 20);
      },
      setting.hosts);
}

TEST(GroupLayout, SpreadsGroupsAndServers) {
  comm::run_as_threads(
      6,
      [](comm::Communicator& world) {
        const Team team(world, kDeadline);
        const GroupLayout layout = lay_out(team, 3, 2, false);
        EXPECT_EQ(layout.members, (std::vector<std::vector<int>>{{0, 2}, {1, 4}, {3, 5}}));
        EXPECT_EQ(layout.servers, (std::vector<int>{0, 1}));
        EXPECT_EQ(layout.leader(1), 1);
        const GroupLayout own = lay_out(team, 2, 2, true);
        EXPECT_EQ(own.group,
                  (std::vector<int>{0, 1, 0, 1, GroupLayout::kNone, GroupLayout::kNone}));
        EXPECT_EQ(own.servers, (std::vector<int>{4, 5}));
      },
      {"a", "b", "a", "b", "a", "b"});
}

std::string said(int ranks, int groups, int servers, bool own_ranks) {
  std::string text;
  comm::run_as_threads(ranks, [&](comm::Communicator& world) {
    const Team team(world, kDeadline);
    try {
      lay_out(team, groups, servers, own_ranks);
    } catch (const InputError& error) {
      if (world.rank() == 0) text = error.what();
    }
  });
  return text;
}

TEST(GroupLayout, RefusesWhatIsNotEqual) {
  EXPECT_THAT(said(6, 4, 1, false),
              HasSubstr("6 workers cannot be 4 groups of equal size; 3 or 6"));
  EXPECT_THAT(said(3, 5, 1, false), HasSubstr("3 can"));
  EXPECT_THAT(said(2, 1, 2, true), HasSubstr("leave no worker"));
  EXPECT_THAT(said(2, 1, 3, false), HasSubstr("3 servers cannot be spread over 2 workers"));
}

}  // namespace
}  // namespace convoy::sync
