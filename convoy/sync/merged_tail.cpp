#include "convoy/sync/merged_tail.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "convoy/base/error.hpp"

namespace convoy::sync {
namespace {

constexpr int kHeaderTag = 1;
constexpr int kSamplesTag = 2;
constexpr int kLabelsTag = 3;
constexpr int kRowsTag = 4;
constexpr int kResultsTag = 5;
constexpr int kGradientTag = 6;
constexpr int kModelTag = 7;

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}
template <class T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

/// Of the rank of this worker among its group's, or of one that has none.
int place_in(const MergedTailOptions& options, std::optional<int> group, int rank) {
  if (!group) return 0;
  const std::vector<int>& members = options.groups[static_cast<size_t>(*group)];
  return static_cast<int>(std::ranges::find(members, rank) - members.begin());
}

std::vector<int> places_of(const MergedTailOptions& options, std::optional<int> group) {
  std::vector<int> places;
  if (!group) return places;
  for (size_t i = 0; i < options.groups[static_cast<size_t>(*group)].size(); ++i) {
    places.push_back(static_cast<int>(i));
  }
  return places;
}

}  // namespace

/// What a worker sends before the rows of a round.
struct MergedTail::Header {
  int64_t step = 0;
  double learning_rate = 0;
  int64_t blocks = 0;  ///< grains
  int64_t first = 0;   ///< round of the batch
  int64_t last = 0;
};

/// On the classifier's rank: a thread with a task for each group.
class MergedTail::Server {
 public:
  struct Client {
    Header header;
    std::vector<int64_t> samples;
    std::vector<int32_t> labels;
    std::vector<float> rows;
    std::vector<engine::GrainResult> results;
    /// Of a worker on this very rank: nothing, its rows, or their gradients are here.
    enum class Here { nothing, rows, gradients };
    std::atomic<Here> here{Here::nothing};
  };

  Server(comm::Communicator& comm, const engine::Program& program,
         const optim::Optimizer& optimizer, const MergedTailOptions& options)
      : comm_(comm),
        program_(program),
        options_(options),
        tail_(program.tail()->last(options.tail.layers)) {
    weights_ = AlignedBuffer::of_floats(tail_.floats);
    std::vector<std::span<float>> states;
    for (int i = 0; i < optimizer.state_arrays(); ++i) {
      states_.push_back(AlignedBuffer::of_floats(tail_.floats));
      states.push_back(states_.back().floats());
    }
    SplitTailOptions alone = options.tail;
    alone.copies = 1;
    math_ = std::make_unique<SplitTail>(program, optimizer, alone, weights_.floats(), states);
    for (const std::vector<int>& members : options.groups) {
      auto desk = std::make_unique<Desk>();
      desk->clients = std::vector<Client>(members.size());
      desks_.push_back(std::move(desk));
    }
  }

  void begin() {
    // Groups may compute for long, or evaluate; who dies is missed by others.
    thread_ = std::make_unique<comm::CommThread>(Seconds{std::numeric_limits<double>::infinity()});
    for (size_t g = 0; g < desks_.size(); ++g) listen(g);
  }
  void stop() {
    if (thread_) thread_->stop();
  }
  void rethrow() const {
    if (thread_) thread_->rethrow();
  }

  std::span<float> array(size_t index) {
    return index == 0 ? weights_.floats() : states_[index - 1].floats();
  }
  int64_t refused() const { return refused_.load(); }
  /// For other threads: every batch that was answered has become an update.
  bool settled() const { return updating_.load(std::memory_order_acquire) == 0; }
  /// For a worker on this rank, which fills it in and waits.
  Client& client(size_t group, size_t member) { return desks_[group]->clients[member]; }

 private:
  struct Desk {
    std::vector<Client> clients;
    bool finite = true;  // all rounds of the batch so far
  };

  void listen(size_t group) {
    thread_->post(fmt::format("the classifier of group {}", group),
                  [this, group] { return serve(group); });
  }

  comm::Task serve(size_t group) {
    Desk& desk = *desks_[group];
    const std::vector<int>& members = options_.groups[group];
    co_await headers(desk, members);
    co_await payloads(desk, members);
    co_await comm::Until([this, group] { return !busy_ || *busy_ == group; },
                         "waiting for another group's batch");
    compute(group);
    // Workers go on with their gradients while the weights are updated.
    const Header header = desk.clients.front().header;
    const bool last = header.last != 0;
    if (last) ++updating_;
    comm::Requests sends;
    for (size_t m = 0; m < members.size(); ++m) {
      Client& c = desk.clients[m];
      if (members[m] == comm_.rank()) {
        c.here.store(Client::Here::gradients, std::memory_order_release);
        continue;
      }
      if (c.header.blocks == 0) continue;
      sends.add(comm_.send(members[m], kResultsTag, bytes_of(c.results)));
      sends.add(comm_.send(members[m], kGradientTag, bytes_of(c.rows)));
    }
    co_await std::move(sends);
    if (last) end_batch(desk, header);
    listen(group);
  }

  comm::Task headers(Desk& desk, const std::vector<int>& members) {
    comm::Requests receives;
    for (size_t m = 0; m < members.size(); ++m) {
      if (members[m] == comm_.rank()) continue;
      receives.add(comm_.receive(members[m], kHeaderTag, bytes_of(desk.clients[m].header)));
    }
    co_await std::move(receives);
    for (size_t m = 0; m < members.size(); ++m) {
      if (members[m] != comm_.rank()) continue;
      Client* own = &desk.clients[m];
      co_await comm::Until(
          [own] { return own->here.load(std::memory_order_acquire) == Client::Here::rows; },
          "waiting for this worker's lanes");
    }
  }

  comm::Task payloads(Desk& desk, const std::vector<int>& members) {
    comm::Requests receives;
    for (size_t m = 0; m < members.size(); ++m) {
      if (members[m] == comm_.rank()) continue;
      Client& c = desk.clients[m];
      const auto blocks = static_cast<size_t>(c.header.blocks);
      const size_t rows = blocks * static_cast<size_t>(program_.grain());
      c.samples.resize(blocks);
      c.labels.resize(rows);
      c.rows.resize(rows * static_cast<size_t>(tail_.layers.front().inputs));
      c.results.resize(blocks);
      if (blocks == 0) continue;
      receives.add(comm_.receive(members[m], kSamplesTag, bytes_of(c.samples)));
      receives.add(comm_.receive(members[m], kLabelsTag, bytes_of(c.labels)));
      receives.add(comm_.receive(members[m], kRowsTag, bytes_of(c.rows)));
    }
    co_await std::move(receives);
  }

  void compute(size_t group) {
    Desk& desk = *desks_[group];
    const Header& header = desk.clients.front().header;
    if (header.first != 0) {
      busy_ = group;
      desk.finite = true;
      math_->begin_batch(header.step, header.learning_rate);
    }
    std::vector<SplitTail::Rows> parts;
    for (Client& c : desk.clients) parts.push_back({c.samples, c.labels, c.rows, c.results});
    math_->compute(parts);
    for (const Client& c : desk.clients) {
      for (const engine::GrainResult& r : c.results) desk.finite &= std::isfinite(r.loss);
    }
  }

  void end_batch(const Desk& desk, const Header& header) {
    busy_.reset();
    if (desk.finite) {
      optim::StepContext context;
      context.step = header.step;
      context.learning_rate = header.learning_rate;
      math_->update(context);
    } else {
      ++refused_;
    }
    updating_.fetch_sub(1, std::memory_order_release);
  }

  comm::Communicator& comm_;
  const engine::Program& program_;
  MergedTailOptions options_;
  engine::Tail tail_;
  AlignedBuffer weights_;
  std::vector<AlignedBuffer> states_;
  std::unique_ptr<SplitTail> math_;
  std::vector<std::unique_ptr<Desk>> desks_;
  std::optional<size_t> busy_;  // the group whose batch has further rounds
  std::atomic<int64_t> refused_{0};
  std::atomic<int> updating_{0};  // batches that were answered, but are no update yet
  std::unique_ptr<comm::CommThread> thread_;
};

MergedTail::MergedTail(const Team& world, std::optional<int> group, const engine::Program& program,
                       const optim::Optimizer& optimizer, const MergedTailOptions& options,
                       std::span<float> weights, std::vector<std::span<float>> states, bool writes)
    : TailPart(places_of(options, group), place_in(options, group, world.rank())),
      world_(world),
      program_(program),
      options_(options),
      tail_(program.tail()->last(options.tail.layers)),
      weights_(weights),
      states_(std::move(states)),
      takers_(world.gather_numbers(writes ? 1 : 0, "laying out the classifier")),
      group_(group) {
  comm_ = world.world()->split(0);
  models_ = world.world()->split(0);
  if (world.rank() == options.rank) {
    server_ = std::make_unique<Server>(*comm_, program, optimizer, options);
  }
}

/// Tasks know everything else, so they go first.
MergedTail::~MergedTail() {
  if (server_) server_->stop();
}

/// On the classifier's rank: the last batch's update is made beside what follows its answer.
void MergedTail::settle() {
  if (!server_) return;
  await(
      [&] {
        server_->rethrow();
        return server_->settled();
      },
      options_.tail.deadline, [] { return "the classifier's update"; });
}

int64_t MergedTail::refused() const {
  return server_ ? server_->refused() : 0;
}

void MergedTail::load() {
  world_.gather_text("", "loading the classifier");
  comm::wait(move_to_server(), options_.tail.deadline, "loading the classifier");
  if (server_) server_->begin();
}

void MergedTail::collect(bool states) {
  settle();
  comm::wait(move_from_server(states), options_.tail.deadline, "collecting the classifier");
}

comm::Task MergedTail::move_to_server() {
  comm::Requests requests;
  for (size_t a = 0; a < 1 + states_.size(); ++a) {
    if (server_) {
      requests.add(models_->receive(0, kModelTag, std::as_writable_bytes(server_->array(a))));
    }
    if (world_.rank() > 0) continue;
    const std::span<float> from = tail_of(a == 0 ? weights_ : states_[a - 1]);
    requests.add(models_->send(options_.rank, kModelTag, std::as_bytes(from)));
  }
  co_await std::move(requests);
}

comm::Task MergedTail::move_from_server(bool states) {
  comm::Requests requests;
  for (size_t a = 0; a < (states ? 1 + states_.size() : 1); ++a) {
    const auto wants = [&](int rank) {
      return a == 0 ? takers_[static_cast<size_t>(rank)] != 0 : rank == 0;
    };
    if (wants(world_.rank())) {
      const std::span<float> to = tail_of(a == 0 ? weights_ : states_[a - 1]);
      requests.add(models_->receive(options_.rank, kModelTag, std::as_writable_bytes(to)));
    }
    for (int r = 0; server_ && r < world_.size(); ++r) {
      if (wants(r)) {
        requests.add(models_->send(r, kModelTag, std::as_bytes(server_->array(a))));
      }
    }
  }
  co_await std::move(requests);
}

void MergedTail::run_round(const std::vector<Place>& places) {
  const int64_t grain = program_.grain();
  const int64_t inputs = tail_.layers.front().inputs;
  std::vector<int64_t> grains;
  for (const Place& p : places) {
    if (p.worker == place()) grains.push_back(p.grain);
  }
  Header header{step(), learning_rate(), static_cast<int64_t>(grains.size()), first_ ? 1 : 0,
                last_round() ? 1 : 0};
  first_ = false;
  samples_.clear();
  labels_.clear();
  rows_.resize(grains.size() * static_cast<size_t>(grain * inputs));
  for (size_t i = 0; i < grains.size(); ++i) {
    const Brought& b = brought(grains[i]);
    samples_.push_back(grains[i] * grain);
    labels_.insert(labels_.end(), b.labels, b.labels + grain);
    std::copy_n(b.rows, grain * inputs, rows_.data() + static_cast<int64_t>(i) * grain * inputs);
  }
  results_.assign(grains.size(), {});
  if (server_) {
    compute_here(header);
  } else {
    comm::wait(exchange(header), options_.tail.deadline, "the classifier's answer");
  }
  for (size_t i = 0; i < grains.size(); ++i) {
    const Brought& b = brought(grains[i]);
    *b.result = results_[i];
    if (b.gradient == nullptr) continue;
    std::copy_n(rows_.data() + static_cast<int64_t>(i) * grain * inputs, grain * inputs,
                b.gradient);
  }
}

/// By the thread beside this worker's lanes.
void MergedTail::compute_here(const Header& header) {
  using Here = Server::Client::Here;
  Server::Client& c = server_->client(static_cast<size_t>(*group_), static_cast<size_t>(place()));
  c.header = header;
  c.samples = samples_;
  c.labels = labels_;
  c.results = results_;
  std::swap(c.rows, rows_);
  c.here.store(Here::rows, std::memory_order_release);
  await(
      [&] {
        server_->rethrow();
        return c.here.load(std::memory_order_acquire) == Here::gradients;
      },
      options_.tail.deadline, [] { return "the classifier's answer"; });
  std::swap(c.rows, rows_);
  results_ = c.results;
  c.here.store(Here::nothing, std::memory_order_release);
}

comm::Task MergedTail::exchange(const Header& header) {
  comm::Requests requests;
  Header own = header;
  requests.add(comm_->send(options_.rank, kHeaderTag, bytes_of(own)));
  if (header.blocks > 0) {
    requests.add(comm_->send(options_.rank, kSamplesTag, bytes_of(samples_)));
    requests.add(comm_->send(options_.rank, kLabelsTag, bytes_of(labels_)));
    requests.add(comm_->send(options_.rank, kRowsTag, bytes_of(rows_)));
  }
  co_await std::move(requests);
  if (header.blocks == 0) co_return;
  comm::Requests answer;
  answer.add(comm_->receive(options_.rank, kResultsTag, bytes_of(results_)));
  answer.add(comm_->receive(options_.rank, kGradientTag, bytes_of(rows_)));
  co_await std::move(answer);
}

}  // namespace convoy::sync
