#include "convoy/base/memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include <malloc.h>
#include <sys/mman.h>

#include "convoy/base/cgroup.hpp"
#include "convoy/base/error.hpp"

namespace convoy {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLarge = size_t{4} << 20;

size_t round_up(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// "VmRSS:     1234 kB" in /proc files; −1 if there is no such line.
int64_t kibibytes(const std::filesystem::path& file, const std::string& key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (line.starts_with(key + ":")) return std::atoll(line.c_str() + key.size() + 1);
  }
  return -1;
}

Bytes from_status(const std::filesystem::path& root, const std::string& key) {
  return {1024 * std::max<int64_t>(0, kibibytes(root / "proc/self/status", key))};
}

}  // namespace

Bytes available_memory(const std::filesystem::path& root) {
  const int64_t machine = kibibytes(root / "proc/meminfo", "MemAvailable");
  const Bytes free{machine < 0 ? std::numeric_limits<int64_t>::max() : 1024 * machine};
  return std::min(free, cgroup::memory_left(root).value_or(free));
}

Bytes resident_memory(const std::filesystem::path& root) {
  return from_status(root, "VmRSS");
}

Bytes peak_resident_memory(const std::filesystem::path& root) {
  return from_status(root, "VmHWM");
}

void restart_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

void return_free_memory() {
  ::malloc_trim(0);
}

Bytes AlignedBuffer::taken(Bytes size) {
  const auto wanted = static_cast<size_t>(size.value);
  return {static_cast<int64_t>(round_up(wanted, wanted < kLarge ? kAlignment : kHugePage))};
}

AlignedBuffer::AlignedBuffer(Bytes size) {
  check(size.value >= 0, "a buffer's size is not negative");
  if (size.value == 0) return;
  const auto wanted = static_cast<size_t>(size.value);
  if (wanted < kLarge) {
    const size_t padded = round_up(wanted, kAlignment);
    data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, padded));
    if (data_ == nullptr) fail("cannot allocate {}", to_string(size));
    std::memset(data_, 0, padded);
  } else {
    mapped_ = round_up(wanted, kHugePage) + kHugePage;
    mapping_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) fail("cannot allocate {}", to_string(size));
    const auto address = reinterpret_cast<uintptr_t>(mapping_);
    data_ = static_cast<std::byte*>(mapping_) + (round_up(address, kHugePage) - address);
    // A wish: systems without huge pages refuse it, and nothing is lost.
    ::madvise(data_, round_up(wanted, kHugePage), MADV_HUGEPAGE);
  }
  size_ = wanted;
}

AlignedBuffer::~AlignedBuffer() {
  if (mapping_ != nullptr) {
    ::munmap(mapping_, mapped_);
  } else {
    std::free(data_);
  }
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  AlignedBuffer taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  std::swap(mapping_, taken.mapping_);
  std::swap(mapped_, taken.mapped_);
  return *this;
}

}  // namespace convoy
