#include "convoy/base/trace.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace convoy {
namespace {

const char* name_of(Trace::Kind kind) {
  switch (kind) {
    case Trace::Kind::compute:
      return "compute";
    case Trace::Kind::exchange:
      return "exchange";
    case Trace::Kind::wait:
      return "wait";
  }
  return "";
}

double microseconds(Seconds time) {
  return time.value * 1e6;
}

}  // namespace

void Trace::start() {
  for (auto& events : events_) events.clear();
  counts_.clear();
  origin_ = now();
  on_ = true;
}

void Trace::add(int thread, Kind kind, std::string name, Seconds begin, Seconds end) {
  if (!on() || begin < origin_) return;
  events_[static_cast<size_t>(thread)].push_back({kind, std::move(name), begin, end});
}

void Trace::count(std::string name, double value, Seconds at) {
  if (!on() || at < origin_) return;
  counts_.push_back({std::move(name), value, at});
}

std::string Trace::json(int worker, const std::string& name) const {
  using nlohmann::json;
  std::vector<std::string> lines;
  const auto put = [&](json event) {
    event["pid"] = worker;
    lines.push_back(event.dump());
  };
  put({{"ph", "M"}, {"name", "process_name"}, {"args", {{"name", name}}}});
  for (size_t t = 0; t < events_.size(); ++t) {
    const bool lane = static_cast<int>(t) < lanes();
    put({{"ph", "M"},
         {"name", "thread_name"},
         {"tid", t},
         {"args", {{"name", lane ? fmt::format("lane {}", t) : "communication"}}}});
    int64_t id = 0;
    for (const Event& e : events_[t]) {
      json event{{"name", e.name},
                 {"cat", name_of(e.kind)},
                 {"tid", t},
                 {"ts", microseconds(e.begin - origin_)}};
      if (lane) {
        event["ph"] = "X";
        event["dur"] = microseconds(e.end - e.begin);
        put(std::move(event));
        continue;
      }
      event["ph"] = "b";
      event["id"] = fmt::format("{}.{}", worker, id++);
      put(event);
      event["ph"] = "e";
      event["ts"] = microseconds(e.end - origin_);
      put(std::move(event));
    }
  }
  for (const Count& c : counts_) {
    put({{"ph", "C"},
         {"name", c.name},
         {"ts", microseconds(c.at - origin_)},
         {"args", {{c.name, c.value}}}});
  }
  return fmt::format("{}", fmt::join(lines, ",\n"));
}

std::string trace_file(const std::vector<std::string>& workers) {
  return fmt::format("{{\"traceEvents\":[\n{}\n]}}\n", fmt::join(workers, ",\n"));
}

}  // namespace convoy
