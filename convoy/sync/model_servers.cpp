#include "convoy/sync/model_servers.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "convoy/base/error.hpp"

namespace convoy::sync {
namespace {

constexpr int kCoordinator = 0;

bool measures(const optim::Optimizer& optimizer, const UpdateOptions& options) {
  return optimizer.needs_norms() || options.clip_norm > 0 || options.measure;
}

ServerOptions checked(const ServerOptions& options, const optim::Optimizer& optimizer,
                      int workers) {
  if (options.scheme == Scheme::stale && options.bound < 0) {
    refuse("workers cannot be {} batches ahead of the slowest; the bound is 0 or more",
           options.bound);
  }
  if (options.scheme != Scheme::backup) return options;
  if (options.backups < 0 || options.backups >= workers) {
    refuse("of {} workers, {} cannot be backups: it must be 0 to {}", workers, options.backups,
           workers - 1);
  }
  if (measures(optimizer, options.update)) {
    refuse(
        "with backup workers nobody has the whole gradient of a step, so its norm is not known: "
        "choose an optimizer other than lars, and neither clip nor measure gradients");
  }
  return options;
}

/// Pushes that make up an update.
int pushes_of(const ServerOptions& options, int workers) {
  return options.scheme == Scheme::backup ? workers - options.backups : 1;
}

comm::Task and_say_so(comm::Task task, std::atomic<bool>& done) {
  co_await std::move(task);
  done.store(true, std::memory_order_release);
}

template <class T>
std::span<T> part(std::span<T> arena, const comm::Strip& shard) {
  return arena.empty()
             ? arena
             : arena.subspan(static_cast<size_t>(shard.begin), static_cast<size_t>(shard.size()));
}

}  // namespace

/// What each worker brings to the end of a segment: of its client, then of its server.
struct ModelServers::Counts {
  int64_t pushes = 0;
  int64_t late = 0;
  int64_t refused = 0;
  double losses = 0;
  int64_t last = 0;
  int64_t updates = 0;
  Staleness staleness;
};

ModelServers::ModelServers(const Team& team, const engine::Program& program,
                           const optim::Optimizer& optimizer, const ServerOptions& options)
    : team_(team),
      program_(program),
      options_(checked(options, optimizer, team.size())),
      layout_(layout(program, optimizer, options, team.size())),
      chunks_(cut_into_chunks(program.arena())),
      sent_norms_(layout_.norms),
      answers_(layout_.shards.size()),
      versions_(layout_.shards.size()),
      shard_(program, optimizer, options.update, layout_.shards[static_cast<size_t>(team.rank())],
             pushes_of(options, team.size())) {
  if (layout_.norms > 0) {
    gradient_norm2_.resize(chunks_.size());
    weight_norm2_.resize(chunks_.size());
    ModelArrays arrays;
    arrays.gradient_norm2 = gradient_norm2_;
    arrays.weight_norm2 = weight_norm2_;
    norms_ = std::make_unique<Updater>(program, optimizer, options.update, arrays);
  }
  if (team.world() != nullptr) comm_ = team.world()->split(0);
  if (team.rank() == kCoordinator) tickets_ = std::make_unique<Tickets>(options, team.size());
  thread_ = std::make_unique<comm::CommThread>(options.deadline, options.pause);
  server_ = std::make_unique<ShardServer>(team, comm_.get(), *thread_, shard_, tickets_.get(),
                                          layout_.norms, options.piece);
}

ServerLayout ModelServers::layout(const engine::Program& program, const optim::Optimizer& optimizer,
                                  const ServerOptions& options, int workers) {
  ServerLayout layout;
  layout.scheme = options.scheme;
  layout.shards = cut_into_shards(program.arena(), workers);
  layout.piece = options.piece;
  if (measures(optimizer, options.update)) layout.norms = 2 * program.arena().tensors().size();
  layout.arrays = 1 + static_cast<size_t>(optimizer.state_arrays());
  return layout;
}

/// Tasks know everything else, so they go first.
ModelServers::~ModelServers() {
  thread_.reset();
}

/// Has the communication thread do it, and waits.
void ModelServers::run(const std::string& what, const std::function<comm::Task()>& make) {
  std::atomic<bool> done = false;
  check(thread_ != nullptr, "nobody goes on after a failure");
  thread_->post(fmt::format("{} of {}", what, team_.name(team_.rank())),
                [&] { return and_say_so(make(), done); });
  await([&] { return done.load(std::memory_order_acquire); });
}

/// Its deadline is that of the communication thread's tasks. If one has failed, all are given up
/// before this returns, so that none touches the caller's memory any more.
void ModelServers::await(const std::function<bool()>& holds) {
  sync::await([&] { return thread_->failed() || holds(); },
              Seconds{std::numeric_limits<double>::infinity()}, [] { return "the servers"; });
  try {
    thread_->rethrow();
  } catch (...) {
    thread_.reset();
    throw;
  }
}

comm::Task ModelServers::call_one(int server, Call call, Answer& answer, Parcel parcel) {
  if (server == team_.rank()) {
    co_await server_->answer(server, call, answer, parcel);
    co_return;
  }
  comm::Requests requests;
  if (call.answered()) {
    requests.add(comm_->receive(server, kAnswerTag, std::as_writable_bytes(std::span(&answer, 1))));
  }
  receive_pieces(*comm_, server, kWeightsTag, std::as_writable_bytes(parcel.weights),
                 options_.piece, requests);
  requests.add(comm_->send(server, kCallTag, std::as_bytes(std::span(&call, 1))));
  send_pieces(*comm_, server, kGradientTag, std::as_bytes(parcel.norms), options_.piece, requests);
  send_pieces(*comm_, server, kGradientTag, std::as_bytes(parcel.gradient), options_.piece,
              requests);
  co_await std::move(requests);
}

comm::Task ModelServers::call_all(Call call, std::span<float> weights,
                                  std::span<const float> gradient) {
  comm::Tasks calls;
  for (int step = 0; step < team_.size(); ++step) {  // everybody begins with another one
    const int server = (team_.rank() + step) % team_.size();
    const auto at = static_cast<size_t>(server);
    Parcel parcel;
    parcel.weights = part(weights, layout_.shards[at]);
    parcel.gradient = part(gradient, layout_.shards[at]);
    if (call.kind == Call::Kind::push) {
      call.version = versions_[at];
      parcel.norms = sent_norms_;
    }
    calls.add(call_one(server, call, answers_[at], parcel));
  }
  co_await std::move(calls);
}

Answer ModelServers::ask(Call call, const std::string& what) {
  run(what, [&] { return call_one(kCoordinator, call, answer_, {}); });
  return answer_;
}

void ModelServers::load(std::span<const float> weights, const States& states) {
  team_.gather_text("", "loading the model");  // as patiently as worker 0 may take to read it
  std::vector<std::span<const float>> model = {weights};
  model.insert(model.end(), states.begin(), states.end());
  run("loading the model", [&] { return scatter(model); });
}

comm::Task ModelServers::scatter(std::vector<std::span<const float>> model) {
  comm::Requests requests;
  for (size_t a = 0; a < shard_.arrays(); ++a) {
    if (team_.rank() != kCoordinator) {
      receive_pieces(*comm_, kCoordinator, kModelTag, std::as_writable_bytes(shard_.array(a)),
                     options_.piece, requests);
      continue;
    }
    for (int to = 0; to < team_.size(); ++to) {
      const std::span<const float> shard = part(model[a], layout_.shards[static_cast<size_t>(to)]);
      if (to == kCoordinator) {
        std::ranges::copy(shard, shard_.array(a).begin());
      } else {
        send_pieces(*comm_, to, kModelTag, std::as_bytes(shard), options_.piece, requests);
      }
    }
  }
  co_await std::move(requests);
}

comm::Task ModelServers::collect(std::vector<std::span<float>> model) {
  comm::Requests requests;
  const int n = team_.size();
  for (size_t a = 0; a < shard_.arrays(); ++a) {
    for (int step = 1; step < n; ++step) {
      const int from = (team_.rank() + n - step) % n;
      const int to = (team_.rank() + step) % n;
      const std::span<float> theirs = part(model[a], layout_.shards[static_cast<size_t>(from)]);
      receive_pieces(*comm_, from, kModelTag, std::as_writable_bytes(theirs), options_.piece,
                     requests);
      send_pieces(*comm_, to, kModelTag, std::as_bytes(shard_.array(a)), options_.piece, requests);
    }
    const comm::Strip& own = layout_.shards[static_cast<size_t>(team_.rank())];
    std::ranges::copy(shard_.array(a), part(model[a], own).begin());
  }
  co_await std::move(requests);
}

void ModelServers::begin_segment(int64_t first, int64_t last) {
  check(over_ && held_.empty(), "one segment at a time");
  const std::string own = fmt::format("tickets {} to {}", first, last);
  for (const std::string& other : team_.gather_text(own, "beginning a segment")) {
    check(other == own, "all begin the same segment");
  }
  over_ = false;
  pulled_ = false;
  pushes_ = late_ = refused_ = 0;
  losses_ = 0;
  version_before_ = shard_.version();
  if (tickets_) tickets_->begin(first, last);
  server_->begin();
}

std::optional<int64_t> ModelServers::ticket() {
  check(held_.size() < 2, "one ticket may be taken early");
  if (over_) return std::nullopt;
  Call call;
  call.kind = Call::Kind::ticket;
  const Answer answer = ask(call, "the ticket");
  needed_ = answer.updates;
  if (answer.value == Call::kNone) {
    over_ = true;
    return std::nullopt;
  }
  held_.push_back(answer.value);
  return answer.value;
}

void ModelServers::pull(std::span<float> weights) {
  check(!held_.empty(), "a ticket comes before the weights");
  Call call;
  if (options_.scheme == Scheme::stale) {
    call.kind = Call::Kind::start;
    ask(call, "the start");
  }
  call.kind = Call::Kind::pull;
  call.version = needed_;
  run("the pull", [&] { return call_all(call, weights, {}); });
  for (size_t i = 0; i < versions_.size(); ++i) versions_[i] = answers_[i].value;
  if (norms_) measure(weights, false, weight_norm2_);
  pulled_ = true;
}

bool ModelServers::finite(std::span<const float> gradient) const {
  return std::all_of(chunks_.begin(), chunks_.end(), [&](const Chunk& chunk) {
    return all_finite(part(gradient, {chunk.begin, chunk.end}));
  });
}

/// As Updater::measure does, whose sums over chunks these go into.
void ModelServers::measure(std::span<const float> values, bool parameters_only,
                           std::span<double> norm2) const {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const engine::Tensor& tensor = program_.arena().tensors()[chunks_[i].tensor];
    const bool counts = !parameters_only || tensor.kind == engine::Kind::parameter;
    norm2[i] = counts ? optim::squared_norm(part(values, {chunks_[i].begin, chunks_[i].end})) : 0;
  }
}

double ModelServers::gradient_norm() const {
  return norms_ ? norms_->gradient_norm() : 0;
}

/// backup: the coordinator knows who came in time, and says so when all of the step is decided.
Fate ModelServers::fate(const Push& push, bool finite) {
  if (options_.scheme != Scheme::backup) return finite ? Fate::applied : Fate::refused;
  Call call;
  call.kind = Call::Kind::report;
  call.step = push.ticket;
  call.finite = finite ? 1 : 0;
  const Answer answer = ask(call, "the report");
  needed_ = answer.updates;
  return static_cast<Fate>(answer.value);
}

void ModelServers::send(const Push& push, std::span<const float> gradient) {
  Call call;
  call.kind = Call::Kind::push;
  call.step = push.ticket;
  call.learning_rate = push.learning_rate;
  if (norms_) {
    measure(gradient, true, gradient_norm2_);
    const optim::StepContext context = norms_->context(push.ticket, push.learning_rate);
    call.gradient_scale = context.gradient_scale;
    const auto rest = std::ranges::copy(context.gradient_norm2, sent_norms_.begin()).out;
    std::ranges::copy(context.weight_norm2, rest);
  }
  run("the push", [&] { return call_all(call, {}, gradient); });
}

Fate ModelServers::push(const Push& push, std::span<const float> gradient) {
  check(!held_.empty() && held_.front() == push.ticket, "tickets are pushed as they came");
  check(pulled_, "a gradient is computed from weights that were pulled for it");
  held_.pop_front();
  pulled_ = false;
  const Fate result = fate(push, std::isfinite(push.loss) && finite(gradient));
  switch (result) {
    case Fate::applied:
      send(push, gradient);
      ++pushes_;
      losses_ += push.loss;
      break;
    case Fate::late:
      held_.clear();
      ++late_;
      break;
    case Fate::refused:
      ++refused_;
      break;
  }
  // Only now: whoever may start because of it finds the update made in all shards.
  if (options_.scheme == Scheme::stale) {
    Call call;
    call.kind = Call::Kind::finished;
    ask(call, "the end of a batch");
  }
  return result;
}

void ModelServers::close() {
  if (over_) return;
  Call call;
  call.kind = Call::Kind::close;
  ask(call, "closing the segment");
}

SegmentEnd ModelServers::end_segment(std::span<float> weights, const States& states) {
  check(over_ && held_.empty(), "a segment ends when there are no more tickets");
  Call call;
  call.kind = Call::Kind::leave;
  run("leaving the segment", [&] { return call_all(call, {}, {}); });
  await([&] { return server_->over(); });

  Counts own;
  own.pushes = pushes_;
  own.late = late_;
  own.refused = refused_;
  own.losses = losses_;
  own.last = tickets_ ? tickets_->unused() : 0;
  own.updates = shard_.version() - version_before_;
  own.staleness = shard_.take_staleness();
  std::vector<Counts> all;
  for (const auto& bytes : team_.gather(std::as_bytes(std::span(&own, 1)), "ending a segment")) {
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof(Counts));
  }
  const SegmentEnd end = add_up(all);
  staleness_ += end.staleness;

  std::vector<std::span<float>> model = {weights};
  model.insert(model.end(), states.begin(), states.end());
  run("collecting the model", [&] { return collect(model); });
  return end;
}

SegmentEnd ModelServers::add_up(const std::vector<Counts>& all) const {
  SegmentEnd end;
  end.last = all.front().last;
  end.updates = all.front().updates;
  for (const Counts& c : all) {
    end.pushes += c.pushes;
    end.late += c.late;
    end.refused += c.refused;
    end.loss += c.losses;
    end.staleness += c.staleness;
  }
  if (end.pushes > 0) end.loss /= static_cast<double>(end.pushes);
  const int64_t each = pushes_of(options_, team_.size());
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].staleness.total() == end.pushes && all[r].updates * each == end.pushes) continue;
    fail("workers pushed {} gradients, but the shard of {} has {} of them in {} updates",
         end.pushes, team_.name(static_cast<int>(r)), all[r].staleness.total(), all[r].updates);
  }
  return end;
}

}  // namespace convoy::sync
