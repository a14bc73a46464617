#include "convoy/comm/thread_world.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/comm/task.hpp"

namespace convoy::comm {
namespace {

/// One message or the place for one, whichever came first.
struct Posted {
  const std::byte* from = nullptr;  // a send
  std::byte* to = nullptr;          // a receive
  size_t size = 0;
  bool done = false;
  std::string error;
};

/// What the ranks of one communicator share.
struct World {
  explicit World(std::vector<std::string> host_names) : hosts(std::move(host_names)) {}

  std::vector<std::string> hosts;
  std::mutex mutex;
  using Key = std::tuple<int, int, int>;  // from, to, tag
  std::map<Key, std::deque<std::shared_ptr<Posted>>> sends, receives;
  std::string failure;  // of a rank, once there was one

  // For split and share: what each rank brought along, by how many times it has been there.
  std::map<int64_t, std::map<int, int64_t>> brought;
  std::map<std::pair<int64_t, int>, std::shared_ptr<World>> children;
  std::map<int64_t, std::shared_ptr<std::vector<AlignedBuffer>>> shared;

  void deliver(const Posted& send, Posted& receive) {
    if (send.size != receive.size) {
      receive.error = fmt::format("a message of {} bytes arrived where {} were expected", send.size,
                                  receive.size);
    } else if (send.size > 0) {
      std::memcpy(receive.to, send.from, send.size);
    }
  }
};

class ThreadRequest : public Request {
 public:
  ThreadRequest(std::shared_ptr<World> world, std::shared_ptr<Posted> posted, std::string text)
      : world_(std::move(world)), posted_(std::move(posted)), text_(std::move(text)) {}
  ~ThreadRequest() override {
    // Nobody may write to memory that is given up.
    const std::lock_guard lock(world_->mutex);
    for (auto* queues : {&world_->sends, &world_->receives}) {
      for (auto& [key, queue] : *queues) std::erase(queue, posted_);
    }
  }
  bool done() override {
    const std::lock_guard lock(world_->mutex);
    if (!posted_->error.empty()) fail("{}: {}", text_, posted_->error);
    if (!posted_->done && !world_->failure.empty()) fail("{}: {}", text_, world_->failure);
    return posted_->done;
  }
  std::string describe() const override { return text_; }

 private:
  std::shared_ptr<World> world_;
  std::shared_ptr<Posted> posted_;
  std::string text_;
};

class ThreadShared : public SharedMemory {
 public:
  explicit ThreadShared(std::shared_ptr<std::vector<AlignedBuffer>> parts)
      : parts_(std::move(parts)) {}
  std::span<std::byte> part(int rank) const override {
    return (*parts_)[static_cast<size_t>(rank)].bytes();
  }

 private:
  std::shared_ptr<std::vector<AlignedBuffer>> parts_;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<World> world, int rank)
      : world_(std::move(world)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_->hosts.size()); }
  const std::vector<std::string>& hosts() const override { return world_->hosts; }

  std::unique_ptr<Request> send(int to, int tag, std::span<const std::byte> bytes) override {
    count(bytes.size());
    auto posted = std::make_shared<Posted>();
    posted->from = bytes.data();
    posted->size = bytes.size();
    meet({rank_, to, tag}, posted, true);
    return request(posted, "sending", "to", to);
  }

  std::unique_ptr<Request> deliver(int to, int tag, std::span<const std::byte> bytes) override {
    return send(to, tag, bytes);  // is only done then anyway
  }

  std::unique_ptr<Request> receive(int from, int tag, std::span<std::byte> bytes) override {
    auto posted = std::make_shared<Posted>();
    posted->to = bytes.data();
    posted->size = bytes.size();
    meet({from, rank_, tag}, posted, false);
    return request(posted, "receiving", "from", from);
  }

  std::unique_ptr<Communicator> split(int color) override {
    const int64_t visit = bring(color);
    const std::lock_guard lock(world_->mutex);
    std::vector<std::string> hosts;
    int rank = 0;
    for (const auto& [other, its_color] : world_->brought[visit]) {
      if (its_color != color) continue;
      if (other < rank_) ++rank;
      hosts.push_back(world_->hosts[static_cast<size_t>(other)]);
    }
    auto& child = world_->children[{visit, color}];
    if (!child) child = std::make_shared<World>(hosts);
    auto part = std::make_unique<ThreadCommunicator>(child, rank);
    part->set_patience(patience());
    return part;
  }

  std::unique_ptr<SharedMemory> share(Bytes each) override {
    for (const std::string& host : hosts()) {
      check(host == hosts().front(), "ranks that share memory are on one node");
    }
    const int64_t visit = bring(each.value);
    const std::lock_guard lock(world_->mutex);
    auto& parts = world_->shared[visit];
    if (!parts) {
      parts = std::make_shared<std::vector<AlignedBuffer>>();
      for (const auto& [other, size] : world_->brought[visit]) parts->emplace_back(Bytes{size});
    }
    return std::make_unique<ThreadShared>(parts);
  }

 private:
  std::unique_ptr<Request> request(std::shared_ptr<Posted> posted, const char* what,
                                   const char* direction, int peer) {
    std::string text = fmt::format("{} {} {} rank {} ({})", what,
                                   to_string(Bytes{static_cast<int64_t>(posted->size)}), direction,
                                   peer, hosts()[static_cast<size_t>(peer)]);
    return std::make_unique<ThreadRequest>(world_, std::move(posted), std::move(text));
  }

  /// Delivers at once if the other side is there, else queues.
  void meet(const World::Key& key, const std::shared_ptr<Posted>& posted, bool is_send) {
    const std::lock_guard lock(world_->mutex);
    auto& others = is_send ? world_->receives[key] : world_->sends[key];
    if (others.empty()) {
      (is_send ? world_->sends : world_->receives)[key].push_back(posted);
      return;
    }
    const std::shared_ptr<Posted> other = others.front();
    others.pop_front();
    Posted& send = is_send ? *posted : *other;
    Posted& receive = is_send ? *other : *posted;
    world_->deliver(send, receive);
    posted->done = other->done = true;
  }

  /// Leaves a value and waits until all ranks have; returns which visit it was.
  int64_t bring(int64_t value) {
    const int64_t visit = visits_++;
    {
      const std::lock_guard lock(world_->mutex);
      world_->brought[visit][rank_] = value;
    }
    const Seconds begin = now();
    for (;;) {
      {
        const std::lock_guard lock(world_->mutex);
        const auto& brought = world_->brought[visit];
        if (static_cast<int>(brought.size()) == size()) return visit;
        if (!world_->failure.empty()) fail("{}", world_->failure);
        if (now() - begin > patience()) {
          int missing = 0;
          while (brought.contains(missing)) ++missing;
          throw TimeoutError(
              fmt::format("rank {} did not come within {}", missing, to_string(patience())));
        }
      }
      std::this_thread::yield();
    }
  }

  std::shared_ptr<World> world_;
  int rank_;
  int64_t visits_ = 0;
};

void report_failure(World& world, const std::string& text) {
  const std::lock_guard lock(world.mutex);
  if (world.failure.empty()) world.failure = text;
  for (auto& [key, child] : world.children) report_failure(*child, text);
}

}  // namespace

void run_as_threads(int ranks, const std::function<void(Communicator&)>& body,
                    const std::vector<std::string>& hosts) {
  check(hosts.empty() || static_cast<int>(hosts.size()) == ranks, "a host for each rank");
  const auto world = std::make_shared<World>(
      hosts.empty() ? std::vector<std::string>(static_cast<size_t>(ranks), "localhost") : hosts);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ThreadCommunicator communicator(world, rank);
        body(communicator);
      } catch (const std::exception& error) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        report_failure(*world, fmt::format("rank {} failed: {}", rank, error.what()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace convoy::comm
