#include "convoy/sync/shard_lines.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "convoy/base/error.hpp"

namespace convoy::sync {
namespace {

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

/// Chunks that momentum is measured by, and versions of them that are kept.
constexpr size_t kWatched = 8;
constexpr int kHistory = 100;

}  // namespace

ShardLines::ShardLines(const Team& team, comm::Communicator& comm, comm::CommThread& thread,
                       ModelShard& shard, size_t norms, int servers)
    : team_(team),
      comm_(comm),
      thread_(thread),
      shard_(shard),
      norms_(norms),
      pushing_(team.size(), servers + 1),
      turns_(static_cast<size_t>(team.size()), comm::Turnstile(kInTurn)) {}

void ShardLines::set_lines(const std::vector<Line>& lines) {
  lines_.clear();
  for (const Line& line : lines) {
    auto desk = std::make_unique<Desk>();
    desk->line = line;
    desk->norms.resize(norms_);
    desk->floats = AlignedBuffer::of_floats(line.floats.size());
    lines_.push_back(std::move(desk));
  }
}

void ShardLines::begin() {
  left_ = 0;
  for (size_t i = 0; i < lines_.size(); ++i) listen(i);
}

ShardLines::Counts ShardLines::take_counts() {
  counts_.staleness = shard_.take_staleness();
  return std::exchange(counts_, {});
}

/// Every exchange is a task of its own, so that the thread's deadline begins anew with each.
void ShardLines::listen(size_t index) {
  thread_.post(fmt::format("serving {}", team_.name(lines_[index]->line.client)),
               [this, index] { return serve(index); });
}

comm::Task ShardLines::serve(size_t index) {
  Desk& desk = *lines_[index];
  const int client = desk.line.client;
  const size_t number = desk.line.number;
  co_await comm_.receive(client, push_tag(number), bytes_of(desk.push));
  if (desk.push.kind == Push::Kind::leave) {
    left_.fetch_add(1, std::memory_order_release);
    co_return;
  }
  if (desk.push.kind == Push::Kind::gradient) {
    co_await pushing_.pass(client);
    co_await receive_gradient(desk);
    pushing_.leave(client);
  }
  const bool applied = apply(desk);
  ++(applied ? counts_.applied : counts_.refused);
  // The weights are copied when they go: the newest there are by then.
  comm::Turnstile& turns = turns_[static_cast<size_t>(client)];
  co_await turns.pass();
  desk.pull = {.version = shard_.version_of(desk.line.floats), .applied = applied ? 1 : 0};
  const std::span<float> room =
      desk.floats.floats().first(static_cast<size_t>(desk.line.floats.size()));
  std::ranges::copy(shard_.weights(desk.line.floats), room.begin());
  comm::Requests sends;
  sends.add(comm_.send(client, pull_tag(number), bytes_of(desk.pull)));
  sends.add(comm_.send(client, pull_tag(number), std::as_bytes(room)));
  co_await std::move(sends);
  turns.leave();
  listen(index);
}

comm::Task ShardLines::receive_gradient(Desk& desk) {
  const int client = desk.line.client;
  const int tag = push_tag(desk.line.number);
  comm::Requests receives;
  if (!desk.norms.empty()) {
    receives.add(comm_.receive(client, tag, std::as_writable_bytes(std::span(desk.norms))));
  }
  const std::span<float> room =
      desk.floats.floats().first(static_cast<size_t>(desk.line.floats.size()));
  receives.add(comm_.receive(client, tag, std::as_writable_bytes(room)));
  co_await std::move(receives);
}

bool ShardLines::apply(Desk& desk) {
  const std::span<const float> gradient =
      desk.floats.floats().first(static_cast<size_t>(desk.line.floats.size()));
  if (desk.push.kind != Push::Kind::gradient || !all_finite(gradient)) return false;
  optim::StepContext context;
  context.step = desk.push.step;
  context.learning_rate = desk.push.learning_rate;
  context.gradient_scale = desk.push.gradient_scale;
  context.momentum = desk.push.momentum;
  const std::span<const double> norms = desk.norms;
  context.gradient_norm2 = norms.first(norms.size() / 2);
  context.weight_norm2 = norms.last(norms.size() / 2);
  shard_.update(desk.line.floats, context, gradient, desk.push.version);
  watch(desk);
  return true;
}

void ShardLines::watch_momentum() {
  const std::vector<size_t> chunks = shard_.parameter_chunks();
  if (chunks.empty()) return;
  watched_.clear();
  for (size_t i = 0; i < std::min(kWatched, chunks.size()); ++i) {
    const size_t chunk = chunks[i * chunks.size() / std::min(kWatched, chunks.size())];
    const comm::Strip floats = shard_.floats(chunk);
    watched_.push_back({chunk, optim::MomentumMeter(static_cast<size_t>(floats.size()), kHistory)});
    watched_.back().meter.moved(shard_.weights(floats));
  }
}

/// After an update by this desk's gradient.
void ShardLines::watch(const Desk& desk) {
  if (!shard_.begins_chunk(desk.line.floats.begin)) return;
  for (Watched& w : watched_) {
    const comm::Strip chunk = shard_.floats(w.chunk);
    if (chunk.begin < desk.line.floats.begin || chunk.end > desk.line.floats.end) continue;
    w.meter.moved(shard_.weights(chunk));
    const auto at = static_cast<size_t>(chunk.begin - desk.line.floats.begin);
    const std::span<const float> gradient =
        desk.floats.floats().subspan(at, static_cast<size_t>(chunk.size()));
    // Versions of the meter count from when it began to watch.
    const int64_t age = shard_.version_of(chunk) - 1 - desk.push.version;
    w.meter.arrived(w.meter.version() - 1 - age, gradient, desk.push.learning_rate);
  }
}

std::optional<double> ShardLines::momentum() const {
  double product = 0;
  double square = 0;
  for (const Watched& w : watched_) {
    if (!w.meter.total()) continue;
    product += w.meter.product();
    square += w.meter.square();
  }
  if (square <= 0) return std::nullopt;
  return product / square;
}

}  // namespace convoy::sync
