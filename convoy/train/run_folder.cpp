#include "convoy/train/run_folder.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"

namespace convoy::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = ".lock";

bool holds_run(const fs::path& folder) {
  return fs::exists(folder / "job.yaml");
}

/// True for what a run that failed before its first step leaves behind, too.
bool holds_nothing(const fs::path& folder) {
  const fs::directory_iterator files(folder);
  return std::all_of(begin(files), end(files), [](const fs::directory_entry& file) {
    const fs::path name = file.path().filename();
    const bool made_at_start = name == "checkpoints" || name == "events.jsonl";
    return name == kLock || (made_at_start && fs::is_empty(file.path()));
  });
}

/// What a process that was killed while it wrote left half-written.
void remove_temporaries(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& file : fs::directory_iterator(folder)) {
    if (is_temporary(file.path())) fs::remove(file.path(), ignored);
  }
}

void refuse_unless_free(const fs::path& folder) {
  if (!fs::exists(folder)) return;
  if (!fs::is_directory(folder)) refuse("{} is not a folder", folder.string());
  if (holds_run(folder)) {
    refuse("{} already holds a run; go on with it by --resume, or give another folder by --run",
           folder.string());
  }
  if (!holds_nothing(folder)) {
    refuse("{} is not empty and holds no run; give a new folder by --run", folder.string());
  }
}

// The lock file holds the id of the process that has the lock.
std::string owner(int fd) {
  std::array<char, 32> text{};
  const ssize_t got = ::pread(fd, text.data(), text.size() - 1, 0);
  return got > 0 ? fmt::format(" (process {})", text.data()) : "";
}

}  // namespace

fs::path default_run_folder(std::string_view model, std::time_t when, const fs::path& parent) {
  std::string name;
  for (const char c : model) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
    name += plain ? c : '-';
  }
  if (name.empty()) name = "run";
  std::tm local{};
  localtime_r(&when, &local);
  std::array<char, 32> stamp{};
  const size_t length = std::strftime(stamp.data(), stamp.size(), "%Y%m%d-%H%M%S", &local);
  name += "-" + std::string(stamp.data(), length);
  fs::path folder = parent / name;
  for (int i = 2; fs::exists(folder); ++i) folder = parent / fmt::format("{}-{}", name, i);
  return folder;
}

RunFolder RunFolder::create(const fs::path& folder) {
  refuse_unless_free(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail("cannot create {}: {}", folder.string(), error.message());
  RunFolder run(folder);
  // Another process may have been quicker between the first look and the lock.
  refuse_unless_free(folder);
  fs::create_directories(folder / "checkpoints", error);
  if (error) fail("cannot create {}: {}", (folder / "checkpoints").string(), error.message());
  return run;
}

RunFolder RunFolder::resume(const fs::path& folder) {
  if (!fs::is_directory(folder)) refuse("there is no run to resume: no folder {}", folder.string());
  if (!holds_run(folder)) {
    refuse("there is no run to resume: {} has no job.yaml", folder.string());
  }
  RunFolder run(folder);
  fs::create_directories(folder / "checkpoints");
  // The lock is ours: nobody is writing them.
  remove_temporaries(folder);
  remove_temporaries(folder / "checkpoints");
  return run;
}

RunFolder::RunFolder(fs::path folder) : folder_(std::move(folder)) {
  const std::string file = (folder_ / kLock).string();
  lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) fail("cannot create {}: {}", file, std::strerror(errno));
  // Released by the system when the process ends, however it ends.
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const std::string who = owner(lock_);
    ::close(lock_);
    if (error != EWOULDBLOCK) fail("cannot lock {}: {}", file, std::strerror(error));
    refuse("{} is being written by another process{}", folder_.string(), who);
  }
  const std::string id = std::to_string(::getpid());
  if (::ftruncate(lock_, 0) != 0 || ::pwrite(lock_, id.data(), id.size(), 0) < 0) {
    const int error = errno;
    ::close(lock_);
    fail("cannot write {}: {}", file, std::strerror(error));
  }
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : folder_(std::move(other.folder_)), lock_(std::exchange(other.lock_, -1)) {}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

fs::path RunFolder::log(const fs::path& folder, int rank) {
  return folder / "logs" / fmt::format("worker-{}.log", rank);
}

void RunFolder::write_job(std::string_view yaml) const {
  write_atomically(job(), yaml);
}

void RunFolder::write_plan(std::string_view yaml) const {
  write_atomically(plan(), yaml);
}

}  // namespace convoy::train
