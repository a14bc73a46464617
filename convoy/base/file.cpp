#include "convoy/base/file.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#include "convoy/base/error.hpp"

namespace convoy {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool close() {
    const int fd = fd_;
    fd_ = -1;
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

void write_all(int fd, std::span<const uint8_t> bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write {}: {}", name, std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

std::vector<uint8_t> read_plain(const std::string& name) {
  const Descriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) refuse("cannot open {}: {}", name, std::strerror(errno));
  std::vector<uint8_t> bytes;
  std::error_code error;
  const auto expected = std::filesystem::file_size(name, error);
  if (!error) bytes.reserve(expected + 1);
  std::vector<uint8_t> buffer(size_t{1} << 20);
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse("cannot read {}: {}", name, std::strerror(errno));
    if (got == 0) return bytes;
    bytes.insert(bytes.end(), buffer.begin(), buffer.begin() + got);
  }
}

std::vector<uint8_t> inflate_gzip(const std::vector<uint8_t>& packed, const std::string& name) {
  z_stream stream{};
  check(inflateInit2(&stream, 15 + 16) == Z_OK, "zlib starts");
  stream.next_in = const_cast<uint8_t*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> buffer(size_t{1} << 20);
  int status = Z_OK;
  while (status == Z_OK) {
    stream.next_out = buffer.data();
    stream.avail_out = static_cast<uInt>(buffer.size());
    status = inflate(&stream, Z_NO_FLUSH);
    bytes.insert(bytes.end(), buffer.begin(),
                 buffer.end() - static_cast<ptrdiff_t>(stream.avail_out));
  }
  inflateEnd(&stream);
  if (status != Z_STREAM_END) {
    refuse("{}: the gzip stream is cut short or damaged after {} bytes", name, bytes.size());
  }
  return bytes;
}

}  // namespace

std::vector<uint8_t> read_file(const std::filesystem::path& path) {
  std::vector<uint8_t> bytes = read_plain(path.string());
  const bool gzip = bytes.size() > 2 && bytes[0] == 0x1F && bytes[1] == 0x8B;
  return gzip ? inflate_gzip(bytes, path.string()) : bytes;
}

void write_atomically(const std::filesystem::path& path,
                      const std::function<void(const Append&)>& write) {
  const std::string temporary = path.string() + ".tmp" + std::to_string(::getpid());
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) fail("cannot create {}: {}", temporary, std::strerror(errno));
  try {
    write([&](std::span<const uint8_t> bytes) { write_all(file.get(), bytes, temporary); });
    if (::fsync(file.get()) != 0 || !file.close()) {
      fail("cannot write {}: {}", temporary, std::strerror(errno));
    }
    std::filesystem::rename(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  // The rename itself must survive a power cut: sync the folder, too.
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) ::fsync(directory.get());
}

void write_atomically(const std::filesystem::path& path, std::string_view text) {
  write_atomically(path, [&](const Append& append) {
    append({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  });
}

uint64_t checksum(std::span<const uint8_t> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace convoy
