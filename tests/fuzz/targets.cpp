#include "tests/fuzz/targets.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "convoy/data/image.hpp"
#include "convoy/data/packed.hpp"
#include "convoy/data/packed_format.hpp"
#include "convoy/data/readers.hpp"
#include "convoy/data/resample.hpp"
#include "convoy/sync/predict/traces.hpp"

namespace convoy::fuzz {
namespace {

namespace fs = std::filesystem;
using data::format::hash;
using data::format::kHeader;
using data::format::kHeaderChecked;

// Larger images are right to be decoded, but take too long here.
constexpr int64_t kMostPixels = 1 << 18;

void image(std::span<const std::byte> bytes) {
  try {
    const data::ImageInfo info = data::probe(bytes);
    if (info.pixels() > kMostPixels) return;
    // Any part, but the same for the same bytes.
    const uint64_t random = hash(bytes);
    const auto part = [&](int shift, int32_t extent) {
      const auto begin = static_cast<int32_t>((random >> shift & 0xFF) * (extent - 1) / 255);
      const auto size =
          1 + static_cast<int32_t>((random >> (shift + 8) & 0xFF) * (extent - begin - 1) / 255);
      return std::pair{begin, size};
    };
    const auto [x, width] = part(0, info.width);
    const auto [y, height] = part(16, info.height);
    const data::Size size{.height = 1 + static_cast<int32_t>(random >> 32 & 0x3F),
                          .width = 1 + static_cast<int32_t>(random >> 40 & 0x3F)};
    const int channels = (random >> 48 & 1) != 0 ? 1 : 3;
    data::Decoder decoder;
    data::Resampler resampler;
    std::vector<float> out(static_cast<size_t>(channels * size.height * size.width));
    resampler.resample(decoder.decode(bytes, {x, y, width, height}, size, channels), size, true, {},
                       out);
    decoder.decode(bytes, size, channels);
    decoder.decode(bytes, info.channels);
  } catch (const data::ImageError&) {
  }
}

/// A file in memory that has a name.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      std::abort();
    }
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  fs::path path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void make_checksums_right(std::span<std::byte> file) {
  if (file.size() < kHeader) return;
  uint64_t index = 0;
  std::memcpy(&index, file.data() + 24, sizeof index);
  if (index <= file.size()) {
    const uint64_t checksum = hash(file.subspan(index));
    std::memcpy(file.data() + 40, &checksum, sizeof checksum);
  }
  const uint64_t checksum = hash(file.first(kHeaderChecked));
  std::memcpy(file.data() + kHeaderChecked, &checksum, sizeof checksum);
}

/// After the signature a PNG is chunks: length, name, as many bytes, CRC of name and bytes.
void make_chunks_right(std::span<std::byte> file) {
  constexpr size_t kSignature = 8;
  constexpr size_t kAround = 12;
  const auto byte = [&](size_t at) { return std::to_integer<uint32_t>(file[at]); };
  for (size_t at = kSignature; at + kAround <= file.size();) {
    const size_t length = byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
    if (length > file.size() - at - kAround) return;
    const auto* const begin = reinterpret_cast<const Bytef*>(file.data()) + at + 4;
    const uLong crc = crc32(0, begin, static_cast<uInt>(4 + length));
    for (size_t k = 0; k < 4; ++k) {
      file[at + 8 + length + k] = static_cast<std::byte>(crc >> (24 - 8 * k));
    }
    at += kAround + length;
  }
}

/// The checksum of the first header, if it is one.
void make_tar_right(std::span<uint8_t> file) {
  constexpr size_t kHeaderSize = 512;
  constexpr size_t kSum = 148;
  if (file.size() < kHeaderSize || std::memcmp(file.data() + 257, "ustar", 5) != 0) return;
  std::memset(file.data() + kSum, ' ', 8);
  unsigned sum = 0;
  for (const uint8_t byte : file.first(kHeaderSize)) sum += byte;
  for (size_t k = 0; k < 6; ++k) {
    file[kSum + k] = static_cast<uint8_t>('0' + (sum >> (3 * (5 - k)) & 7));
  }
}

/// A folder that lasts as long as the process.
class Scratch {
 public:
  Scratch() {
    const fs::path memory = "/dev/shm";
    std::string pattern =
        ((fs::is_directory(memory) ? memory : fs::temp_directory_path()) / "convoy-fuzz-XXXXXX")
            .string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~Scratch() { fs::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const fs::path& path() const { return path_; }
  void put(const std::string& name, std::span<const std::byte> bytes) const {
    std::ofstream out(path_ / name, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }

 private:
  fs::path path_;
};

std::vector<std::byte> of(std::initializer_list<int> values, size_t zeros = 0) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  bytes.resize(bytes.size() + zeros);
  return bytes;
}

struct SetFile {
  const char* name;
  std::vector<std::byte> bytes;
};

/// The files of a set as they should be.
class SetFolder : public Scratch {
 public:
  explicit SetFolder(std::vector<SetFile> given) : files(std::move(given)) {
    for (const SetFile& file : files) put(file.name, file.bytes);
  }
  const std::vector<SetFile> files;
};

/// Reads the set with one file made up.
void read_set(const SetFolder& folder, std::span<const std::byte> made_up,
              data::TrainTest (*read)(const fs::path&)) {
  if (made_up.empty()) return;
  const SetFile& file = folder.files[std::to_integer<size_t>(made_up[0]) % folder.files.size()];
  folder.put(file.name, made_up.subspan(1));
  try {
    const data::TrainTest sets = read(folder.path());
    for (const auto* set : {&*sets.train, &*sets.test}) {
      for (int64_t i = 0; i < set->size(); ++i) {
        if (set->label(i) >= set->classes() ||
            set->pixels(i).size() != static_cast<size_t>(set->shape().size())) {
          std::abort();
        }
      }
    }
  } catch (const InputError&) {
  }
  folder.put(file.name, file.bytes);
}

}  // namespace

void jpeg(std::span<const std::byte> bytes) {
  image(bytes);
}

void png(std::span<const std::byte> bytes) {
  std::vector<std::byte> right(bytes.begin(), bytes.end());
  make_chunks_right(right);
  image(right);
}

void packed(std::span<const std::byte> bytes) {
  std::vector<std::byte> right(bytes.begin(), bytes.end());
  make_checksums_right(right);
  const MemoryFile memory(right);
  try {
    data::PackedFile file(memory.path());
    file.map();
    int sum = 0;
    std::vector<std::byte> room;
    for (const data::Split& split : file.summary().splits) {
      sum += static_cast<int>(file.length(split.first, split.first + split.count));
    }
    for (int64_t i = 0; i < file.size(); ++i) {
      for (const std::byte byte : file.mapped(i)) sum += std::to_integer<int>(byte);
      sum += static_cast<int>(file.name(i).size());
      sum += file.summary().classes.at(static_cast<size_t>(file.record(i).label)).empty() ? 1 : 0;
      room.resize(static_cast<size_t>(file.record(i).length));
      file.read(i, i + 1, room);
      file.verify(i, room);
    }
    if (sum == INT32_MIN) std::abort();  // so that the reads above are not left out
  } catch (const InputError&) {
  }
}

void idx(std::span<const std::byte> bytes) {
  static const SetFolder folder({
      {"train-images-idx3-ubyte", of({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3}, 12)},
      {"train-labels-idx1-ubyte", of({0, 0, 8, 1, 0, 0, 0, 2, 1, 0})},
      {"t10k-images-idx3-ubyte", of({0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3}, 6)},
      {"t10k-labels-idx1-ubyte", of({0, 0, 8, 1, 0, 0, 0, 1, 1})},
  });
  read_set(folder, bytes, data::read_idx);
}

void cifar(std::span<const std::byte> bytes) {
  static const SetFolder ten({
      {"data_batch_1.bin", of({3}, 3072)},
      {"data_batch_2.bin", of({4}, 3072)},
      {"data_batch_3.bin", of({5}, 3072)},
      {"data_batch_4.bin", of({6}, 3072)},
      {"data_batch_5.bin", of({7}, 3072)},
      {"test_batch.bin", of({9}, 3072)},
  });
  static const SetFolder fine({
      {"train.bin", of({19, 99}, 3072)},
      {"test.bin", of({0, 7}, 3072)},
  });
  if (bytes.empty()) return;
  const bool hundred = (bytes[0] & std::byte{0x80}) != std::byte{0};
  read_set(hundred ? fine : ten, bytes, hundred ? data::read_cifar100 : data::read_cifar10);
}

void trace(std::span<const std::byte> bytes) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(bytes.data());
  std::vector<uint8_t> right(begin, begin + bytes.size());
  make_tar_right(right);
  try {
    const sync::Trace read = sync::parse_trace("fuzz", std::move(right));
    for (const sync::WorkerTrace& worker : read.workers) {
      for (const sync::Observation& step : worker.steps) {
        if (!sync::sane_speed(step.speed) || !(step.load.cpu >= 0 && step.load.cpu <= 1) ||
            !(step.load.memory >= 0 && step.load.memory <= 1)) {
          std::abort();
        }
      }
    }
  } catch (const InputError&) {
  }
}

std::vector<Target> targets() {
  return {{"jpeg", jpeg}, {"png", png},     {"packed", packed},
          {"idx", idx},   {"cifar", cifar}, {"trace", trace}};
}

}  // namespace convoy::fuzz
