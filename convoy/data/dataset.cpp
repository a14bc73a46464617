#include "convoy/data/dataset.hpp"

#include <utility>

#include <fmt/format.h>

namespace convoy::data {

Stored Dataset::sample(int64_t index) const {
  const model::Shape of = shape();
  ImageInfo image;
  image.width = static_cast<int32_t>(of.width);
  image.height = static_cast<int32_t>(of.height);
  image.channels = static_cast<int32_t>(of.channels);
  return {.bytes = std::as_bytes(pixels(index)), .image = image, .label = label(index)};
}

std::string Dataset::name(int64_t index) const {
  return fmt::format("sample {}", index);
}

void BadSamples::add(const std::string& name, const std::string& problem) {
  const std::lock_guard lock(mutex_);
  // Messages about checksums begin with the name themselves.
  const std::string line =
      problem.starts_with(name) ? problem : fmt::format("{}: {}", name, problem);
  if (all_.emplace(name, line).second) fresh_.push_back(line);
}

std::vector<std::string> BadSamples::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(fresh_, {});
}

int64_t BadSamples::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(all_.size());
}

std::map<std::string, std::string> BadSamples::all() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

}  // namespace convoy::data
