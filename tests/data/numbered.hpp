#pragma once
// Packed files whose records tell which one they are, for tests of what becomes of records.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convoy/base/random.hpp"
#include "convoy/data/packed.hpp"
#include "convoy/data/packed_writer.hpp"

#include "tests/data/helpers.hpp"

namespace convoy::data {

/// Byte `index` of the record of sample `sample`. No two of 256 samples begin alike.
inline std::byte numbered_byte(int64_t sample, int64_t index) {
  return static_cast<std::byte>(sample * 53 + index * 7 + index / 251 * sample);
}

/// True if these are the bytes of that sample; their number is not looked at.
inline bool is_numbered(std::span<const std::byte> bytes, int64_t sample) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != numbered_byte(sample, static_cast<int64_t>(i))) return false;
  }
  return true;
}

/// Lengths from 1 to `longest`, all mixed.
inline std::vector<int64_t> mixed_lengths(int64_t samples, uint32_t longest, uint64_t seed = 1) {
  Stream random(seed, Purpose::test);
  std::vector<int64_t> lengths;
  for (int64_t s = 0; s < samples; ++s) lengths.push_back(1 + random.below(longest));
  return lengths;
}

/// A packed file in a folder of its own: three test samples, then training samples of these
/// lengths, which are raw gray images of one row.
class NumberedFile {
 public:
  static constexpr int64_t kFirst = 3;  ///< record of the first training sample
  static constexpr int32_t kClasses = 5;

  explicit NumberedFile(std::vector<int64_t> lengths) : lengths_(std::move(lengths)) {
    PackedWriter to(path(), 1, {"a", "b", "c", "d", "e"},
                    {{"test", 0, kFirst}, {"train", 0, samples()}});
    for (int64_t i = 0; i < kFirst; ++i) append(to, i, 2, "test");
    for (int64_t s = 0; s < samples(); ++s) append(to, s, length(s), "train");
    to.finish();
  }

  std::filesystem::path path() const { return folder_.path() / "numbered.pack"; }
  std::shared_ptr<const PackedFile> open() const { return std::make_shared<PackedFile>(path()); }
  int64_t samples() const { return static_cast<int64_t>(lengths_.size()); }
  const std::vector<int64_t>& lengths() const { return lengths_; }
  int64_t length(int64_t sample) const { return lengths_[static_cast<size_t>(sample)]; }
  static int32_t label(int64_t sample) { return static_cast<int32_t>(sample % kClasses); }

  /// Turns a bit of the first byte of a training sample.
  void damage(int64_t sample) const {
    std::vector<uint8_t> bytes = read_file(path());
    bytes[static_cast<size_t>(open()->record(kFirst + sample).offset)] ^= 0x80;
    folder_.write("numbered.pack", bytes);
  }

 private:
  static void append(PackedWriter& to, int64_t sample, int64_t length, const std::string& split) {
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < length; ++i) bytes.push_back(numbered_byte(sample, i));
    const auto* const pixels = reinterpret_cast<const uint8_t*>(bytes.data());
    to.append({.bytes = bytes,
               .image = {Encoding::raw, static_cast<int32_t>(length), 1, 1},
               .label = label(sample),
               .source = fmt::format("{}/{}", split, sample),
               .moments = measure_planes({pixels, bytes.size()}, 1)});
  }

  Folder folder_;
  std::vector<int64_t> lengths_;
};

}  // namespace convoy::data
