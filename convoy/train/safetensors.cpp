#include "convoy/train/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"

namespace convoy::train {
namespace {

using Json = nlohmann::json;
using Bytes = std::span<const uint8_t>;

constexpr const char* kMetadata = "__metadata__";
constexpr uint64_t kLongestHeader = 100'000'000;  // the format's own limit

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

class Hasher {
 public:
  Hasher() { XXH3_64bits_reset(state_.get()); }
  void add(Bytes bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }
  std::string digest() const { return fmt::format("{:016x}", XXH3_64bits_digest(state_.get())); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_{XXH3_createState()};
};

Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Bytes bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}

// ---- Reading ------------------------------------------------------------------------------------

/// A file mapped into memory for reading.
class Mapping {
 public:
  explicit Mapping(const std::string& name) {
    const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) refuse("cannot open {}: {}", name, std::strerror(errno));
    struct stat status {};
    const bool known = ::fstat(fd, &status) == 0;
    if (known && S_ISREG(status.st_mode) && status.st_size > 0) {
      size_ = static_cast<size_t>(status.st_size);
      data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    const int error = errno;
    ::close(fd);
    if (!known || !S_ISREG(status.st_mode)) refuse("{} is not a file", name);
    if (data_ == MAP_FAILED) refuse("cannot read {}: {}", name, std::strerror(error));
  }
  ~Mapping() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Bytes bytes() const { return {static_cast<const uint8_t*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

int64_t item_size(const std::string& dtype) {
  if (dtype == "F64" || dtype == "I64") return 8;
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "BF16") return 2;
  return dtype == "U8" ? 1 : 0;
}

/// Parses one file and keeps its name for the messages.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : name_(path.string()), file_(name_) {}

  Safetensors read() {
    const Bytes file = file_.bytes();
    if (file.size() < 8) {
      damaged("expected the 8 bytes of a header length, found {} bytes", file.size());
    }
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    if (length > kLongestHeader || length > file.size() - 8) {
      damaged("expected a header of {} bytes, found {} bytes after its length", length,
              file.size() - 8);
    }
    data_ = file.subspan(8 + length);
    Json header = parse(file.subspan(8, length));

    Safetensors result;
    result.metadata = take_metadata(header);
    std::vector<Entry> entries;
    for (const auto& [key, value] : header.items()) {
      if (key != kMetadata) entries.push_back(entry(key, value));
    }
    check_layout(entries);
    verify_checksum(header, result.metadata);
    result.tensors.reserve(entries.size());
    for (const Entry& e : entries) result.tensors.push_back({e.name, e.shape, values(e)});
    return result;
  }

 private:
  template <typename... Args>
  [[noreturn]] void damaged(fmt::format_string<Args...> format, Args&&... args) const {
    refuse("{}: not a whole safetensors file: {}", name_,
           fmt::format(format, std::forward<Args>(args)...));
  }

  Json parse(Bytes text) const {
    std::set<std::string> seen;
    const auto refuse_twice = [&](int depth, Json::parse_event_t event, const Json& parsed) {
      if (event == Json::parse_event_t::key && depth == 1 &&
          !seen.insert(parsed.get<std::string>()).second) {
        damaged("the header names a tensor twice");
      }
      return true;
    };
    Json header;
    try {
      header = Json::parse(text.begin(), text.end(), refuse_twice);
    } catch (const Json::exception& error) {
      damaged("expected a header in JSON, found {}", error.what());
    }
    if (!header.is_object())
      damaged("expected a JSON object as header, found {}", header.type_name());
    return header;
  }

  Metadata take_metadata(const Json& header) const {
    Metadata metadata;
    const auto found = header.find(kMetadata);
    if (found == header.end()) return metadata;
    if (!found->is_object()) damaged("expected {} to be an object", kMetadata);
    for (const auto& [key, value] : found->items()) {
      if (!value.is_string()) damaged("expected {}.{} to be text", kMetadata, key);
      metadata[key] = value.get<std::string>();
    }
    return metadata;
  }

  Entry entry(const std::string& name, const Json& value) const {
    const auto member = [&](const char* key) -> const Json& {
      const auto found = value.is_object() ? value.find(key) : value.end();
      if (found == value.end()) damaged("tensor {}: expected a {}, found none", name, key);
      return *found;
    };
    const auto numbers = [&](const char* key) {
      const Json& list = member(key);
      std::vector<int64_t> result;
      bool good = list.is_array();
      for (size_t i = 0; good && i < list.size(); ++i) {
        good = list[i].is_number_unsigned() && list[i].get<uint64_t>() <= uint64_t{INT64_MAX};
        if (good) result.push_back(list[i].get<int64_t>());
      }
      if (!good) damaged("tensor {}: expected {} to be a list of whole numbers", name, key);
      return result;
    };
    Entry e;
    e.name = name;
    if (!member("dtype").is_string()) damaged("tensor {}: expected dtype to be text", name);
    e.dtype = member("dtype").get<std::string>();
    e.shape = numbers("shape");
    const std::vector<int64_t> offsets = numbers("data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      damaged("tensor {}: expected data_offsets [begin, end], found {}", name, shape_text(offsets));
    }
    e.begin = static_cast<uint64_t>(offsets[0]);
    e.end = static_cast<uint64_t>(offsets[1]);
    check_size(e);
    return e;
  }

  void check_size(const Entry& e) const {
    int64_t size = item_size(e.dtype);
    if (size == 0) {
      refuse("{}: tensor {} has type {}; types that can be read are F32, F64, BF16, I64, I32, U8",
             name_, e.name, e.dtype);
    }
    bool fits = true;
    for (const int64_t extent : e.shape) {
      fits = fits && !__builtin_mul_overflow(size, extent, &size);
    }
    if (!fits || static_cast<uint64_t>(size) != e.end - e.begin) {
      damaged("tensor {}: expected the bytes of {} {}, found {} bytes", e.name, e.dtype,
              shape_text(e.shape), e.end - e.begin);
    }
  }

  // Sorts by offset; the tensors must then cover the data without gap or overlap.
  void check_layout(std::vector<Entry>& entries) const {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    uint64_t covered = 0;
    for (const Entry& e : entries) {
      if (e.begin != covered) {
        damaged("tensor {}: expected to begin at byte {} of the data, found {}", e.name, covered,
                e.begin);
      }
      covered = e.end;
    }
    if (covered != data_.size()) {
      damaged("expected {} bytes of data, found {}", covered, data_.size());
    }
  }

  void verify_checksum(Json& header, const Metadata& metadata) const {
    const auto expected = metadata.find(kChecksumKey);
    if (expected == metadata.end()) return;
    header[kMetadata].erase(kChecksumKey);
    Hasher hasher;
    hasher.add(bytes_of(header.dump()));
    hasher.add(data_);
    if (hasher.digest() != expected->second) {
      damaged("expected checksum {}, found {}", expected->second, hasher.digest());
    }
  }

  template <typename T>
  std::vector<float> converted(const Entry& e) const {
    std::vector<float> result((e.end - e.begin) / sizeof(T));
    const uint8_t* from = data_.data() + e.begin;
    for (float& value : result) {
      T item;
      std::memcpy(&item, from, sizeof item);
      from += sizeof item;
      value = static_cast<float>(item);
    }
    return result;
  }

  std::vector<float> values(const Entry& e) const {
    if (e.dtype == "F64") return converted<double>(e);
    if (e.dtype == "I64") return converted<int64_t>(e);
    if (e.dtype == "I32") return converted<int32_t>(e);
    if (e.dtype == "U8") return converted<uint8_t>(e);
    if (e.dtype == "BF16") return from_bfloat16(e);
    std::vector<float> result((e.end - e.begin) / sizeof(float));
    if (!result.empty()) std::memcpy(result.data(), data_.data() + e.begin, e.end - e.begin);
    return result;
  }

  // A bfloat16 is the upper half of a float.
  std::vector<float> from_bfloat16(const Entry& e) const {
    std::vector<float> result((e.end - e.begin) / 2);
    for (size_t i = 0; i < result.size(); ++i) {
      uint16_t half = 0;
      std::memcpy(&half, data_.data() + e.begin + 2 * i, sizeof half);
      result[i] = std::bit_cast<float>(uint32_t{half} << 16);
    }
    return result;
  }

  std::string name_;
  Mapping file_;
  Bytes data_;
};

}  // namespace

Safetensors read_safetensors(const std::filesystem::path& path) {
  return Reader(path).read();
}

Tensor view(const NamedTensor& tensor) {
  return {tensor.name, tensor.shape, [&tensor](const TakeValues& take) { take(tensor.values); }};
}

void write_safetensors(const std::filesystem::path& path, std::span<const Tensor> tensors,
                       const Metadata& metadata) {
  Json header = Json::object();
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    int64_t size = 1;
    for (const int64_t extent : tensor.shape) size *= extent;
    check(tensor.name != kMetadata && !header.contains(tensor.name), "tensors' names are unique");
    const uint64_t end = offset + static_cast<uint64_t>(size) * sizeof(float);
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  header[kMetadata] = metadata.empty() ? Json::object() : Json(metadata);
  header[kMetadata].erase(kChecksumKey);

  Hasher hasher;
  hasher.add(bytes_of(header.dump()));
  uint64_t written = 0;
  for (const Tensor& tensor : tensors) {
    tensor.values([&](std::span<const float> values) {
      hasher.add(bytes_of(values));
      written += values.size_bytes();
    });
  }
  check(written == offset, "tensors have as many values as their shapes");
  header[kMetadata][kChecksumKey] = hasher.digest();

  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  write_atomically(path, [&](const Append& append) {
    append({reinterpret_cast<const uint8_t*>(&length), sizeof length});
    append(bytes_of(text));
    for (const Tensor& tensor : tensors) {
      tensor.values([&](std::span<const float> values) { append(bytes_of(values)); });
    }
  });
}

}  // namespace convoy::train
