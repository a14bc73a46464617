#pragma once
// Files: read whole, write so that nothing is ever half-written.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

/// The whole file; `.gz` content is recognised by its magic bytes and inflated. Throws InputError
/// naming the file when it cannot be read or the gzip stream is damaged.
std::vector<uint8_t> read_file(const std::filesystem::path& path);

/// Writes to a temporary name beside `path`, syncs, renames: readers see the old file or the new
/// one. The writer gets a function to append bytes with. Throws Error (disk full, no permission).
using Append = std::function<void(std::span<const uint8_t>)>;
void write_atomically(const std::filesystem::path& path,
                      const std::function<void(const Append&)>& write);
void write_atomically(const std::filesystem::path& path, std::string_view text);
/// True for the name of a temporary file that write_atomically() makes.
bool is_temporary(const std::filesystem::path& path);

/// XXH3, 64 bits; chain pieces by passing the previous result as seed.
uint64_t checksum(std::span<const uint8_t> bytes, uint64_t seed = 0);

}  // namespace convoy
