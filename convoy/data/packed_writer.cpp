#include "convoy/data/packed_writer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/data/packed_format.hpp"

namespace convoy::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJournalMagic = "CONVOYJ1";

/// A file that is written and read anywhere in it.
class OpenFile {
 public:
  explicit OpenFile(fs::path path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) fail("cannot write {}: {}", path_.string(), std::strerror(errno));
  }
  ~OpenFile() { ::close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  const fs::path& path() const { return path_; }
  /// False if another process has it.
  bool lock() const { return ::flock(fd_, LOCK_EX | LOCK_NB) == 0; }
  uint64_t size() const {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) complain();
    return static_cast<uint64_t>(status.st_size);
  }
  void cut(uint64_t size) const {
    if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) complain();
  }
  void write(uint64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t done = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) complain();
      bytes = bytes.subspan(static_cast<size_t>(done));
      offset += static_cast<uint64_t>(done);
    }
  }
  /// False if there are not so many bytes.
  bool read(uint64_t offset, std::span<std::byte> to) const {
    while (!to.empty()) {
      const ssize_t got = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) complain();
      if (got == 0) return false;
      to = to.subspan(static_cast<size_t>(got));
      offset += static_cast<uint64_t>(got);
    }
    return true;
  }
  void sync() const {
    if (::fsync(fd_) != 0) complain();
  }

 private:
  [[noreturn]] void complain() const {
    fail("cannot write {}: {}", path_.string(), std::strerror(errno));
  }

  fs::path path_;
  int fd_ = -1;
};

fs::path beside(const fs::path& path, const char* suffix) {
  fs::path name = path;
  name += suffix;
  return name;
}

void refuse_existing(const fs::path& path) {
  std::error_code error;
  if (fs::symlink_status(path, error).type() == fs::file_type::not_found) return;
  refuse("{}: exists already and is not overwritten; remove it or name another file",
         path.string());
}

/// What the index will say of a record.
struct Kept {
  uint64_t length = 0;
  uint64_t checksum = 0;
  ImageInfo image;
  int32_t label = 0;
  std::string source;
};

/// One item as the journal tells of it: a record or one that was left out.
struct Item {
  bool in_file = true;
  Kept kept;
  ImageMoments moments;
  LeftOut left;
};

void put(format::Writer& w, const Item& item) {
  w.put(static_cast<uint8_t>(item.in_file ? 1 : 0));
  if (item.in_file) {
    w.put(item.kept.length);
    w.put(item.kept.checksum);
    w.put(static_cast<uint8_t>(item.kept.image.encoding));
    w.put(item.kept.image.width);
    w.put(item.kept.image.height);
    w.put(item.kept.image.channels);
    w.put(item.kept.label);
    for (const Moments& m : item.moments) {
      w.put(m.count);
      w.put(m.sum);
      w.put(m.squares);
    }
  } else {
    w.put(static_cast<uint8_t>(item.left.what));
    w.put_text(item.left.message);
  }
  w.put_text(item.in_file ? item.kept.source : item.left.source);
}

Item get(format::Reader& r) {
  Item item;
  item.in_file = r.get<uint8_t>() != 0;
  if (item.in_file) {
    item.kept.length = r.get<uint64_t>();
    item.kept.checksum = r.get<uint64_t>();
    item.kept.image.encoding = static_cast<Encoding>(r.get<uint8_t>());
    item.kept.image.width = r.get<int32_t>();
    item.kept.image.height = r.get<int32_t>();
    item.kept.image.channels = r.get<int32_t>();
    item.kept.label = r.get<int32_t>();
    for (Moments& m : item.moments) {
      m.count = r.get<uint64_t>();
      m.sum = r.get<uint64_t>();
      m.squares = r.get<uint64_t>();
    }
  } else {
    item.left.what = static_cast<BadImage>(r.get<uint8_t>());
    item.left.message = r.get_text();
  }
  (item.in_file ? item.kept.source : item.left.source) = r.get_text();
  return item;
}

}  // namespace

// The journal: magic, key and their checksum; then for each item its length in 32 bits, its bytes
// and a checksum. Each checksum has the one before as its seed, so an entry counts only if all
// before it do.
struct PackedWriter::State {
  State(fs::path given, uint64_t given_key, std::vector<std::string> names,
        std::vector<Split> parts)
      : path(std::move(given)),
        key(given_key),
        classes(std::move(names)),
        splits(std::move(parts)),
        part(beside(path, ".part")),
        journal(beside(path, ".journal")) {
    if (!part.lock()) refuse("{}: another process is packing it", path.string());
    // It may have become whole between the first look and the lock.
    refuse_existing(path);
    for (const Split& split : splits) total += split.count;
    if (!go_on()) start();
  }

  /// Takes up what an earlier writer left; false if there is nothing of ours.
  bool go_on() {
    const uint64_t length = journal.size();
    std::vector<std::byte> bytes(static_cast<size_t>(length));
    if (!journal.read(0, bytes)) return false;
    format::Reader r(bytes);
    try {
      const auto magic = r.take(kJournalMagic.size());
      if (std::memcmp(magic.data(), kJournalMagic.data(), magic.size()) != 0) return false;
      if (r.get<uint64_t>() != key) return false;
      chain = format::hash(std::span(bytes).first(r.at()));
      if (r.get<uint64_t>() != chain) return false;
      journal_end = r.at();
      take_items(r);
    } catch (const format::EndOfBytes&) {
      // An entry that was not written to its end: the ones before it stand.
    }
    if (journal_end == 0) return false;
    journal.cut(journal_end);
    part.cut(part_end);
    return true;
  }

  void take_items(format::Reader& r) {
    std::vector<std::byte> record;
    while (r.left() > 0 && items() < total) {
      const auto body = r.take(r.get<uint32_t>());
      const uint64_t next = format::hash(body, chain);
      if (r.get<uint64_t>() != next) return;
      format::Reader inside(body);
      Item item = get(inside);
      if (item.in_file) {
        const Kept& kept = item.kept;
        if (kept.length > part.size() - std::min(part.size(), part_end)) return;
        record.resize(kept.length);
        if (!part.read(part_end, record) || format::hash(record) != kept.checksum) return;
      }
      count(std::move(item));
      chain = next;
      journal_end = r.at();
    }
  }

  void start() {
    part.cut(0);
    journal.cut(0);
    const std::array<std::byte, format::kHeader> empty{};
    part.write(0, empty);
    format::Writer w;
    w.put_bytes(kJournalMagic);
    w.put(key);
    chain = format::hash(w.bytes());
    w.put(chain);
    journal.write(0, w.bytes());
    journal_end = w.size();
  }

  void add(Item item) {
    check(items() < total, "no more items are packed than there are");
    format::Writer body;
    put(body, item);
    const uint64_t next = format::hash(body.bytes(), chain);
    format::Writer w;
    w.put(static_cast<uint32_t>(body.size()));
    w.put_bytes({reinterpret_cast<const char*>(body.bytes().data()), body.size()});
    w.put(next);
    journal.write(journal_end, w.bytes());
    chain = next;
    journal_end += w.size();
    count(std::move(item));
  }

  /// Numbers only: the bytes are written.
  void count(Item item) {
    const size_t split = split_of(items());
    if (!item.in_file) {
      bad.push_back(std::move(item.left));
      return;
    }
    const bool is_gray = item.kept.image.channels == 1;
    part_end += item.kept.length;
    ++in_split[split];
    ImageMoments& sums = is_gray ? gray : colour;
    for (size_t c = 0; split == 0 && c < sums.size(); ++c) sums[c] += item.moments[c];
    has_colour = has_colour || !is_gray;
    done.push_back(std::move(item.kept));
  }

  int64_t items() const { return static_cast<int64_t>(done.size() + bad.size()); }

  size_t split_of(int64_t item) const {
    size_t split = 0;
    for (int64_t end = 0; split < splits.size(); ++split) {
      end += splits[split].count;
      if (item < end) break;
    }
    return split;
  }

  format::Writer index() const {
    format::Writer w;
    const uint32_t channels = has_colour ? 3 : 1;
    w.put(channels);
    w.put(static_cast<uint32_t>(classes.size()));
    w.put(static_cast<uint32_t>(splits.size()));
    w.put(uint32_t{0});
    ImageMoments sums = colour;
    for (uint32_t c = 0; c < channels; ++c) sums[c] += gray[0];
    for (uint32_t c = 0; c < channels; ++c) w.put(static_cast<float>(sums[c].mean()));
    for (uint32_t c = 0; c < channels; ++c) w.put(static_cast<float>(sums[c].deviation()));
    for (const std::string& name : classes) w.put_text(name);
    for (size_t i = 0; i < splits.size(); ++i) {
      w.put_text(splits[i].name);
      w.put(in_split[i]);
    }
    uint64_t offset = format::kHeader;
    uint64_t name = 0;
    for (const Kept& kept : done) {
      w.put(offset);
      w.put(kept.length);
      w.put(kept.checksum);
      w.put(name);
      w.put(static_cast<uint32_t>(kept.source.size()));
      w.put(static_cast<uint32_t>(kept.label));
      w.put(static_cast<uint32_t>(kept.image.width));
      w.put(static_cast<uint32_t>(kept.image.height));
      w.put(static_cast<uint8_t>(kept.image.encoding));
      w.put(static_cast<uint8_t>(kept.image.channels));
      w.put(uint16_t{0});
      w.put(uint32_t{0});
      offset += kept.length;
      name += kept.source.size();
    }
    for (const Kept& kept : done) w.put_bytes(kept.source);
    return w;
  }

  void finish() {
    check(items() == total, "a packed file is finished when all items are dealt with");
    for (size_t i = 0; i < splits.size(); ++i) {
      if (in_split[i] == 0) {
        refuse("{}: no image of the split {} can be used, of {}", path.string(), splits[i].name,
               splits[i].count);
      }
    }
    const format::Writer end = index();
    part.write(part_end, end.bytes());
    part.write(0, format::header_bytes({.file_size = part_end + end.size(),
                                        .index_offset = part_end,
                                        .index_length = end.size(),
                                        .index_checksum = format::hash(end.bytes()),
                                        .records = done.size()})
                      .bytes());
    part.cut(part_end + end.size());
    part.sync();
    refuse_existing(path);
    if (::rename(part.path().c_str(), path.c_str()) != 0) {
      fail("cannot rename {} to {}: {}", part.path().string(), path.string(), std::strerror(errno));
    }
    finished = true;
    // The rename itself must survive a power cut, and before that the journal is still of use.
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0) {
      ::fsync(directory);
      ::close(directory);
    }
    ::unlink(journal.path().c_str());
  }

  ~State() {
    if (finished || items() > 0) return;
    ::unlink(part.path().c_str());  // nothing in it to go on with
    ::unlink(journal.path().c_str());
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const fs::path path;
  const uint64_t key;
  const std::vector<std::string> classes;
  const std::vector<Split> splits;
  int64_t total = 0;
  OpenFile part;
  OpenFile journal;
  uint64_t part_end = format::kHeader;
  uint64_t journal_end = 0;
  uint64_t chain = 0;
  std::vector<Kept> done;
  std::vector<LeftOut> bad;
  std::vector<uint64_t> in_split = std::vector<uint64_t>(splits.size());
  ImageMoments gray;
  ImageMoments colour;
  bool has_colour = false;
  bool finished = false;
};

PackedWriter::PackedWriter(const fs::path& path, uint64_t key, std::vector<std::string> classes,
                           std::vector<Split> splits) {
  check(!classes.empty() && !splits.empty(), "a packed file has classes and splits");
  refuse_existing(path);
  state_ = std::make_unique<State>(path, key, std::move(classes), std::move(splits));
}

PackedWriter::~PackedWriter() = default;

int64_t PackedWriter::items() const {
  return state_->items();
}

int64_t PackedWriter::records() const {
  return static_cast<int64_t>(state_->done.size());
}

const std::vector<LeftOut>& PackedWriter::left_out() const {
  return state_->bad;
}

void PackedWriter::append(const NewRecord& record) {
  check(!record.bytes.empty(), "a record has bytes");
  check(record.label >= 0 && static_cast<size_t>(record.label) < state_->classes.size(),
        "a label is below the number of classes");
  state_->part.write(state_->part_end, record.bytes);
  Item item;
  item.kept = {.length = record.bytes.size(),
               .checksum = format::hash(record.bytes),
               .image = record.image,
               .label = record.label,
               .source = record.source};
  item.moments = record.moments;
  state_->add(std::move(item));
}

void PackedWriter::leave_out(const LeftOut& left) {
  Item item;
  item.in_file = false;
  item.left = left;
  state_->add(std::move(item));
}

void PackedWriter::finish() {
  state_->finish();
}

}  // namespace convoy::data
