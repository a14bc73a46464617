// Workers that train against model servers, here as threads: no update is lost, bounds are kept,
// the slow are dropped, and every wait ends.

#include "convoy/sync/model_servers.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/comm/thread_world.hpp"

#include "tests/sync/server_exercise.hpp"

namespace convoy::sync {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(ModelServers, NeedNoOthers) {
  const auto program = plain_program();
  const auto optimizer = plain_optimizer();
  Exercise e{.options = server_options(Scheme::stale), .first = 3, .last = 9, .ahead = true};
  ModelServers servers(Team::alone(), *program, *optimizer, e.options);
  EXPECT_EQ(exercise(Team::alone(), *program, servers, e).updates, 6);
  EXPECT_EQ(servers.sent(), comm::Traffic{});
}

/// Workers as threads do `work`, each with its servers of a plain model.
using Work = std::function<void(const Team&, const engine::Program&, ModelServers&)>;
void run(int workers, const ServerOptions& options, const Work& work) {
  const auto program = plain_program();
  const auto optimizer = plain_optimizer();
  comm::run_as_threads(workers, [&](comm::Communicator& world) {
    const Team team(world, options.deadline);
    ModelServers servers(team, *program, *optimizer, options);
    work(team, *program, servers);
  });
}

TEST(ModelServersAndLanes, LoseNothingInRandomRuns) {
  Stream random(3, Purpose::test, 0, 0);
  for (uint64_t round = 0; round < 24; ++round) {
    const auto scheme = static_cast<Scheme>(round % 3);
    const int workers = 1 + static_cast<int>(round / 3 % 4);
    // The mean of 1, 2 or 4 whole numbers is exact.
    const int backups = workers == 3 ? 1 : workers == 4 ? 2 * static_cast<int>(round % 2) : 0;
    Exercise e;
    e.options = server_options(scheme, static_cast<int64_t>(random.below(3)), backups);
    e.first = static_cast<int64_t>(random.below(5));
    e.last = e.first + static_cast<int64_t>(random.below(20));
    e.ahead = random.below(2) == 1;
    e.seed = round;
    SCOPED_TRACE(fmt::format("round {}: {} workers, {} backups, bound {}", round, workers, backups,
                             e.options.bound));
    run(workers, e.options, [&](const Team& team, const engine::Program& program, auto& servers) {
      int64_t staleness = 0;
      for (int segment = 0; segment < 2; ++segment) {
        const SegmentEnd end = exercise(team, program, servers, e);
        EXPECT_EQ(end.last, e.last);
        EXPECT_EQ(end.updates, e.last - e.first);
        staleness += end.staleness.total();
        if (scheme == Scheme::stale) {
          // Each of the others is at most s batches behind at the pull, and s + 1 ahead at the
          // push.
          EXPECT_LE(end.staleness.most(), (workers - 1) * (2 * e.options.bound + 1));
        } else if (scheme == Scheme::backup) {
          EXPECT_EQ(end.staleness.most(), 0);
        }
      }
      EXPECT_EQ(servers.staleness().total(), staleness);
    });
  }
}

TEST(ModelServersAndLanes, EndASegmentEarlyForEverybody) {
  for (const Scheme scheme : {Scheme::stale, Scheme::asynchronous, Scheme::backup}) {
    for (const bool ahead : {false, true}) {
      Exercise e{.options = server_options(scheme, 1, scheme == Scheme::backup ? 1 : 0),
                 .first = 0,
                 .last = 500,
                 .ahead = ahead,
                 .close_after = 5};
      run(3, e.options, [&](const Team& team, const engine::Program& program, auto& servers) {
        const SegmentEnd end = exercise(team, program, servers, e);
        EXPECT_GE(end.last, 5);
        EXPECT_LT(end.last, e.last);
        Exercise next = e;
        next.first = end.last;
        next.last = end.last + 7;
        next.close_after = 0;
        EXPECT_EQ(exercise(team, program, servers, next).last, next.last);
      });
    }
  }
}

/// What other workers have got to; nobody sleeps for it.
class Progress {
 public:
  void advance(int64_t by = 1) {
    count_ += by;
    count_.notify_all();
  }
  void await(int64_t least) const {
    for (int64_t now = count_; now < least; now = count_) count_.wait(now);
  }
  int64_t count() const { return count_; }

 private:
  std::atomic<int64_t> count_{0};
};

TEST(ModelServersAndLanes, KeepTheBoundWhileAWorkerIsHeldBack) {
  for (const int64_t bound : {0, 2}) {
    constexpr int kWorkers = 3;
    constexpr int64_t kHeldBack = 2;
    std::vector<Progress> pushes(kWorkers);
    run(kWorkers, server_options(Scheme::stale, bound),
        [&](const Team& team, const engine::Program& program, ModelServers& servers) {
          const auto own = static_cast<size_t>(team.rank());
          std::vector<float> weights(static_cast<size_t>(program.arena().size()));
          servers.load(weights, {});
          servers.begin_segment(0, 40);
          while (const auto ticket = servers.ticket()) {
            servers.pull(weights);
            const int64_t clock = pushes[own].count();
            for (const Progress& other : pushes) EXPECT_LE(clock - other.count(), bound);
            if (own == kHeldBack && clock == 0) {
              // All others do what they may: batches at clocks 0 to s.
              pushes[0].await(bound + 1);
              pushes[1].await(bound + 1);
            }
            pushes[own].advance();  // before, so that nobody can start who has not seen it
            servers.push({*ticket, kExactRate, 0}, weights);
          }
          pushes[own].advance(40);  // whoever has left holds nobody back
          const SegmentEnd end = servers.end_segment(weights, {});
          EXPECT_EQ(end.updates, 40);
          EXPECT_LE(end.staleness.most(), (kWorkers - 1) * (2 * bound + 1));
        });
  }
}

TEST(ModelServersAndLanes, DropTheSlowestAndTakeTheMeanOfTheOthers) {
  constexpr int kSlow = 1;
  constexpr int64_t kSteps = 6;
  Progress first;      // steps of worker 0 that are applied
  Progress slow_took;  // steps the slow worker has begun
  run(3, server_options(Scheme::backup, 0, 1),
      [&](const Team& team, const engine::Program& program, ModelServers& servers) {
        const int64_t size = program.arena().size();
        std::vector<float> weights(static_cast<size_t>(size));
        servers.load(weights, {});
        servers.begin_segment(0, kSteps);
        std::vector<int64_t> steps;
        while (const auto ticket = servers.ticket()) {
          steps.push_back(*ticket);
          servers.pull(weights);
          if (team.rank() == kSlow) slow_took.advance();
          // The others end only when it has begun its second step, however slow the machine.
          if (team.rank() == 0 && *ticket == kSteps - 1) slow_took.await(2);
          // It computes step 0 until the others have done three, and its next one until the end.
          if (team.rank() == kSlow) first.await(steps.size() == 1 ? 3 : kSteps);
          const Fate fate =
              servers.push({*ticket, kExactRate, 1}, exact_gradients(size, *ticket, team.rank()));
          EXPECT_EQ(fate, team.rank() == kSlow ? Fate::late : Fate::applied);
          if (team.rank() == 0) first.advance();
        }
        if (team.rank() == kSlow) {
          ASSERT_EQ(steps.size(), 2U);
          EXPECT_GE(steps[1], 3) << "it goes on where the others are";
        } else {
          EXPECT_EQ(steps.size(), static_cast<size_t>(kSteps));
        }
        const SegmentEnd end = servers.end_segment(weights, {});
        EXPECT_EQ(end.updates, kSteps);
        EXPECT_EQ(end.pushes, 2 * kSteps);
        EXPECT_EQ(end.late, 2);
        for (const Chunk& chunk : cut_into_chunks(program.arena())) {
          float sum = 0;
          for (int64_t step = 0; step < kSteps; ++step) {
            sum += exact_gradient(step, 0, chunk.begin) + exact_gradient(step, 2, chunk.begin);
          }
          EXPECT_EQ(weights[static_cast<size_t>(chunk.begin)],
                    -static_cast<float>(kExactRate) * sum / 2);
        }
      });
}

/// Worker 1 brings `value` into its first batch, as a gradient or as a loss.
SegmentEnd with_one_bad_gradient(const ServerOptions& options, int workers, float value,
                                 bool as_loss) {
  SegmentEnd result;
  run(workers, options,
      [&](const Team& team, const engine::Program& program, ModelServers& servers) {
        std::vector<float> weights(static_cast<size_t>(program.arena().size()));
        servers.load(weights, {});
        servers.begin_segment(0, 12);
        bool bad = team.rank() == 1;
        while (const auto ticket = servers.ticket()) {
          servers.pull(weights);
          std::vector<float> gradient(weights.size(), 1);
          if (bad && !as_loss) gradient[gradient.size() / 2] = value;
          const Fate fate = servers.push({*ticket, 1, bad && as_loss ? value : 0}, gradient);
          if (options.scheme != Scheme::backup) {
            EXPECT_EQ(fate, bad ? Fate::refused : Fate::applied);
          }
          bad = false;
        }
        const SegmentEnd end = servers.end_segment(weights, {});
        for (const Chunk& chunk : cut_into_chunks(program.arena())) {
          EXPECT_EQ(weights[static_cast<size_t>(chunk.begin)], -static_cast<float>(end.updates));
        }
        if (team.rank() == 0) result = end;
      });
  return result;
}

TEST(ModelServersAndLanes, RefuseWhatIsNotFinite) {
  for (const bool as_loss : {false, true}) {
    for (const float value : {kNan, -std::numeric_limits<float>::infinity()}) {
      const SegmentEnd stale =
          with_one_bad_gradient(server_options(Scheme::stale), 2, value, as_loss);
      EXPECT_EQ(stale.refused, 1);
      EXPECT_EQ(stale.updates, 11);
      const SegmentEnd free =
          with_one_bad_gradient(server_options(Scheme::asynchronous), 2, value, as_loss);
      EXPECT_LE(free.refused, 1) << "the other one may have been quick";
      EXPECT_EQ(free.updates + free.refused, 12);
      const SegmentEnd given_up =
          with_one_bad_gradient(server_options(Scheme::backup), 2, value, as_loss);
      EXPECT_EQ(given_up.updates, 11) << "a step that nobody can stand in for";
      // Whether the other one comes before that is decided or after it.
      EXPECT_GE(given_up.refused, 1);
      EXPECT_EQ(given_up.refused + given_up.late, 2);
    }
  }
}

TEST(ModelShard, RefusesWhatItsWorkerShouldHaveRefused) {
  const auto program = plain_program();
  const auto optimizer = plain_optimizer();
  const comm::Strips shards = cut_into_shards(program->arena(), 2);
  ModelShard shard(*program, *optimizer, {}, shards[1], 1);
  std::vector<float> gradient(static_cast<size_t>(shards[1].size()), 1);
  ModelShard::Push push;
  push.gradient = gradient;
  shard.add(0, push);
  EXPECT_EQ(shard.version(), 1);
  gradient[5] = kNan;
  EXPECT_THROW(shard.add(0, push), Error);
  EXPECT_EQ(shard.version(), 1);
}

TEST(ModelShard, ShardsAreAboutEqualAndCoverTheArena) {
  const auto program = plain_program();
  for (const int count : {1, 2, 3, 7, 100}) {
    const comm::Strips shards = cut_into_shards(program->arena(), count);
    ASSERT_EQ(shards.size(), static_cast<size_t>(count));
    int64_t at = 0;
    for (const comm::Strip& shard : shards) {
      EXPECT_EQ(shard.begin, at);
      EXPECT_LE(shard.size(), program->arena().size() / count + kChunk);
      at = shard.end;
    }
    EXPECT_EQ(at, program->arena().size());
  }
}

TEST(ModelShard, ServersOwnStripesInTurn) {
  const auto program = plain_program();
  const int64_t size = program->arena().size();
  for (const int servers : {1, 2, 3, 7}) {
    const comm::Strips stripes = cut_into_stripes(program->arena(), servers, Bytes{4 * 2 * kChunk});
    ASSERT_EQ(stripes.size() % static_cast<size_t>(servers), 0U);
    EXPECT_EQ(stripes.size() > static_cast<size_t>(servers),
              servers > 1 && size > 4 * kChunk * servers);
    std::vector<int64_t> owned(static_cast<size_t>(servers));
    int64_t at = 0;
    for (size_t s = 0; s < stripes.size(); ++s) {
      EXPECT_EQ(stripes[s].begin, at);
      owned[s % owned.size()] += stripes[s].size();
      at = stripes[s].end;
    }
    EXPECT_EQ(at, size);
    const auto rounds = static_cast<int64_t>(stripes.size() / owned.size());
    for (const int64_t floats : owned) EXPECT_LE(floats, size / servers + rounds * kChunk);
  }
}

TEST(ModelShard, OfSeveralStripesUpdatesOnlyThose) {
  const auto program = plain_program();
  const auto optimizer = plain_optimizer();
  const comm::Strips stripes = cut_into_stripes(program->arena(), 2, Bytes{4 * 2 * kChunk});
  ASSERT_GE(stripes.size(), 4U);
  ModelShard shard(*program, *optimizer, {}, {stripes[1], stripes[3]});
  const std::vector<float> gradient(static_cast<size_t>(stripes[3].size()), 1);
  optim::StepContext context;
  context.learning_rate = kExactRate;
  shard.update(stripes[3], context, gradient, 0);
  EXPECT_EQ(shard.version_of(stripes[3]), 1);
  EXPECT_EQ(shard.version_of(stripes[1]), 0);
  EXPECT_NE(shard.weights(stripes[3]).front(), 0);
  EXPECT_EQ(shard.weights(stripes[1]).front(), 0);
  EXPECT_THROW(shard.update(stripes[2], context, gradient, 0), std::logic_error);
}

void expect_named(const std::function<void()>& work, const std::string& name) {
  try {
    work();
    FAIL() << "nobody was missed";
  } catch (const comm::TimeoutError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(name), std::string::npos) << what;
  }
}

TEST(ModelServersAndLanes, EndWithTheNameOfAWorkerThatIsGone) {
  for (const Scheme scheme : {Scheme::stale, Scheme::asynchronous, Scheme::backup}) {
    for (const int gone : {0, 1}) {
      ServerOptions options = server_options(scheme);
      options.deadline = Seconds{0.5};
      run(2, options, [&](const Team& team, const engine::Program& program, ModelServers& servers) {
        std::vector<float> weights(static_cast<size_t>(program.arena().size()));
        servers.load(weights, {});
        servers.begin_segment(0, 1'000'000'000);
        const auto batch = [&] {
          const auto ticket = servers.ticket();
          servers.pull(weights);
          servers.push({*ticket, kExactRate, 0}, weights);
        };
        if (team.rank() == gone) {
          batch();
          return;
        }
        expect_named(
            [&] {
              for (;;) batch();
            },
            "rank " + std::to_string(gone));
      });
    }
  }
}

TEST(ModelServers, RefuseWhatASchemeCannotDo) {
  const auto program = plain_program();
  const auto sgd = plain_optimizer();
  job::Train train;
  train.optimizer = "lars";
  const auto lars = optim::make_optimizer(train);
  const auto make = [&](const ServerOptions& options, const optim::Optimizer& optimizer) {
    ModelServers servers(Team::alone(), *program, optimizer, options);
  };
  EXPECT_THROW(make(server_options(Scheme::stale, -1), *sgd), InputError);
  EXPECT_THROW(make(server_options(Scheme::backup, 0, 1), *sgd), InputError);
  EXPECT_THROW(make(server_options(Scheme::backup), *lars), InputError);
  ServerOptions clipped = server_options(Scheme::backup);
  clipped.update.clip_norm = 1;
  EXPECT_THROW(make(clipped, *sgd), InputError);
  EXPECT_NO_THROW(make(server_options(Scheme::asynchronous), *lars));
}

TEST(ModelServers, SendWhatTheirCostsSay) {
  for (const Scheme scheme : {Scheme::stale, Scheme::asynchronous, Scheme::backup}) {
    for (const bool measured : {false, true}) {
      if (measured && scheme == Scheme::backup) continue;
      ServerOptions options = server_options(scheme, 2);
      options.update.measure = measured;
      run(4, options, [&](const Team& team, const engine::Program& program, ModelServers& servers) {
        std::vector<float> weights(static_cast<size_t>(program.arena().size()));
        servers.load(weights, {});
        const comm::Traffic before = servers.sent();
        servers.begin_segment(0, 17);
        std::vector<int64_t> batches(4);  // by worker
        while (const auto ticket = servers.ticket()) {
          servers.pull(weights);
          servers.push({*ticket, kExactRate, 0}, weights);
          ++batches[static_cast<size_t>(team.rank())];
        }
        servers.end_segment(weights, {});
        batches = sum_of_all(team, batches);
        comm::Traffic expected = ModelServers::segment_traffic(servers.layout(), team.rank());
        for (int worker = 0; worker < 4; ++worker) {
          const comm::Traffic each = ModelServers::traffic(servers.layout(), team.rank(), worker);
          for (int64_t i = 0; i < batches[static_cast<size_t>(worker)]; ++i) expected += each;
        }
        const comm::Traffic sent = servers.sent() - before;
        EXPECT_EQ(sent.messages, expected.messages);
        EXPECT_EQ(sent.bytes, expected.bytes);
      });
    }
  }
}

}  // namespace
}  // namespace convoy::sync
