#pragma once
// The regular files of a tar archive (POSIX ustar and its forerunners), as they lie in memory.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace convoy::sync {

struct TarFile {
  std::string name;
  std::span<const uint8_t> bytes;  ///< of the archive given
};

bool looks_like_tar(std::span<const uint8_t> bytes);

/// Folders, links and headers of extensions are passed over. Throws InputError that names `archive`
/// and the byte where it is damaged.
std::vector<TarFile> read_tar(const std::string& archive, std::span<const uint8_t> bytes);

}  // namespace convoy::sync
