#include "convoy/sync/shard_server.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convoy/base/error.hpp"

namespace convoy::sync {
namespace {

template <class T>
std::span<std::byte> bytes_of(T& object) {
  return std::as_writable_bytes(std::span(&object, 1));
}

}  // namespace

void send_pieces(comm::Communicator& c, int to, int tag, std::span<const std::byte> bytes,
                 Bytes longest, comm::Requests& requests) {
  const auto most = static_cast<size_t>(longest.value);
  for (size_t at = 0; at < bytes.size(); at += most) {
    requests.add(c.send(to, tag, bytes.subspan(at, std::min(most, bytes.size() - at))));
  }
}

void receive_pieces(comm::Communicator& c, int from, int tag, std::span<std::byte> bytes,
                    Bytes longest, comm::Requests& requests) {
  const auto most = static_cast<size_t>(longest.value);
  for (size_t at = 0; at < bytes.size(); at += most) {
    requests.add(c.receive(from, tag, bytes.subspan(at, std::min(most, bytes.size() - at))));
  }
}

ShardServer::ShardServer(const Team& team, comm::Communicator* comm, comm::CommThread& thread,
                         ModelShard& shard, Tickets* tickets, size_t norms, Bytes piece)
    : team_(team),
      comm_(comm),
      thread_(thread),
      shard_(shard),
      tickets_(tickets),
      piece_(piece),
      desks_(static_cast<size_t>(team.size())) {
  for (size_t client = 0; client < desks_.size(); ++client) {
    if (client == static_cast<size_t>(team.rank())) continue;
    desks_[client] = std::make_unique<Desk>();
    desks_[client]->strip = AlignedBuffer::of_floats(static_cast<int64_t>(shard.array(0).size()));
    desks_[client]->norms.resize(norms);
  }
}

void ShardServer::begin() {
  left_ = 0;
  for (int client = 0; client < team_.size(); ++client) {
    if (client != team_.rank()) listen(client);
  }
}

/// Every call is a task of its own, so that the thread's deadline begins anew with each.
void ShardServer::listen(int client) {
  thread_.post(fmt::format("serving {}", team_.name(client)),
               [this, client] { return serve(client); });
}

comm::Task ShardServer::serve(int client) {
  Desk& desk = *desks_[static_cast<size_t>(client)];
  co_await comm_->receive(client, kCallTag, bytes_of(desk.call));
  const Call call = desk.call;
  Parcel parcel;
  if (call.kind == Call::Kind::pull) parcel.weights = desk.strip.floats();
  if (call.kind == Call::Kind::push) {
    co_await receive_gradient(client);
    parcel.gradient = desk.strip.floats();
    parcel.norms = desk.norms;
  }
  co_await answer(client, call, desk.answer, parcel);
  if (call.kind == Call::Kind::leave) co_return;
  if (call.answered()) {
    comm::Requests sends;
    sends.add(comm_->send(client, kAnswerTag, bytes_of(desk.answer)));
    send_pieces(*comm_, client, kWeightsTag, std::as_bytes(parcel.weights), piece_, sends);
    co_await std::move(sends);
  }
  listen(client);
}

comm::Task ShardServer::receive_gradient(int client) {
  Desk& desk = *desks_[static_cast<size_t>(client)];
  comm::Requests receives;
  receive_pieces(*comm_, client, kGradientTag, std::as_writable_bytes(std::span(desk.norms)),
                 piece_, receives);
  receive_pieces(*comm_, client, kGradientTag, desk.strip.bytes(), piece_, receives);
  co_await std::move(receives);
}

comm::Task ShardServer::answer(int client, Call call, Answer& to, Parcel parcel) {
  switch (call.kind) {
    case Call::Kind::ticket:
      to.value = tickets_->next(client).value_or(Call::kNone);
      to.updates = tickets_->updates();
      break;
    case Call::Kind::start:
      co_await start(client);
      break;
    case Call::Kind::finished:
      tickets_->finish(client);
      break;
    case Call::Kind::report:
      co_await report(client, call, to);
      break;
    case Call::Kind::close:
      tickets_->close();
      break;
    case Call::Kind::pull:
      co_await give(call, to, parcel.weights);
      break;
    case Call::Kind::push:
      co_await take(client, call, to, parcel);
      break;
    case Call::Kind::leave:
      if (tickets_ != nullptr) tickets_->leave(client);
      left_.fetch_add(1, std::memory_order_release);
      break;
  }
}

comm::Task ShardServer::start(int client) {
  if (tickets_->may_start(client)) co_return;
  co_await comm::Until([this, client] { return tickets_->may_start(client); },
                       fmt::format("waiting for the slowest: worker {}",
                                   fmt::join(tickets_->slowest(), ", worker ")));
}

comm::Task ShardServer::report(int client, Call call, Answer& to) {
  tickets_->report(client, call.step, call.finite != 0);
  co_await comm::Until([this, client] { return tickets_->fate(client).has_value(); },
                       fmt::format("waiting for enough gradients of step {}", call.step));
  to.value = static_cast<int64_t>(*tickets_->fate(client));
  to.updates = tickets_->updates();
}

comm::Task ShardServer::give(Call call, Answer& to, std::span<float> weights) {
  co_await comm::Until([this, call] { return shard_.version() >= call.version; },
                       fmt::format("waiting for gradients of update {}", call.version));
  std::ranges::copy(shard_.array(0), weights.begin());
  to.value = shard_.version();
}

comm::Task ShardServer::take(int client, Call call, Answer& to, Parcel parcel) {
  ModelShard::Push push;
  push.context.step = call.step;
  push.context.learning_rate = call.learning_rate;
  push.context.gradient_scale = call.gradient_scale;
  push.context.gradient_norm2 = parcel.norms.first(parcel.norms.size() / 2);
  push.context.weight_norm2 = parcel.norms.last(parcel.norms.size() / 2);
  push.version = call.version;
  push.gradient = parcel.gradient;
  const int64_t before = shard_.version();
  shard_.add(client, push);
  co_await comm::Until([this, before] { return shard_.version() > before; },
                       fmt::format("waiting for further gradients of step {}", call.step));
  to.value = shard_.version();
}

}  // namespace convoy::sync
