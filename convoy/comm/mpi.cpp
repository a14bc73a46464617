#include "convoy/comm/mpi.hpp"

#include <array>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include "convoy/base/error.hpp"

namespace convoy::comm {
namespace {

void must(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail("MPI: {}: {}", what, std::string(text.data(), static_cast<size_t>(length)));
}

int count_of(size_t bytes) {
  check(bytes <= static_cast<size_t>(std::numeric_limits<int>::max()),
        "a message is shorter than 2 GiB");
  return static_cast<int>(bytes);
}

class MpiRequest : public Request {
 public:
  MpiRequest(MPI_Request request, std::string text, int expected)
      : request_(request), text_(std::move(text)), expected_(expected) {}
  ~MpiRequest() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (request_ == MPI_REQUEST_NULL || finalized != 0) return;
    MPI_Cancel(&request_);
    MPI_Request_free(&request_);
  }
  bool done() override {
    if (request_ == MPI_REQUEST_NULL) return true;
    int flag = 0;
    MPI_Status status;
    must(MPI_Test(&request_, &flag, &status), text_.c_str());
    if (flag == 0) return false;
    if (expected_ >= 0) {
      int arrived = 0;
      MPI_Get_count(&status, MPI_BYTE, &arrived);
      if (arrived != expected_) {
        fail("{}: a message of {} bytes arrived where {} were expected", text_, arrived, expected_);
      }
    }
    return true;
  }
  std::string describe() const override { return text_; }

 private:
  MPI_Request request_;
  std::string text_;
  int expected_;
};

class MpiShared : public SharedMemory {
 public:
  MpiShared(MPI_Comm comm, Bytes each) {
    void* own = nullptr;
    must(MPI_Win_allocate_shared(each.value, 1, MPI_INFO_NULL, comm, &own, &window_),
         "allocating shared memory");
    int size = 0;
    MPI_Comm_size(comm, &size);
    for (int rank = 0; rank < size; ++rank) {
      MPI_Aint bytes = 0;
      int unit = 0;
      void* at = nullptr;
      must(MPI_Win_shared_query(window_, rank, &bytes, &unit, &at), "finding shared memory");
      parts_.emplace_back(static_cast<std::byte*>(at), static_cast<size_t>(bytes));
    }
    MPI_Barrier(comm);
  }
  ~MpiShared() override { MPI_Win_free(&window_); }
  std::span<std::byte> part(int rank) const override { return parts_[static_cast<size_t>(rank)]; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<std::span<std::byte>> parts_;
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, bool owned) : comm_(comm), owned_(owned) {
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
    if (owned_ && finalized == 0) MPI_Comm_free(&comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::vector<std::string>& hosts() const override { return hosts_; }

  std::unique_ptr<Request> send(int to, int tag, std::span<const std::byte> bytes) override {
    count(bytes.size());
    MPI_Request request = MPI_REQUEST_NULL;
    must(MPI_Isend(bytes.data(), count_of(bytes.size()), MPI_BYTE, to, tag, comm_, &request),
         "sending");
    return std::make_unique<MpiRequest>(request, text("sending", bytes.size(), "to", to), -1);
  }

  std::unique_ptr<Request> receive(int from, int tag, std::span<std::byte> bytes) override {
    MPI_Request request = MPI_REQUEST_NULL;
    must(MPI_Irecv(bytes.data(), count_of(bytes.size()), MPI_BYTE, from, tag, comm_, &request),
         "receiving");
    return std::make_unique<MpiRequest>(request, text("receiving", bytes.size(), "from", from),
                                        count_of(bytes.size()));
  }

  std::unique_ptr<Communicator> split(int color) override {
    MPI_Comm part = MPI_COMM_NULL;
    must(MPI_Comm_split(comm_, color, rank_, &part), "splitting the communicator");
    return std::make_unique<MpiCommunicator>(part, true);
  }

  std::unique_ptr<SharedMemory> share(Bytes each) override {
    return std::make_unique<MpiShared>(comm_, each);
  }

  MPI_Comm handle() const { return comm_; }

 private:
  std::string text(const char* what, size_t bytes, const char* direction, int peer) const {
    return fmt::format("{} {} {} rank {} ({})", what, to_string(Bytes{static_cast<int64_t>(bytes)}),
                       direction, peer, hosts_[static_cast<size_t>(peer)]);
  }

  MPI_Comm comm_;
  bool owned_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<std::string> hosts_;
};

}  // namespace

MpiSession::MpiSession() {
  int provided = 0;
  must(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "starting");
  if (provided < MPI_THREAD_SERIALIZED) {
    fail("this MPI library cannot be called from a communication thread");
  }
  world_ = std::make_unique<MpiCommunicator>(MPI_COMM_WORLD, false);
}

MpiSession::~MpiSession() {
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

void mpi_allreduce(Communicator& c, std::span<float> values) {
  const auto* mpi = dynamic_cast<const MpiCommunicator*>(&c);
  check(mpi != nullptr, "the library's sum needs its communicator");
  must(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                     MPI_SUM, mpi->handle()),
       "summing");
}

}  // namespace convoy::comm
