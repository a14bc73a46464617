#include "convoy/comm/mpi.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/comm/watchdog.hpp"

namespace convoy::comm {
namespace {

void must(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail("MPI: {}: {}", what, std::string(text.data(), static_cast<size_t>(length)));
}

/// True while an exception is on its way: then the others may not come to what all have to do
/// together, such as giving memory back, and the job ends anyway.
bool unwinding() {
  return std::uncaught_exceptions() > 0;
}

int bytes_count(size_t bytes) {
  check(bytes <= static_cast<size_t>(std::numeric_limits<int>::max()),
        "a message is shorter than 2 GiB");
  return static_cast<int>(bytes);
}

/// How long all workers of a job may take to be there; a cluster's hosts need not be quick.
constexpr Seconds kStarting{600};

class MpiRequest;

/// MPI takes one call at a time from all threads of a process; a communication thread for
/// gradients, one for samples and the worker's main thread take turns by this.
using Turn = std::shared_ptr<std::mutex>;

/// What is under way on one communicator. MPI makes progress on everything whenever it is asked
/// about anything, and that is what costs: so all requests are tested together, and only when one
/// of them is asked for a second time since.
class UnderWay {
 public:
  explicit UnderWay(Turn turn) : turn_(std::move(turn)) {}
  std::mutex& turn() const { return *turn_; }
  void add(MPI_Request request, MpiRequest* owner) {
    requests_.push_back(request);
    owners_.push_back(owner);
  }
  /// Forgets a request, which its owner gives up.
  MPI_Request remove(const MpiRequest* owner);
  void test();
  int64_t tests() const { return tests_; }

 private:
  void erase(size_t index) {
    requests_[index] = requests_.back();
    requests_.pop_back();
    owners_[index] = owners_.back();
    owners_.pop_back();
  }

  Turn turn_;
  std::vector<MPI_Request> requests_;
  std::vector<MpiRequest*> owners_;
  std::vector<int> completed_;
  std::vector<MPI_Status> statuses_;
  int64_t tests_ = 0;
};

// The analyzer does not see that UnderWay waits for what these functions start.
// NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker)
class MpiRequest : public Request {
 public:
  /// `expected` bytes are to arrive; −1: nothing does.
  MpiRequest(UnderWay& under_way, MPI_Request request, int expected, bool can_be_cancelled)
      : under_way_(under_way), expected_(expected), can_be_cancelled_(can_be_cancelled) {
    under_way_.add(request, this);
  }
  MpiRequest(const MpiRequest&) = delete;
  MpiRequest& operator=(const MpiRequest&) = delete;
  ~MpiRequest() override {
    if (done_) return;
    MPI_Request open = under_way_.remove(this);
    const std::lock_guard lock(under_way_.turn());
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0 || !can_be_cancelled_) return;
    MPI_Cancel(&open);
    MPI_Request_free(&open);
  }
  bool done() override {
    if (!done_ && asked_ == under_way_.tests()) under_way_.test();
    asked_ = under_way_.tests();
    if (!done_) return false;
    must(error_, describe().c_str());
    if (arrived_ != expected_ && expected_ >= 0) {
      fail("{}: a message of {} bytes arrived where {} were expected", describe(), arrived_,
           expected_);
    }
    return true;
  }
  void complete(int error, const MPI_Status& status) {
    done_ = true;
    error_ = error;
    if (expected_ >= 0) MPI_Get_count(&status, MPI_BYTE, &arrived_);
  }

 private:
  UnderWay& under_way_;
  int expected_;
  bool can_be_cancelled_;
  int arrived_ = 0;
  int error_ = MPI_SUCCESS;
  bool done_ = false;
  int64_t asked_ = -1;
};

MPI_Request UnderWay::remove(const MpiRequest* owner) {
  const auto found = std::find(owners_.begin(), owners_.end(), owner);
  const auto index = static_cast<size_t>(found - owners_.begin());
  const MPI_Request request = requests_[index];
  erase(index);
  return request;
}

void UnderWay::test() {
  ++tests_;
  completed_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const std::lock_guard lock(*turn_);
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                completed_.data(), statuses_.data());
  if (code != MPI_ERR_IN_STATUS) must(code, "testing what is under way");
  if (count <= 0) return;  // or MPI_UNDEFINED
  for (int i = 0; i < count; ++i) {
    const MPI_Status& status = statuses_[static_cast<size_t>(i)];
    owners_[static_cast<size_t>(completed_[static_cast<size_t>(i)])]->complete(
        code == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS, status);
  }
  std::sort(completed_.begin(), completed_.begin() + count, std::greater<>());
  for (int i = 0; i < count; ++i) erase(static_cast<size_t>(completed_[static_cast<size_t>(i)]));
}

/// A message to or from one rank.
class MpiMessage : public MpiRequest {
 public:
  MpiMessage(UnderWay& under_way, MPI_Request request, int expected, const char* what, size_t bytes,
             int peer, const std::string& host)
      : MpiRequest(under_way, request, expected, true),
        what_(what),
        bytes_(bytes),
        peer_(peer),
        host_(host) {}
  // Put together only when somebody asks: most messages just arrive.
  std::string describe() const override {
    return fmt::format("{} rank {} ({}): {}", what_, peer_, host_,
                       to_string(Bytes{static_cast<int64_t>(bytes_)}));
  }

 private:
  const char* what_;
  size_t bytes_;
  int peer_;
  const std::string& host_;
};

/// A collective of the library; MPI has no way to give one up.
class MpiCollective : public MpiRequest {
 public:
  MpiCollective(UnderWay& under_way, MPI_Request request, const char* what,
                std::vector<int> counts = {}, std::vector<int> offsets = {})
      : MpiRequest(under_way, request, -1, false),
        what_(what),
        counts_(std::move(counts)),
        offsets_(std::move(offsets)) {}
  std::string describe() const override {
    return fmt::format("in the MPI library's {}, with all ranks", what_);
  }

 private:
  const char* what_;
  std::vector<int> counts_, offsets_;  // the library reads them until it is done
};

class MpiShared : public SharedMemory {
 public:
  /// `name` is that of this worker.
  MpiShared(MPI_Comm comm, Bytes each, std::string name, Seconds patience, Turn turn)
      : name_(std::move(name)), patience_(patience), turn_(std::move(turn)) {
    const Watchdog watchdog(name_ + ": sharing memory with the workers of this host", patience_);
    const std::lock_guard lock(*turn_);
    void* own = nullptr;
    // The library aligns parts to what it needs itself, so there is room to move them.
    const int64_t wanted = each.value > 0 ? each.value + static_cast<int64_t>(kAlignment) : 0;
    must(MPI_Win_allocate_shared(wanted, 1, MPI_INFO_NULL, comm, &own, &window_),
         "allocating shared memory");
    int size = 0;
    MPI_Comm_size(comm, &size);
    for (int rank = 0; rank < size; ++rank) {
      MPI_Aint bytes = 0;
      int unit = 0;
      void* at = nullptr;
      must(MPI_Win_shared_query(window_, rank, &bytes, &unit, &at), "finding shared memory");
      // The mappings differ by whole pages, so all ranks move a part by as much.
      auto room = static_cast<size_t>(bytes);
      if (room > 0) std::align(kAlignment, room - kAlignment, at, room);
      parts_.emplace_back(static_cast<std::byte*>(at),
                          bytes > 0 ? static_cast<size_t>(bytes) - kAlignment : 0);
    }
    MPI_Barrier(comm);
  }
  ~MpiShared() override {
    if (unwinding()) return;
    const Watchdog watchdog(name_ + ": giving shared memory back", patience_);
    const std::lock_guard lock(*turn_);
    MPI_Win_free(&window_);
  }
  std::span<std::byte> part(int rank) const override { return parts_[static_cast<size_t>(rank)]; }

 private:
  static constexpr size_t kAlignment = 64;

  std::string name_;
  Seconds patience_;
  Turn turn_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<std::span<std::byte>> parts_;
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, bool owned, const Turn& turn)
      : comm_(comm), owned_(owned), turn_(turn), under_way_(turn) {
    const std::lock_guard lock(*turn_);
    must(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "setting the error handler");
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    std::array<char, 256> own{};
    gethostname(own.data(), own.size() - 1);
    std::vector<char> all(own.size() * static_cast<size_t>(size_));
    must(MPI_Allgather(own.data(), static_cast<int>(own.size()), MPI_CHAR, all.data(),
                       static_cast<int>(own.size()), MPI_CHAR, comm_),
         "exchanging host names");
    for (int r = 0; r < size_; ++r) {
      hosts_.emplace_back(all.data() + static_cast<size_t>(r) * own.size());
    }
  }
  ~MpiCommunicator() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!owned_ || finalized != 0 || unwinding()) return;
    const Watchdog watchdog(name() + ": giving a communicator back", patience());
    const std::lock_guard lock(*turn_);
    MPI_Comm_free(&comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::vector<std::string>& hosts() const override { return hosts_; }

  std::unique_ptr<Request> send(int to, int tag, std::span<const std::byte> bytes) override {
    return send(MPI_Isend, to, tag, bytes);
  }
  std::unique_ptr<Request> deliver(int to, int tag, std::span<const std::byte> bytes) override {
    return send(MPI_Issend, to, tag, bytes);
  }

  std::unique_ptr<Request> send(decltype(&MPI_Isend) start, int to, int tag,
                                std::span<const std::byte> bytes) {
    count(bytes.size());
    MPI_Request request = MPI_REQUEST_NULL;
    const std::lock_guard lock(*turn_);
    must(start(bytes.data(), bytes_count(bytes.size()), MPI_BYTE, to, tag, comm_, &request),
         "sending");
    return std::make_unique<MpiMessage>(under_way_, request, -1, "sending to", bytes.size(), to,
                                        hosts_[static_cast<size_t>(to)]);
  }

  std::unique_ptr<Request> receive(int from, int tag, std::span<std::byte> bytes) override {
    MPI_Request request = MPI_REQUEST_NULL;
    const int expected = bytes_count(bytes.size());
    const std::lock_guard lock(*turn_);
    must(MPI_Irecv(bytes.data(), expected, MPI_BYTE, from, tag, comm_, &request), "receiving");
    return std::make_unique<MpiMessage>(under_way_, request, expected, "receiving from",
                                        bytes.size(), from, hosts_[static_cast<size_t>(from)]);
  }

  std::unique_ptr<Communicator> split(int color) override {
    MPI_Comm handle = MPI_COMM_NULL;
    const Watchdog watchdog(name() + ": splitting the communicator", patience());
    {
      const std::lock_guard lock(*turn_);
      must(MPI_Comm_split(comm_, color, rank_, &handle), "splitting the communicator");
    }
    auto part = std::make_unique<MpiCommunicator>(handle, true, turn_);
    part->set_patience(patience());
    return part;
  }

  std::unique_ptr<SharedMemory> share(Bytes each) override {
    return std::make_unique<MpiShared>(comm_, each, name(), patience(), turn_);
  }

  MPI_Comm handle() const { return comm_; }
  UnderWay& under_way() { return under_way_; }

 private:
  /// As messages call this worker, whichever part of the world this is.
  std::string name() const {
    const std::lock_guard lock(*turn_);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return fmt::format("worker {} ({})", rank, hosts_[static_cast<size_t>(rank_)]);
  }

  MPI_Comm comm_;
  bool owned_;
  Turn turn_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<std::string> hosts_;
  UnderWay under_way_;
};

MpiCommunicator& mpi_of(Communicator& c) {
  auto* mpi = dynamic_cast<MpiCommunicator*>(&c);
  if (mpi == nullptr) fail("the MPI library's own sums need ranks that MPI has started");
  return *mpi;
}

int values_count(size_t values) {
  check(values <= static_cast<size_t>(std::numeric_limits<int>::max()),
        "the library sums fewer than 2^31 values");
  return static_cast<int>(values);
}

std::vector<int> counts_of(const Strips& strips) {
  std::vector<int> counts;
  for (const Strip& s : strips) counts.push_back(values_count(static_cast<size_t>(s.size())));
  return counts;
}

std::vector<int> offsets_of(const Strips& strips) {
  std::vector<int> offsets;
  for (const Strip& s : strips) offsets.push_back(values_count(static_cast<size_t>(s.begin)));
  return offsets;
}

}  // namespace

MpiSession::MpiSession() {
  const Watchdog watchdog("starting MPI, for which all workers must be there,", kStarting);
  int provided = 0;
  must(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "starting");
  if (provided < MPI_THREAD_SERIALIZED) {
    fail("this MPI library cannot be called from a communication thread");
  }
  world_ = std::make_unique<MpiCommunicator>(MPI_COMM_WORLD, false, std::make_shared<std::mutex>());
}

MpiSession::~MpiSession() {
  const Watchdog watchdog(fmt::format("worker {}: ending MPI", world_->rank()), world_->patience());
  world_.reset();
  MPI_Finalize();
}

void MpiSession::abort(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

bool started_by_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

std::unique_ptr<Request> mpi_allreduce(Communicator& c, std::span<float> values) {
  MpiCommunicator& mpi = mpi_of(c);
  MPI_Request request = MPI_REQUEST_NULL;
  const std::lock_guard lock(mpi.under_way().turn());
  must(MPI_Iallreduce(MPI_IN_PLACE, values.data(), values_count(values.size()), MPI_FLOAT, MPI_SUM,
                      mpi.handle(), &request),
       "summing");
  return std::make_unique<MpiCollective>(mpi.under_way(), request, "sum");
}

std::unique_ptr<Request> mpi_part_reduce(Communicator& c, std::span<const float> values,
                                         std::span<float> sum, const Strips& strips) {
  MpiCommunicator& mpi = mpi_of(c);
  std::vector<int> counts = counts_of(strips);
  MPI_Request request = MPI_REQUEST_NULL;
  const std::lock_guard lock(mpi.under_way().turn());
  must(MPI_Ireduce_scatter(values.data(), sum.data(), counts.data(), MPI_FLOAT, MPI_SUM,
                           mpi.handle(), &request),
       "summing in parts");
  return std::make_unique<MpiCollective>(mpi.under_way(), request, "sum in parts",
                                         std::move(counts));
}

std::unique_ptr<Request> mpi_part_broadcast(Communicator& c, std::span<float> values,
                                            const Strips& strips) {
  MpiCommunicator& mpi = mpi_of(c);
  std::vector<int> counts = counts_of(strips);
  std::vector<int> offsets = offsets_of(strips);
  MPI_Request request = MPI_REQUEST_NULL;
  const std::lock_guard lock(mpi.under_way().turn());
  must(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values.data(), counts.data(),
                       offsets.data(), MPI_FLOAT, mpi.handle(), &request),
       "sending parts to all");
  return std::make_unique<MpiCollective>(mpi.under_way(), request, "exchange of parts",
                                         std::move(counts), std::move(offsets));
}

void mpi_blocking_allreduce(Communicator& c, std::span<float> values) {
  MpiCommunicator& mpi = mpi_of(c);
  const std::lock_guard lock(mpi.under_way().turn());
  must(MPI_Allreduce(MPI_IN_PLACE, values.data(), values_count(values.size()), MPI_FLOAT, MPI_SUM,
                     mpi.handle()),
       "summing");
}

// NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)
}  // namespace convoy::comm
