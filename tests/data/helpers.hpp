#pragma once
// What the tests of data share.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/job/job.hpp"

namespace convoy::data {

/// A folder of its own for a test, removed with everything in it at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "convoy-data-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) fail("cannot make a folder {}", pattern);
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string string() const { return path_.string(); }
  void write(const std::string& name, std::span<const uint8_t> bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    write_atomically(path_ / name, [&](const Append& append) { append(bytes); });
  }
  void write(const std::string& name, const std::string& text) const {
    write_atomically(path_ / name, text);
  }

 private:
  std::filesystem::path path_;
};

/// A job's data section for files, and for synthetic data.
inline job::Data files(const std::string& kind, const std::string& path) {
  job::Data data;
  data.kind = kind;
  data.path = path;
  return data;
}
inline job::Data synthetic(const std::vector<int64_t>& shape, int64_t classes, int64_t size) {
  job::Data data;
  data.kind = "synthetic";
  data.shape = shape;
  data.classes = classes;
  data.size = size;
  return data;
}

/// The message of the InputError that `action` must end with.
inline std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

}  // namespace convoy::data
