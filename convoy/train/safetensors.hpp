#pragma once
// The safetensors format: 8 bytes with the length of the header (little-endian), the header in JSON
//   {"__metadata__": {key: text, …}, name: {"dtype", "shape", "data_offsets": [begin, end]}, …}
// padded with spaces to a multiple of 8 bytes, then the tensors' bytes without gaps.
// Files of ours carry the metadata "convoy.checksum": XXH3 of the header (as compact JSON without
// that key) and the data, 16 hexadecimal digits.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace convoy::train {

using TakeValues = std::function<void(std::span<const float> values)>;

/// A tensor to be written.
struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  /// Hands all its values over, in order, in pieces of any size. Called twice (for the checksum and
  /// for writing), so that no tensor has to lie in memory as it is written.
  std::function<void(const TakeValues& take)> values;
};

/// A tensor with its values, in plain (row-major) layout.
struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
  bool operator==(const NamedTensor&) const = default;
};

/// `tensor`, to be written as it lies; it must outlive the result.
Tensor view(const NamedTensor& tensor);

using Metadata = std::map<std::string, std::string>;

inline constexpr const char* kChecksumKey = "convoy.checksum";

/// Writes the tensors in the order given, atomically (convoy/base/file.hpp). Throws Error.
void write_safetensors(const std::filesystem::path& path, std::span<const Tensor> tensors,
                       const Metadata& metadata);

/// The content of a file.
struct Safetensors {
  std::vector<NamedTensor> tensors;  ///< in the order of their data
  Metadata metadata;
};

/// Reads a file from anywhere: types F32, F64, BF16, I64, I32 and U8 become floats. Nothing in the
/// file is believed: lengths, offsets (inside, no gap, no overlap), shapes and the checksum, if
/// there is one, are verified. Throws InputError with the file, what was expected and what was
/// found.
Safetensors read_safetensors(const std::filesystem::path& path);

}  // namespace convoy::train
