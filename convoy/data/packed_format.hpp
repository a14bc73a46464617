#pragma once
// The numbers of docs/packed.md, and how they are put into bytes and got out of them again.

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/data/packed.hpp"

namespace convoy::data::format {

static_assert(std::endian::native == std::endian::little, "packed files are little-endian");

inline constexpr std::string_view kMagic = "CONVOYPK";
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kHeader = 64;
inline constexpr size_t kHeaderChecked = 56;  ///< the last eight bytes are the checksum of these
inline constexpr size_t kEntry = 56;

inline uint64_t hash(std::span<const std::byte> bytes, uint64_t seed = 0) {
  return checksum({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, seed);
}

/// Appends numbers and strings.
class Writer {
 public:
  template <typename T>
  requires std::integral<T> || std::floating_point<T>
  void put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void put_bytes(std::string_view text) {
    const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), begin, begin + text.size());
  }
  /// Its length in 32 bits, then the bytes.
  void put_text(std::string_view text) {
    check(text.size() <= UINT32_MAX, "a name is shorter than 4 GiB");
    put(static_cast<uint32_t>(text.size()));
    put_bytes(text);
  }
  size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Thrown by Reader where the bytes end too early.
struct EndOfBytes {};

/// Gets them again; never beyond the end.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string get_text() {
    const auto text = take(get<uint32_t>());
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }
  std::span<const std::byte> take(size_t count) {
    if (count > bytes_.size() - at_) throw EndOfBytes{};
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

/// The header of a file of which all else is known.
struct Header {
  uint64_t file_size = 0;
  uint64_t index_offset = 0;
  uint64_t index_length = 0;
  uint64_t index_checksum = 0;
  uint64_t records = 0;
};

inline Writer header_bytes(const Header& header) {
  Writer w;
  w.put_bytes(kMagic);
  w.put(kVersion);
  w.put(static_cast<uint32_t>(kHeader));
  w.put(header.file_size);
  w.put(header.index_offset);
  w.put(header.index_length);
  w.put(header.index_checksum);
  w.put(header.records);
  w.put(hash(w.bytes()));
  check(w.size() == kHeader, "the header has its size");
  return w;
}

}  // namespace convoy::data::format
