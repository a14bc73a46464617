#pragma once
// Writes a packed file (packed.hpp) in as many sittings as it takes.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convoy/data/image.hpp"
#include "convoy/data/moments.hpp"
#include "convoy/data/packed.hpp"

namespace convoy::data {

/// What is appended to a packed file for one image of the source.
struct NewRecord {
  std::span<const std::byte> bytes;
  ImageInfo image;
  int32_t label = 0;
  std::string source;
  ImageMoments moments;  ///< of its pixels
};

/// An image that was left out, and why.
struct LeftOut {
  std::string source;
  BadImage what = BadImage::damaged;
  std::string message;
  bool operator==(const LeftOut&) const = default;
};

/// The source is a fixed list of items; each in turn becomes a record or is left out. Until
/// finish() everything goes to FILE.part, with a journal beside it (FILE.journal). If the program
/// ends before that, in whatever way, a new writer for the same file and key goes on behind the
/// last item that is whole in both, and the file becomes the same, byte for byte, as if it had been
/// written in one go.
class PackedWriter {
 public:
  /// `key` stands for everything that the records depend on (files, their sizes and times,
  /// options): what a writer with another key left is thrown away. `splits` are names and numbers
  /// of items, in their order. Refuses a file that exists, and one that another process is writing.
  PackedWriter(const std::filesystem::path& path, uint64_t key, std::vector<std::string> classes,
               std::vector<Split> splits);
  ~PackedWriter();
  PackedWriter(const PackedWriter&) = delete;
  PackedWriter& operator=(const PackedWriter&) = delete;

  int64_t items() const;    ///< dealt with so far, in this sitting and in earlier ones
  int64_t records() const;  ///< of them, in the file
  const std::vector<LeftOut>& left_out() const;

  void append(const NewRecord& record);
  void leave_out(const LeftOut& item);

  /// All items are dealt with: writes index and header, syncs, renames, removes the journal.
  /// Refuses if a split has no records.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convoy::data
