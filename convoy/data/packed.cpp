#include "convoy/data/packed.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convoy/base/text.hpp"
#include "convoy/data/image_codecs.hpp"
#include "convoy/data/packed_format.hpp"

namespace convoy::data {
namespace {

/// An entry of the index as it stands there.
struct Entry {
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t checksum = 0;
  uint64_t name_offset = 0;
  uint32_t name_length = 0;
  uint32_t label = 0;
  uint32_t width = 0;
  uint32_t height = 0;
  uint8_t encoding = 0;
  uint8_t channels = 0;
};

Entry entry_at(std::span<const std::byte> bytes) {
  format::Reader r(bytes);
  Entry e;
  e.offset = r.get<uint64_t>();
  e.length = r.get<uint64_t>();
  e.checksum = r.get<uint64_t>();
  e.name_offset = r.get<uint64_t>();
  e.name_length = r.get<uint32_t>();
  e.label = r.get<uint32_t>();
  e.width = r.get<uint32_t>();
  e.height = r.get<uint32_t>();
  e.encoding = r.get<uint8_t>();
  e.channels = r.get<uint8_t>();
  return e;
}

/// What is wrong with the image of an entry, or "".
std::string complaint(const Entry& e, const PackedSummary& summary) {
  if (e.label >= summary.classes.size()) {
    return fmt::format("its label is {}, expected 0 to {}", e.label, summary.classes.size() - 1);
  }
  if (e.encoding > static_cast<uint8_t>(Encoding::png)) {
    return fmt::format("its encoding is {}, expected 0 to 2", e.encoding);
  }
  if (e.channels != 1 && static_cast<int32_t>(e.channels) != summary.channels) {
    return fmt::format("it has {} channels, the file has {}", e.channels, summary.channels);
  }
  try {
    check_size(e.width, e.height);
  } catch (const ImageError& error) {
    return error.what();
  }
  const uint64_t raw = uint64_t{e.width} * e.height * e.channels;
  if (e.encoding == static_cast<uint8_t>(Encoding::raw) && e.length != raw) {
    return fmt::format("it has {} bytes, expected {}×{}×{} pixels", e.length, e.channels, e.height,
                       e.width);
  }
  return "";
}

std::vector<float> get_values(format::Reader& r, int32_t channels, float least, const char* what,
                              const std::string& file) {
  std::vector<float> values;
  for (int32_t c = 0; c < channels; ++c) {
    values.push_back(r.get<float>());
    if (!std::isfinite(values.back()) || values.back() < least) {
      refuse("{}: is damaged: the {} of channel {} is {}", file, what, c, values.back());
    }
  }
  return values;
}

}  // namespace

PackedFile::PackedFile(const std::filesystem::path& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) refuse("cannot open {}: {}", path.string(), std::strerror(errno));
  try {
    read_index();
    parse_index();
    check_entries();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

PackedFile::~PackedFile() {
  if (map_ != nullptr) ::munmap(map_, static_cast<size_t>(bytes_));
  ::close(fd_);
}

void PackedFile::read_index() {
  using namespace format;
  const std::string file = path_.string();
  struct stat status {};
  if (::fstat(fd_, &status) != 0) refuse("cannot read {}: {}", file, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse("{}: is not a file, so no packed file", file);
  bytes_ = status.st_size;
  std::array<std::byte, kHeader> header{};
  const auto room = std::span(header).first(std::min<size_t>(kHeader, static_cast<size_t>(bytes_)));
  read_at(0, room);
  if (std::memcmp(header.data(), kMagic.data(), std::min(room.size(), kMagic.size())) != 0 ||
      room.empty()) {
    refuse("{}: is not a packed file (it does not begin with {}); `convoy pack` makes one", file,
           kMagic);
  }
  if (room.size() < kHeader) {
    refuse("{}: is cut short: it has {} bytes, its header alone has {}", file, bytes_, kHeader);
  }
  Reader r(header);
  r.take(kMagic.size());
  const auto version = r.get<uint32_t>();
  if (version != kVersion) {
    refuse("{}: is a packed file of version {}; this program reads version {}", file, version,
           kVersion);
  }
  const auto header_size = r.get<uint32_t>();
  Header h;
  h.file_size = r.get<uint64_t>();
  h.index_offset = r.get<uint64_t>();
  h.index_length = r.get<uint64_t>();
  h.index_checksum = r.get<uint64_t>();
  h.records = r.get<uint64_t>();
  if (r.get<uint64_t>() != hash(std::span(header).first(kHeaderChecked)) ||
      header_size != kHeader) {
    refuse("{}: is damaged: the checksum of its header is wrong", file);
  }
  const auto size = static_cast<uint64_t>(bytes_);
  if (h.file_size != size) {
    refuse("{}: is {}: its header says {} bytes, found {}", file,
           size < h.file_size ? "cut short" : "too long", h.file_size, size);
  }
  if (h.index_offset < kHeader || h.index_offset > size ||
      h.index_length != size - h.index_offset || h.records > h.index_length / kEntry) {
    refuse("{}: is damaged: an index of {} bytes at {} for {} records does not fit {} bytes", file,
           h.index_length, h.index_offset, h.records, size);
  }
  index_offset_ = static_cast<int64_t>(h.index_offset);
  count_ = static_cast<int64_t>(h.records);
  index_.resize(h.index_length);
  read_at(index_offset_, index_);
  fingerprint_ = hash(index_);
  if (fingerprint_ != h.index_checksum) {
    refuse("{}: is damaged: the checksum of its index is wrong", file);
  }
}

void PackedFile::parse_index() {
  const std::string file = path_.string();
  try {
    format::Reader r(index_);
    const auto channels = r.get<uint32_t>();
    const auto classes = r.get<uint32_t>();
    const auto splits = r.get<uint32_t>();
    if ((channels != 1 && channels != 3) || classes == 0 || r.get<uint32_t>() != 0) {
      refuse("{}: is damaged: {} channels and {} classes cannot be", file, channels, classes);
    }
    summary_.channels = static_cast<int32_t>(channels);
    summary_.mean = get_values(r, summary_.channels, 0, "mean", file);
    summary_.std = get_values(r, summary_.channels, 1e-9F, "deviation", file);
    for (uint32_t i = 0; i < classes; ++i) summary_.classes.push_back(r.get_text());
    int64_t first = 0;
    for (uint32_t i = 0; i < splits; ++i) {
      Split split{.name = r.get_text(), .first = first, .count = 0};
      const auto count = r.get<uint64_t>();
      if (count > static_cast<uint64_t>(count_ - first)) {
        refuse("{}: is damaged: split {} has {} records, only {} are left", file, split.name, count,
               count_ - first);
      }
      split.count = static_cast<int64_t>(count);
      first += split.count;
      summary_.splits.push_back(std::move(split));
    }
    if (first != count_) {
      refuse("{}: is damaged: its splits have {} records, its index {}", file, first, count_);
    }
    entries_ = r.at();
    r.take(static_cast<size_t>(count_) * format::kEntry);
    names_ = r.at();
  } catch (const format::EndOfBytes&) {
    refuse("{}: is damaged: its index ends too early", file);
  }
}

// Records lie one after the other without gaps, so no byte of the file is without a checksum.
void PackedFile::check_entries() const {
  auto next = static_cast<uint64_t>(format::kHeader);
  uint64_t next_name = 0;
  const uint64_t names = index_.size() - names_;
  for (int64_t i = 0; i < count_; ++i) {
    const auto bytes = std::span(index_).subspan(entries_ + static_cast<size_t>(i) * format::kEntry,
                                                 format::kEntry);
    const Entry e = entry_at(bytes);
    if (e.name_offset != next_name || e.name_length > names - next_name) {
      refuse("{}: is damaged: the name of record {} lies outside the names", path_.string(), i);
    }
    next_name += e.name_length;
    const auto end = static_cast<uint64_t>(index_offset_);
    if (e.offset != next || e.length == 0 || e.length > end - next) {
      refuse("{}: is damaged: {} bytes at {} do not fit between {} and {}", name(i), e.length,
             e.offset, next, end);
    }
    next += e.length;
    const std::string wrong = complaint(e, summary_);
    if (!wrong.empty()) refuse("{}: is damaged: {}", name(i), wrong);
  }
  if (next != static_cast<uint64_t>(index_offset_) || next_name != names) {
    refuse("{}: is damaged: its records end at {}, its index begins at {}", path_.string(), next,
           index_offset_);
  }
}

const Split& PackedFile::split(std::string_view name) const {
  std::vector<std::string> names;
  for (const Split& split : summary_.splits) {
    if (split.name == name) return split;
    names.push_back(split.name);
  }
  refuse("{}: has no split '{}'; there are {}", path_.string(), name, join(names));
}

PackedRecord PackedFile::record(int64_t index) const {
  check(index >= 0 && index < count_, "a record's number is below their count");
  const Entry e = entry_at(std::span(index_).subspan(
      entries_ + static_cast<size_t>(index) * format::kEntry, format::kEntry));
  return {.offset = static_cast<int64_t>(e.offset),
          .length = static_cast<int64_t>(e.length),
          .checksum = e.checksum,
          .label = static_cast<int32_t>(e.label),
          .image = {.encoding = static_cast<Encoding>(e.encoding),
                    .width = static_cast<int32_t>(e.width),
                    .height = static_cast<int32_t>(e.height),
                    .channels = e.channels},
          .source = {reinterpret_cast<const char*>(index_.data()) + names_ + e.name_offset,
                     e.name_length}};
}

std::string PackedFile::name(int64_t index) const {
  return fmt::format("{}: record {} ({})", path_.string(), index, record(index).source);
}

void PackedFile::read_at(int64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(fd_, to.data(), to.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read {}: {}", path_.string(), std::strerror(errno));
    if (got == 0) {
      refuse("{}: became shorter than its {} bytes while it was read", path_.string(), bytes_);
    }
    to = to.subspan(static_cast<size_t>(got));
    offset += got;
  }
}

int64_t PackedFile::length(int64_t first, int64_t last) const {
  check(first >= 0 && first <= last && last <= count_, "records are counted within the file");
  if (first == last) return 0;
  const PackedRecord end = record(last - 1);
  return end.offset + end.length - record(first).offset;
}

void PackedFile::read(int64_t index, std::span<std::byte> to) const {
  read(index, index + 1, to);
  verify(index, to);
}

void PackedFile::read(int64_t first, int64_t last, std::span<std::byte> to) const {
  check(static_cast<int64_t>(to.size()) == length(first, last),
        "records are read into room of their size");
  if (first < last) read_at(record(first).offset, to);
}

void PackedFile::verify(int64_t index, std::span<const std::byte> bytes) const {
  const PackedRecord r = record(index);
  if (static_cast<int64_t>(bytes.size()) == r.length && format::hash(bytes) == r.checksum) return;
  refuse("{}: is damaged: its checksum is wrong", name(index));
}

void PackedFile::verify(int64_t index) const {
  std::vector<std::byte> bytes(static_cast<size_t>(record(index).length));
  read(index, bytes);
}

void PackedFile::map() {
  if (map_ != nullptr) return;
  void* const at = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ, MAP_SHARED, fd_, 0);
  if (at == MAP_FAILED) fail("cannot map {} into memory: {}", path_.string(), std::strerror(errno));
  map_ = static_cast<std::byte*>(at);
}

std::span<const std::byte> PackedFile::mapped(int64_t index) const {
  check(map_ != nullptr, "a file is mapped before its bytes are used");
  const PackedRecord r = record(index);
  return {map_ + r.offset, static_cast<size_t>(r.length)};
}

void PackedFile::will_need(int64_t first, int64_t last) const {
  // Advice: where the system does not take it, nothing is lost.
  if (first < last) {
    ::posix_fadvise(fd_, record(first).offset, length(first, last), POSIX_FADV_WILLNEED);
  }
}

bool is_packed(const std::filesystem::path& path) {
  std::array<char, format::kMagic.size()> begins{};
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream in(path, std::ios::binary);
  in.read(begins.data(), begins.size());
  return in && std::string_view(begins.data(), begins.size()) == format::kMagic;
}

}  // namespace convoy::data
