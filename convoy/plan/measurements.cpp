#include "convoy/plan/measurements.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/base/threads.hpp"
#include "convoy/base/units.hpp"
#include "convoy/base/version.hpp"
#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::plan {

Measurements::Measurements(std::filesystem::path file,
                           const std::function<void(const std::string& line)>& note)
    : file_(std::move(file)),
      head_{{"version", version()}, {"cpu", cpu_name()}, {"isa", engine::select_kernels().isa}} {
  if (file_.empty() || !std::filesystem::exists(file_)) return;
  const auto ignored = [&](const std::string& why) {
    if (note) note(fmt::format("profile {} {}: ignored", file_.string(), why));
  };
  try {
    const std::vector<uint8_t> bytes = read_file(file_);
    const nlohmann::json json = nlohmann::json::parse(bytes.begin(), bytes.end());
    if (json.at("head") != head_) {
      ignored("is of another CPU or version");
      return;
    }
    entries_ = json.at("entries").get<std::map<std::string, std::vector<double>>>();
  } catch (const std::exception& error) {
    ignored(fmt::format("cannot be read ({})", error.what()));
  }
}

std::optional<std::vector<double>> Measurements::find(const std::string& key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  return found->get<std::vector<double>>();
}

void Measurements::put(const std::string& key, const std::vector<double>& values) {
  entries_[key] = values;
  changed_ = true;
}

void Measurements::save() {
  if (file_.empty() || !changed_) return;
  std::error_code ignored;
  std::filesystem::create_directories(file_.parent_path(), ignored);
  try {
    write_atomically(file_, nlohmann::json{{"head", head_}, {"entries", entries_}}.dump(1));
    changed_ = false;
  } catch (const Error&) {
    // Only the time to measure again is lost.
  }
}

std::filesystem::path cache_folder() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) {
    return std::filesystem::path(xdg) / "convoy";
  }
  const std::string home = variable("HOME");
  return home.empty() ? std::filesystem::path() : std::filesystem::path(home) / ".cache/convoy";
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double median_seconds(const std::function<void()>& work) {
  constexpr Seconds kLongEnough{0.1};
  constexpr Seconds kTooLong{0.5};
  constexpr int kLeastRepeats = 3;
  constexpr int kMostRepeats = 25;
  const Seconds start = now();
  work();
  // What takes long is not disturbed by cold caches.
  if (const Seconds first = now() - start; first >= kTooLong) return first.value;
  std::vector<double> times;
  const Seconds begin = now();
  for (int i = 0; i < kMostRepeats; ++i) {
    const Seconds spent = now() - begin;
    if (spent >= kTooLong || (i >= kLeastRepeats && spent >= kLongEnough)) break;
    const Seconds before = now();
    work();
    times.push_back((now() - before).value);
  }
  return median(std::move(times));
}

}  // namespace convoy::plan
