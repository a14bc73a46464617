#pragma once
// What was measured on this machine, kept on disk, so that it is measured once.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace convoy::plan {

/// Lists of numbers by key. A file of another CPU, instruction set or version is ignored with a
/// line to `note`, and so is one that cannot be read.
class Measurements {
 public:
  /// Without a file they are forgotten at the end.
  explicit Measurements(std::filesystem::path file = {},
                        const std::function<void(const std::string& line)>& note = nullptr);

  std::optional<std::vector<double>> find(const std::string& key) const;
  void put(const std::string& key, const std::vector<double>& values);
  /// Writes the file if there is something new. That it cannot be written is no error: only the
  /// time to measure again is lost.
  void save();

 private:
  std::filesystem::path file_;
  nlohmann::json head_;
  nlohmann::json entries_ = nlohmann::json::object();
  bool changed_ = false;
};

/// The folder for caches: $XDG_CACHE_HOME/convoy or ~/.cache/convoy; empty if there is neither.
std::filesystem::path cache_folder();

double median(std::vector<double> values);

/// Median seconds of `work`, after one run to warm up; fewer repetitions if it takes long.
double median_seconds(const std::function<void()>& work);

}  // namespace convoy::plan
