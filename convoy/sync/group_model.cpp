#include "convoy/sync/group_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/sync/shard_server.hpp"

namespace convoy::sync {
namespace {

/// Longest message where a whole model moves.
constexpr Bytes kLongest{8 << 20};

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

comm::Task and_say_so(comm::Task task, std::atomic<bool>& done) {
  co_await std::move(task);
  done.store(true, std::memory_order_release);
}

ServerOptions ticket_options(const GroupOptions& options) {
  ServerOptions o;
  o.scheme = options.bound >= 0 ? Scheme::stale : Scheme::asynchronous;
  o.bound = options.bound;
  return o;
}

std::string to_text(const std::vector<comm::Strip>& strips) {
  std::string text;
  for (const comm::Strip& s : strips) text += fmt::format("{} {} ", s.begin, s.end);
  return text;
}

std::vector<comm::Strip> to_strips(const std::string& text) {
  std::vector<comm::Strip> strips;
  std::istringstream in(text);
  for (comm::Strip s; in >> s.begin >> s.end;) strips.push_back(s);
  return strips;
}

/// A strip's parts by stripe.
std::vector<std::pair<size_t, comm::Strip>> stripes_of(const comm::Strip& strip,
                                                       const comm::Strips& stripes) {
  std::vector<std::pair<size_t, comm::Strip>> parts;
  for (size_t s = 0; s < stripes.size(); ++s) {
    const comm::Strip part{std::max(strip.begin, stripes[s].begin),
                           std::min(strip.end, stripes[s].end)};
    if (part.begin < part.end) parts.emplace_back(s, part);
  }
  return parts;
}

}  // namespace

/// Of a group's leader to the coordinator.
struct GroupModel::Call {
  enum class Kind : int64_t {
    ticket,  ///< its next batch; the one before is done
    close,   ///< no further batches for anybody
    leave,   ///< it asks no more; no answer
  };
  Kind kind = Kind::ticket;
};

struct GroupModel::Answer {
  static constexpr int64_t kNone = -1;
  int64_t batch = kNone;
  double momentum = 0;
};

/// What each rank brings to the end of a segment: as a client, as a server, as the coordinator.
struct GroupModel::Counts {
  int64_t pushed = 0;
  int64_t voided = 0;
  int64_t applied = 0;
  int64_t refused = 0;
  Staleness staleness;
  int64_t last = 0;
  double momentum = 0;
  double measured = std::numeric_limits<double>::quiet_NaN();
};

GroupModel::GroupModel(const Team& world, const GroupLayout& layout, const Team* group,
                       const engine::Program& program, const optim::Optimizer& optimizer,
                       const GroupOptions& options)
    : world_(world),
      layout_(layout),
      group_(group),
      options_(options),
      stripes_(cut_into_stripes(program.arena(), static_cast<int>(layout.servers.size()),
                                options.stripe)),
      turns_(layout.servers.size(), comm::Turnstile(kInTurn)) {
  check(world.world() != nullptr, "groups are of several processes");
  const bool measures = optimizer.needs_norms() || options.update.clip_norm > 0;
  if (measures) norms_ = 2 * program.arena().tensors().size();
  takers_ = world.gather_numbers(writes() ? 1 : 0, "laying out the groups");
  comm_ = world.world()->split(0);
  thread_ = std::make_unique<comm::CommThread>(options.deadline, options.pause);
  const auto own = std::ranges::find(layout.servers, world.rank());
  if (own != layout.servers.end()) {
    const auto index = static_cast<size_t>(own - layout.servers.begin());
    comm::Strips mine;
    for (size_t s = index; s < stripes_.size(); s += layout.servers.size()) {
      mine.push_back(stripes_[s]);
    }
    shard_ = std::make_unique<ModelShard>(program, optimizer, options.update, mine);
    lines_ = std::make_unique<ShardLines>(world, *comm_, *thread_, *shard_, norms_,
                                          static_cast<int>(layout.servers.size()));
  }
  if (!coordinates()) return;
  tickets_ = std::make_unique<Tickets>(ticket_options(options), layout.groups());
  const MomentumRule& rule = options.momentum;
  const double start = rule.applied.value_or(
      rule.total > 0 ? optim::explicit_momentum(rule.total, layout.groups()) : 0);
  loop_ = std::make_unique<optim::MomentumLoop>(rule.total, start);
  for (int g = 0; g < layout.groups(); ++g) {
    calls_.push_back(std::make_unique<Call>());
    answers_.push_back(std::make_unique<Answer>());
  }
}

/// Tasks know everything else, so they go first.
GroupModel::~GroupModel() {
  thread_->stop();
}

void GroupModel::run(const std::string& what, const std::function<comm::Task()>& make) {
  std::atomic<bool> done = false;
  thread_->post(fmt::format("{} of {}", what, world_.name(world_.rank())),
                [&] { return and_say_so(make(), done); });
  await([&] { return done.load(std::memory_order_acquire); });
}

/// Its deadline is that of the communication thread's tasks. If one has failed, all are given up
/// before this returns, so that none touches the caller's memory any more.
void GroupModel::await(const std::function<bool()>& holds) {
  sync::await([&] { return thread_->failed() || holds(); },
              Seconds{std::numeric_limits<double>::infinity()}, [] { return "the servers"; });
  if (!thread_->failed()) return;
  thread_->stop();
  thread_->rethrow();
}

size_t GroupModel::add_strips(const std::vector<comm::Strip>& strips) {
  check(!lines_made_, "servers know the buckets before the first segment");
  const size_t first = buckets_.size();
  for (const comm::Strip& strip : strips) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.strip = strip;
    bucket.gradient = AlignedBuffer::of_floats(strip.size());
    bucket.norms.resize(norms_);
    for (const auto& [stripe, floats] : stripes_of(strip, stripes_)) {
      auto piece = std::make_unique<Piece>();
      piece->server = owner(stripe);
      piece->line = lines_taken_++;
      piece->floats = floats;
      bucket.pieces.push_back(std::move(piece));
    }
  }
  return first;
}

std::span<float> GroupModel::gradient(size_t bucket) {
  Bucket& b = buckets_[bucket];
  return b.gradient.floats().first(static_cast<size_t>(b.strip.size()));
}

comm::Task GroupModel::swap(size_t bucket, optim::StepContext context, bool refused,
                            std::span<float> weights) {
  Bucket& b = buckets_[bucket];
  if (!b.norms.empty() && !refused) {
    const auto rest = std::ranges::copy(context.gradient_norm2, b.norms.begin()).out;
    std::ranges::copy(context.weight_norm2, rest);
  }
  comm::Tasks all;
  for (const std::unique_ptr<Piece>& piece : b.pieces) {
    piece->push.kind = refused ? Push::Kind::refused : Push::Kind::gradient;
    piece->push.version = piece->version;
    piece->push.step = context.step;
    piece->push.learning_rate = context.learning_rate;
    piece->push.gradient_scale = context.gradient_scale;
    piece->push.momentum = momentum_;
    all.add(exchange_piece(bucket, *piece, refused, weights));
  }
  co_await std::move(all);
}

comm::Task GroupModel::exchange_piece(size_t bucket, Piece& piece, bool refused,
                                      std::span<float> weights) {
  const Bucket& b = buckets_[bucket];
  const int server = layout_.servers[piece.server];
  comm::Turnstile& turns = turns_[piece.server];
  comm::Requests pull;
  pull.add(comm_->receive(server, pull_tag(piece.line), bytes_of(piece.pull)));
  pull.add(comm_->receive(server, pull_tag(piece.line),
                          std::as_writable_bytes(comm::at(weights, piece.floats))));
  co_await turns.pass();
  comm::Requests push;
  push.add(comm_->send(server, push_tag(piece.line), bytes_of(piece.push)));
  if (!refused) {
    if (!b.norms.empty()) {
      push.add(comm_->send(server, push_tag(piece.line), std::as_bytes(std::span(b.norms))));
    }
    const auto at = static_cast<size_t>(piece.floats.begin - b.strip.begin);
    push.add(comm_->send(
        server, push_tag(piece.line),
        std::as_bytes(b.gradient.floats().subspan(at, static_cast<size_t>(piece.floats.size())))));
  }
  ++(refused ? void_ : pushed_);
  co_await std::move(push);
  turns.leave();
  co_await std::move(pull);
  piece.version = piece.pull.version;
}

/// Everybody's strips, once all have them.
void GroupModel::make_lines() {
  std::vector<comm::Strip> own;
  for (const Bucket& b : buckets_) own.push_back(b.strip);
  const std::vector<std::string> all = world_.gather_text(to_text(own), "learning the buckets");
  lines_made_ = true;
  if (!serves()) return;
  const auto place = std::ranges::find(layout_.servers, world_.rank()) - layout_.servers.begin();
  std::vector<Line> lines;
  for (int client = 0; client < world_.size(); ++client) {
    size_t number = 0;
    for (const comm::Strip& strip : to_strips(all[static_cast<size_t>(client)])) {
      for (const auto& [stripe, floats] : stripes_of(strip, stripes_)) {
        if (owner(stripe) == static_cast<size_t>(place)) lines.push_back({client, number, floats});
        ++number;
      }
    }
  }
  lines_->set_lines(lines);
}

void GroupModel::load(std::span<float> weights, const States& states) {
  world_.gather_text("", "loading the model");  // as patiently as rank 0 may take to read it
  std::vector<std::span<const float>> model = {weights};
  model.insert(model.end(), states.begin(), states.end());
  run("loading the model", [&] { return scatter(model); });
  run("loading the model", [&] { return collect(weights, {}); });
  if (group_ != nullptr) group_->meet("loading the model");
}

comm::Task GroupModel::scatter(std::vector<std::span<const float>> model) {
  comm::Requests requests;
  const size_t arrays = model.size();
  for (size_t a = 0; a < arrays; ++a) {
    for (size_t s = 0; s < stripes_.size(); ++s) {
      const comm::Strip& stripe = stripes_[s];
      if (layout_.servers[owner(s)] == world_.rank()) {
        receive_pieces(*comm_, 0, kModelTag, std::as_writable_bytes(shard_->array(a, stripe)),
                       kLongest, requests);
      }
      if (world_.rank() > 0) continue;
      const std::span<const float> part =
          model[a].subspan(static_cast<size_t>(stripe.begin), static_cast<size_t>(stripe.size()));
      send_pieces(*comm_, layout_.servers[owner(s)], kModelTag, std::as_bytes(part), kLongest,
                  requests);
    }
  }
  co_await std::move(requests);
}

comm::Task GroupModel::collect(std::span<float> weights, States states) {
  comm::Requests requests;
  const size_t arrays = 1 + (states.empty() ? 0 : states.size());
  for (size_t a = 0; a < arrays; ++a) {
    const bool takes = a == 0 ? writes() : world_.rank() == 0;
    for (size_t s = 0; s < stripes_.size(); ++s) {
      const int server = layout_.servers[owner(s)];
      if (takes) {
        const std::span<float> to = a == 0 ? weights : states[a - 1];
        receive_pieces(*comm_, server, kModelTag, std::as_writable_bytes(comm::at(to, stripes_[s])),
                       kLongest, requests);
      }
      for (int r = 0; server == world_.rank() && r < world_.size(); ++r) {
        const bool wants = a == 0 ? takers_[static_cast<size_t>(r)] != 0 : r == 0;
        if (!wants) continue;
        send_pieces(*comm_, r, kModelTag, std::as_bytes(shard_->array(a, stripes_[s])), kLongest,
                    requests);
      }
    }
  }
  co_await std::move(requests);
}

void GroupModel::begin_segment(int64_t first, int64_t last) {
  check(over_, "one segment at a time");
  if (!lines_made_) make_lines();
  const std::string own = fmt::format("batches {} to {}", first, last);
  for (const std::string& other : world_.gather_text(own, "beginning a segment")) {
    check(other == own, "all begin the same segment");
  }
  over_ = false;
  pushed_ = 0;
  void_ = 0;
  if (serves()) lines_->begin();
  if (!coordinates()) return;
  if (options_.momentum.measured) lines_->watch_momentum();
  tickets_->begin(first, last);
  left_ = 0;
  for (int g = 0; g < layout_.groups(); ++g) answer_leader(g);
}

void GroupModel::answer_leader(int group) {
  thread_->post(fmt::format("serving group {}", group),
                [this, group] { return serve_leader(group); });
}

comm::Task GroupModel::serve_leader(int group) {
  Call& call = *calls_[static_cast<size_t>(group)];
  Answer& answer = *answers_[static_cast<size_t>(group)];
  const int leader = layout_.leader(group);
  co_await comm_->receive(leader, kCallTag, bytes_of(call));
  switch (call.kind) {
    case Call::Kind::ticket:
      if (options_.bound >= 0) {
        tickets_->finish(group);
        co_await comm::Until([this, group] { return tickets_->may_start(group); },
                             "waiting for the slowest group");
      }
      answer.batch = tickets_->next(group).value_or(Answer::kNone);
      break;
    case Call::Kind::close:
      tickets_->close();
      break;
    case Call::Kind::leave:
      tickets_->leave(group);
      left_.fetch_add(1, std::memory_order_release);
      co_return;
  }
  if (const auto measured = lines_->momentum()) loop_->correct(*measured);
  answer.momentum = loop_->applied();
  co_await comm_->send(leader, kAnswerTag, bytes_of(answer));
  answer_leader(group);
}

comm::Task GroupModel::ask(Call call, Answer& answer) {
  const int coordinator = layout_.servers.front();
  comm::Requests requests;
  if (call.kind != Call::Kind::leave) {
    requests.add(comm_->receive(coordinator, kAnswerTag, bytes_of(answer)));
  }
  requests.add(comm_->send(coordinator, kCallTag, bytes_of(call)));
  co_await std::move(requests);
}

std::optional<GroupModel::Ticket> GroupModel::ticket() {
  check(group_ != nullptr && !over_, "tickets are for groups, within a segment");
  std::vector<std::byte> bytes(sizeof(Answer));
  if (group_->rank() == 0) {
    Answer answer;
    Call call;
    call.kind = Call::Kind::ticket;
    run("the ticket", [&] { return ask(call, answer); });
    std::memcpy(bytes.data(), &answer, sizeof(Answer));
  }
  group_->from_first(bytes, "the group's next batch");
  Answer answer;
  std::memcpy(&answer, bytes.data(), sizeof(Answer));
  if (answer.batch == Answer::kNone) {
    over_ = true;
    return std::nullopt;
  }
  momentum_ = answer.momentum;
  return Ticket{answer.batch, answer.momentum};
}

void GroupModel::close() {
  if (over_ || group_->rank() > 0) return;
  Call call;
  call.kind = Call::Kind::close;
  Answer answer;
  run("closing the segment", [&] { return ask(call, answer); });
}

/// Tells every server that no more comes over its lines, and the coordinator.
comm::Task GroupModel::leave() {
  comm::Requests requests;
  for (const Bucket& bucket : buckets_) {
    for (const std::unique_ptr<Piece>& piece : bucket.pieces) {
      piece->push.kind = Push::Kind::leave;
      requests.add(comm_->send(layout_.servers[piece->server], push_tag(piece->line),
                               bytes_of(piece->push)));
    }
  }
  co_await std::move(requests);
  if (group_ == nullptr || group_->rank() > 0) co_return;
  Call call;
  call.kind = Call::Kind::leave;
  Answer none;
  co_await ask(call, none);
}

GroupSegment GroupModel::end_segment(std::span<float> weights, const States& states) {
  check(group_ == nullptr || over_, "a segment ends when there are no more tickets");
  over_ = true;
  run("leaving the segment", [&] { return leave(); });
  if (serves()) await([&] { return lines_->over(); });
  if (coordinates()) {
    await([&] { return left_.load(std::memory_order_acquire) == layout_.groups(); });
  }
  Counts own;
  own.pushed = pushed_;
  own.voided = void_;
  if (serves()) {
    const ShardLines::Counts served = lines_->take_counts();
    own.applied = served.applied;
    own.refused = served.refused;
    own.staleness = served.staleness;
  }
  if (coordinates()) {
    own.last = tickets_->unused();
    own.momentum = loop_->applied();
    own.measured = lines_->momentum().value_or(own.measured);
  }
  std::vector<Counts> all;
  for (const auto& bytes : world_.gather(std::as_bytes(std::span(&own, 1)), "ending a segment")) {
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof(Counts));
  }
  const GroupSegment end = add_up(all);
  staleness_ += end.staleness;
  run("collecting the model", [&] { return collect(weights, states); });
  if (group_ != nullptr) group_->meet("collecting the model");
  return end;
}

GroupSegment GroupModel::add_up(const std::vector<Counts>& all) const {
  GroupSegment end;
  int64_t pushed = 0;
  int64_t voided = 0;
  for (const Counts& c : all) {
    pushed += c.pushed;
    voided += c.voided;
    end.pieces += c.applied;
    end.refused += c.refused;
    end.staleness += c.staleness;
  }
  const Counts& coordinator = all[static_cast<size_t>(layout_.servers.front())];
  end.last = coordinator.last;
  end.momentum = coordinator.momentum;
  if (!std::isnan(coordinator.measured)) end.measured = coordinator.measured;
  if (pushed + voided != end.pieces + end.refused) {
    fail(
        "groups pushed {} pieces of gradients ({} of them void), but servers have {} and refused "
        "{}",
        pushed + voided, voided, end.pieces, end.refused);
  }
  return end;
}

}  // namespace convoy::sync
