#pragma once
// Training against model servers with gradients that are small whole numbers: their sum is the same
// in every order, so the weights say whether one was lost or counted twice. Used by workers as
// threads and by workers as processes.

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "convoy/base/error.hpp"
#include "convoy/base/random.hpp"
#include "convoy/comm/communicator.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/job/job.hpp"
#include "convoy/model/zoo.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/model_servers.hpp"
#include "convoy/sync/team.hpp"

namespace convoy::sync {

inline constexpr double kExactRate = 0.125;

inline ServerOptions server_options(Scheme scheme, int64_t bound = 0, int backups = 0) {
  ServerOptions options;
  options.scheme = scheme;
  options.bound = bound;
  options.backups = backups;
  options.pause = Seconds{50e-6};
  options.piece = Bytes{20'000};  // so that there are several
  return options;
}

/// Without batch norm; some tens of chunks.
inline std::unique_ptr<engine::Program> plain_program() {
  model::ZooOptions zoo;
  zoo.input = model::Shape{1, 16, 16};
  engine::CompileOptions options;
  options.grain = 4;
  return std::make_unique<engine::Program>(model::build("lenet", zoo), options);
}

/// w ← w − η·g
inline std::unique_ptr<optim::Optimizer> plain_optimizer() {
  job::Train train;
  train.momentum = 0;
  return optim::make_optimizer(train);
}

inline float exact_gradient(int64_t ticket, int worker, int64_t i) {
  return static_cast<float>((ticket * 5 + worker * 3 + i) % 7 - 3);
}

inline std::vector<float> exact_gradients(int64_t size, int64_t ticket, int worker) {
  std::vector<float> all(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    all[static_cast<size_t>(i)] = exact_gradient(ticket, worker, i);
  }
  return all;
}

/// Everybody's, added up.
template <class T>
std::vector<T> sum_of_all(const Team& team, const std::vector<T>& own) {
  std::vector<T> sum(own.size());
  if (own.empty()) return sum;
  for (const auto& bytes : team.gather(std::as_bytes(std::span(own)), "adding up")) {
    std::vector<T> other(own.size());
    std::memcpy(other.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  }
  return sum;
}

struct Exercise {
  ServerOptions options;
  int64_t first = 0;
  int64_t last = 0;
  bool ahead = false;       ///< tickets are taken early
  int64_t close_after = 0;  ///< batches, after which worker 0 closes the segment; 0: it does not
  uint64_t seed = 1;        ///< who dawdles when
};

/// A segment from zero weights; throws if tickets, counts or weights are not what they must be.
inline SegmentEnd exercise(const Team& team, const engine::Program& program, ModelServers& servers,
                           const Exercise& e) {
  const int64_t size = program.arena().size();
  std::vector<float> weights(static_cast<size_t>(size));
  std::vector<float> sum(weights.size());                             // of what was applied
  std::vector<int64_t> taken(static_cast<size_t>(e.last - e.first));  // by ticket
  Stream random(e.seed, Purpose::test, 0, static_cast<uint64_t>(team.rank()));
  const auto dawdle = [&] {
    for (uint64_t i = random.below(40); i > 0; --i) std::this_thread::yield();
  };

  servers.load(weights, {});
  servers.begin_segment(e.first, e.last);
  int64_t batches = 0;
  std::optional<int64_t> ticket = servers.ticket();
  while (ticket) {
    servers.pull(weights);
    dawdle();
    std::optional<int64_t> next;
    if (e.ahead) next = servers.ticket();
    if (++batches == e.close_after && team.rank() == 0) servers.close();
    const std::vector<float> gradient = exact_gradients(size, *ticket, team.rank());
    const Fate fate = servers.push({*ticket, kExactRate, 1.0}, gradient);
    if (fate == Fate::refused) fail("ticket {} was refused", *ticket);
    if (fate == Fate::applied) {
      ++taken[static_cast<size_t>(*ticket - e.first)];
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    }
    if (!e.ahead || fate == Fate::late) next = servers.ticket();
    ticket = next;
  }
  const SegmentEnd end = servers.end_segment(weights, {});

  const bool backup = e.options.scheme == Scheme::backup;
  const int each = backup ? team.size() - e.options.backups : 1;
  taken = sum_of_all(team, taken);
  for (int64_t t = e.first; t < e.last; ++t) {
    const int64_t times = taken[static_cast<size_t>(t - e.first)];
    if (times != (t < end.last ? each : 0)) fail("ticket {} was applied {} times", t, times);
  }
  if (end.pushes != (end.last - e.first) * each ||
      end.staleness.total() != end.pushes * team.size())
    fail("{} pushes up to ticket {}, staleness of {}", end.pushes, end.last, end.staleness.total());
  if (end.loss != (end.pushes > 0 ? 1.0 : 0.0)) fail("a mean loss of {}", end.loss);
  sum = sum_of_all(team, sum);
  for (const Chunk& chunk : cut_into_chunks(program.arena())) {
    for (auto i = static_cast<size_t>(chunk.begin); i < static_cast<size_t>(chunk.end); ++i) {
      const float expected = -static_cast<float>(kExactRate) * sum[i] / static_cast<float>(each);
      if (weights[i] != expected) fail("weight {} is {}, not {}", i, weights[i], expected);
    }
  }
  return end;
}

}  // namespace convoy::sync
