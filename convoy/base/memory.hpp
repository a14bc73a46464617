#pragma once
// Memory: how much there is, how much we take, and the one way to allocate arenas.

#include <cstddef>
#include <filesystem>
#include <span>

#include "convoy/base/units.hpp"

namespace convoy {

/// What this process may still take without swapping: the lesser of the machine's available memory
/// and what its control group has left. `root` is the root of the file system (for tests).
Bytes available_memory(const std::filesystem::path& root = "/");
/// Memory of this process that is in RAM now, and the most there ever was.
Bytes resident_memory(const std::filesystem::path& root = "/");
Bytes peak_resident_memory(const std::filesystem::path& root = "/");
/// Counts the peak anew from what is resident now; on systems that do not allow it the old one
/// stands.
void restart_peak_memory();
/// Gives the system back what was freed.
void return_free_memory();

/// A zeroed block of memory, aligned to a cache line; from 4 MiB on to 2 MiB, on huge pages where
/// the system has them. Large blocks take real memory only where they are touched, and on the NUMA
/// node of the thread that touches first. Throws Error if there is not enough.
class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  AlignedBuffer() = default;
  explicit AlignedBuffer(Bytes size);
  static AlignedBuffer of_floats(int64_t count) { return AlignedBuffer(Bytes{4 * count}); }
  /// The memory that a block of this size takes: whole cache lines, or whole huge pages.
  static Bytes taken(Bytes size);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  Bytes size() const { return {static_cast<int64_t>(size_)}; }
  bool empty() const { return size_ == 0; }

  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::span<float> floats() { return {reinterpret_cast<float*>(data_), size_ / sizeof(float)}; }
  std::span<const float> floats() const {
    return {reinterpret_cast<const float*>(data_), size_ / sizeof(float)};
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;  // large blocks: what was mapped, with room for the alignment
  size_t mapped_ = 0;
};

}  // namespace convoy
