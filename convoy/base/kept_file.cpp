#include "convoy/base/kept_file.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace convoy {

KeptFile::KeptFile(std::filesystem::path path) : path_(std::move(path)) {
  reopen();
}

KeptFile::~KeptFile() {
  if (open()) ::close(descriptor_);
}

KeptFile::KeptFile(KeptFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

KeptFile& KeptFile::operator=(KeptFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void KeptFile::reopen() {
  char byte = 0;
  // Files of a group that was removed, or of a thread that ended, stay open but cannot be read.
  if (open() && ::pread(descriptor_, &byte, 1, 0) >= 0) return;
  if (open()) ::close(descriptor_);
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
}

std::string_view KeptFile::text(std::string& buffer) const {
  constexpr size_t kUsual = 4096;
  if (!open()) return {};
  if (buffer.size() < kUsual) buffer.resize(kUsual);
  for (;;) {
    const ssize_t size = ::pread(descriptor_, buffer.data(), buffer.size(), 0);
    if (size < 0) return {};
    // Read again from the start if it was longer: the halves of two moments would not fit together.
    if (static_cast<size_t>(size) < buffer.size()) {
      return {buffer.data(), static_cast<size_t>(size)};
    }
    buffer.resize(2 * buffer.size());
  }
}

std::string_view next_word(std::string_view& text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) {
    text = {};
    return {};
  }
  text.remove_prefix(begin);
  const std::string_view word = text.substr(0, text.find_first_of(" \t\n"));
  text.remove_prefix(word.size());
  return word;
}

std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

double to_number(std::string_view word, double otherwise) {
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() ? number : otherwise;
}

double number_after(std::string_view text, std::string_view key, double otherwise) {
  while (!text.empty()) {
    std::string_view line = next_line(text);
    if (next_word(line) == key) return to_number(next_word(line), otherwise);
  }
  return otherwise;
}

}  // namespace convoy
