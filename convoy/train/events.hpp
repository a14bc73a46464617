#pragma once
// The event stream of a run, events.jsonl: one JSON object per line,
//   {"time": seconds since 1970, "event": "start|step|eval|checkpoint|stop|…", …}
// A line is written whole or not at all, and at once, so that a reader can follow the file.

#include <filesystem>
#include <string_view>

#include <nlohmann/json.hpp>

namespace convoy::train {

class EventLog {
 public:
  /// Appends to the file, or creates it. Half a line left by a crash is removed first.
  explicit EventLog(const std::filesystem::path& path);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// Adds one event; `fields` is an object. Numbers that JSON lacks (NaN, infinity) become null.
  /// Throws Error if the line cannot be written.
  void write(std::string_view event, const nlohmann::json& fields = nlohmann::json::object());

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace convoy::train
