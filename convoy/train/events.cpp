#include "convoy/train/events.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "convoy/base/error.hpp"

namespace convoy::train {
namespace {

double unix_seconds() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return 1e-3 *
         static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

/// Length of the file up to and including its last newline; −1 if it cannot be read.
off_t whole_lines(int fd) {
  std::array<char, 4096> buffer{};
  off_t end = ::lseek(fd, 0, SEEK_END);
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(buffer.size()));
    const ssize_t got = ::pread(fd, buffer.data(), static_cast<size_t>(end - begin), begin);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return -1;
    const std::string_view text(buffer.data(), static_cast<size_t>(got));
    const size_t newline = text.rfind('\n');
    if (newline != std::string_view::npos) return begin + static_cast<off_t>(newline) + 1;
    end = begin;
  }
  return end;
}

}  // namespace

EventLog::EventLog(const std::filesystem::path& path)
    : path_(path), fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (fd_ < 0) fail("cannot open {}: {}", path_.string(), std::strerror(errno));
  const off_t length = whole_lines(fd_);
  if (length < 0 || ::ftruncate(fd_, length) != 0) {
    const int error = errno;
    ::close(fd_);
    fail("cannot {} {}: {}", length < 0 ? "read" : "write", path_.string(), std::strerror(error));
  }
}

EventLog::~EventLog() {
  ::close(fd_);
}

void EventLog::write(std::string_view event, const nlohmann::json& fields) {
  check(fields.is_object(), "the fields of an event are an object");
  // Ordered, so that every line begins with the time and the kind of event.
  nlohmann::ordered_json line;
  line["time"] = unix_seconds();
  line["event"] = event;
  for (const auto& [key, value] : fields.items()) line[key] = value;
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  // One call: with O_APPEND a line is never mixed with another.
  ssize_t written = 0;
  do {
    written = ::write(fd_, text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(text.size())) {
    fail("cannot write {}: {}", path_.string(),
         written < 0 ? std::strerror(errno) : "no space left for a whole line");
  }
}

}  // namespace convoy::train
