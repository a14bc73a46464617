#include "convoy/base/file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#include "convoy/base/error.hpp"

namespace convoy {
namespace {

constexpr const char* kTemporary = ".tmp";

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

class Inflater {
 public:
  Inflater() { check(inflateInit2(&stream, 15 + 16) == Z_OK, "zlib starts"); }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  z_stream stream{};
};

/// A gzip file is one member or several after another.
std::vector<uint8_t> inflate_gzip(const std::vector<uint8_t>& packed, const std::string& name) {
  constexpr size_t kPiece = size_t{1} << 20;
  Inflater inflater;
  z_stream& stream = inflater.stream;
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> buffer(kPiece);
  size_t fed = 0;
  bool within_member = true;
  for (;;) {
    if (stream.avail_in == 0 && fed < packed.size()) {
      stream.next_in = const_cast<uint8_t*>(packed.data()) + fed;
      stream.avail_in = static_cast<uInt>(std::min(kPiece, packed.size() - fed));
      fed += stream.avail_in;
    }
    if (!within_member) {
      if (stream.avail_in == 0) return bytes;
      inflateReset(&stream);
      within_member = true;
    }
    stream.next_out = buffer.data();
    stream.avail_out = static_cast<uInt>(buffer.size());
    const int status = inflate(&stream, Z_NO_FLUSH);
    bytes.insert(bytes.end(), buffer.begin(),
                 buffer.end() - static_cast<ptrdiff_t>(stream.avail_out));
    if (status == Z_STREAM_END) {
      within_member = false;
    } else if (status != Z_OK) {
      refuse("{}: the gzip stream is cut short or damaged after {} bytes", name, bytes.size());
    }
  }
}

}  // namespace

std::vector<uint8_t> read_file(const std::filesystem::path& path) {
  std::vector<uint8_t> bytes = read_plain(path.string());
  const bool gzip = bytes.size() > 2 && bytes[0] == 0x1F && bytes[1] == 0x8B;
  return gzip ? inflate_gzip(bytes, path.string()) : bytes;
}

void write_atomically(const std::filesystem::path& path,
                      const std::function<void(const Append&)>& write) {
  const std::string temporary = path.string() + kTemporary + std::to_string(::getpid());
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) fail("cannot create {}: {}", temporary, std::strerror(errno));
  try {
    write([&](std::span<const uint8_t> bytes) { write_all(file.get(), bytes, temporary); });
    if (::fsync(file.get()) != 0 || !file.close()) {
      fail("cannot write {}: {}", temporary, std::strerror(errno));
    }
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
      fail("cannot rename {} to {}: {}", temporary, path.string(), std::strerror(errno));
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  // The rename itself must survive a power cut: sync the folder, too.
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) ::fsync(directory.get());
}

bool is_temporary(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  return extension.starts_with(kTemporary) &&
         extension.find_first_not_of("0123456789", std::strlen(kTemporary)) == std::string::npos;
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
