#include "convoy/sync/predict/tar.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include "convoy/base/error.hpp"

namespace convoy::sync {
namespace {

// A header fills one block; a file's bytes follow in whole blocks.
constexpr size_t kBlock = 512;
struct Field {
  size_t at;
  size_t size;
};
constexpr Field kName{0, 100};
constexpr Field kSize{124, 12};
constexpr Field kSum{148, 8};
constexpr size_t kType = 156;
constexpr Field kMagic{257, 5};
constexpr Field kPrefix{345, 155};

std::string_view text(std::span<const uint8_t> header, Field field) {
  const std::string_view all(reinterpret_cast<const char*>(header.data()) + field.at, field.size);
  return all.substr(0, all.find('\0'));
}

/// Octal digits between blanks.
std::optional<uint64_t> number(std::span<const uint8_t> header, Field field) {
  std::string_view digits = text(header, field);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  uint64_t value = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '7') return std::nullopt;
    value = 8 * value + static_cast<uint64_t>(digit - '0');  // 12 digits of 3 bits fit
  }
  return value;
}

/// Of all bytes of the header, with blanks in the place of the sum itself.
uint64_t sum_of(std::span<const uint8_t> header) {
  uint64_t sum = kSum.size * ' ';
  for (size_t i = 0; i < kBlock; ++i) {
    if (i < kSum.at || i >= kSum.at + kSum.size) sum += header[i];
  }
  return sum;
}

}  // namespace

bool looks_like_tar(std::span<const uint8_t> bytes) {
  return bytes.size() >= kBlock && text(bytes, kMagic) == "ustar";
}

std::vector<TarFile> read_tar(const std::string& archive, std::span<const uint8_t> bytes) {
  std::vector<TarFile> files;
  for (size_t at = 0; at + kBlock <= bytes.size();) {
    const auto header = bytes.subspan(at, kBlock);
    if (std::all_of(header.begin(), header.end(), [](uint8_t byte) { return byte == 0; })) break;
    if (number(header, kSum) != sum_of(header)) {
      refuse(
          "{}: expected the header of a file in a tar archive at byte {}, found one whose "
          "checksum is wrong",
          archive, at);
    }
    const std::optional<uint64_t> size = number(header, kSize);
    const size_t rest = bytes.size() - at - kBlock;
    if (!size || *size > rest) {
      refuse("{}: the file at byte {} of the tar archive ends after {} bytes, expected {}", archive,
             at, rest, size ? std::to_string(*size) : "a size in octal digits");
    }
    const uint8_t type = header[kType];
    if (type == '0' || type == '\0') {
      std::string name(text(header, kName));
      if (const std::string_view prefix = text(header, kPrefix); !prefix.empty()) {
        name.insert(0, fmt::format("{}/", prefix));
      }
      files.push_back({std::move(name), bytes.subspan(at + kBlock, *size)});
    }
    at += kBlock + std::min<size_t>((*size + kBlock - 1) / kBlock * kBlock, rest);
  }
  return files;
}

}  // namespace convoy::sync
