#pragma once
// Packed files: a whole data set in one file, images as they were encoded, with an index,
// checksums, class names and where everything came from. docs/packed.md describes every byte.
//
//     PackedFile file("imagenette.pack");
//     const Split train = file.split("train");
//     for (int64_t i = train.first; i < train.first + train.count; ++i) {
//       const PackedRecord record = file.record(i);       // label, size, encoding
//       buffer.resize(record.length);
//       file.read(i, buffer);                             // its bytes, checksum checked
//     }
//
// Everything in a file is checked before it is believed: a file that was cut short, damaged or made
// up is refused with InputError and never read beyond its end.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/data/image.hpp"

namespace convoy::data {

/// A run of records that belong together, such as "train" and "test".
struct Split {
  std::string name;
  int64_t first = 0;
  int64_t count = 0;
  bool operator==(const Split&) const = default;
};

/// What the index says of one record.
struct PackedRecord {
  int64_t offset = 0;  ///< of its first byte in the file
  int64_t length = 0;  ///< in bytes
  uint64_t checksum = 0;
  int32_t label = 0;
  ImageInfo image;
  std::string_view source;  ///< the file it came from, within the folder that was packed
};

/// What holds for the whole file.
struct PackedSummary {
  int32_t channels = 0;  ///< 3 if any image has colours, else 1
  std::vector<std::string> classes;
  std::vector<Split> splits;  ///< in the order of their records
  /// Of the pixels (0 … 1) of the first split, per channel; gray images count in every channel.
  std::vector<float> mean;
  std::vector<float> std;
};

/// A packed file, open for reading. Takes the memory of its index (some 100 bytes a record).
/// Thread-safe, but for map().
class PackedFile {
 public:
  /// Reads header and index and checks them against their checksums, the size of the file and each
  /// other. Throws InputError naming the file and what is wrong.
  explicit PackedFile(const std::filesystem::path& path);
  ~PackedFile();
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const PackedSummary& summary() const { return summary_; }
  int64_t size() const { return count_; }   ///< records in all splits
  int64_t bytes() const { return bytes_; }  ///< of the file
  /// The checksum of the index: changes with every byte of every record, every label and name.
  uint64_t fingerprint() const { return fingerprint_; }

  /// Throws InputError that says which splits there are.
  const Split& split(std::string_view name) const;

  PackedRecord record(int64_t index) const;
  /// "FILE: record 17 (train/dog/n02.jpg)", for messages.
  std::string name(int64_t index) const;

  /// The bytes of one record, into room of its length; checks the checksum. Throws InputError
  /// naming file, record and source.
  void read(int64_t index, std::span<std::byte> to) const;
  /// The bytes of records [first, last), which lie one after the other in the file, in one go and
  /// without a look at their checksums: verify() does that.
  void read(int64_t first, int64_t last, std::span<std::byte> to) const;
  /// How many bytes these records have.
  int64_t length(int64_t first, int64_t last) const;
  /// Throws InputError if these are not the bytes of this record.
  void verify(int64_t index, std::span<const std::byte> bytes) const;
  /// Reads one record and checks it.
  void verify(int64_t index) const;

  /// Maps the file into memory: the system reads what is touched and may forget it again.
  void map();
  bool is_mapped() const { return map_ != nullptr; }
  /// The bytes of one record where they are mapped, unchecked. If the file is cut short by others
  /// meanwhile, touching them ends the process, as always with mappings.
  std::span<const std::byte> mapped(int64_t index) const;
  /// Asks the system to have records [first, last) at hand soon.
  void will_need(int64_t first, int64_t last) const;

 private:
  void read_index();
  void parse_index();
  void check_entries() const;
  void read_at(int64_t offset, std::span<std::byte> to) const;

  std::filesystem::path path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
  int64_t count_ = 0;
  uint64_t fingerprint_ = 0;
  int64_t index_offset_ = 0;
  std::vector<std::byte> index_;
  size_t entries_ = 0;  // where in index_ the entries begin
  size_t names_ = 0;    // where in index_ the names of the sources begin
  PackedSummary summary_;
  std::byte* map_ = nullptr;
};

/// True if the file begins like a packed file.
bool is_packed(const std::filesystem::path& path);

}  // namespace convoy::data
