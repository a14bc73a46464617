#include "convoy/sync/predict/traces.hpp"

#include <charconv>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/base/random.hpp"
#include "convoy/sync/predict/tar.hpp"

namespace convoy::sync {
namespace {

using std::string_view;

constexpr string_view kMinibatchHeader = ",worker,gpu,time,batch_time_norm";
constexpr string_view kBitbrainsStart = "Timestamp [ms];";
constexpr size_t kUsageColumns = 9;
constexpr size_t kBitbrainsColumns = 11;

/// The lines of a file, one by one, cut at a separator.
class Lines {
 public:
  Lines(const std::string& file, string_view text, char separator)
      : file_(file), rest_(text), separator_(separator) {}

  /// False at the end. Empty lines are passed over.
  bool next() {
    do {
      if (rest_.empty()) return false;
      const size_t end = rest_.find('\n');
      line_ = rest_.substr(0, end);
      rest_.remove_prefix(end == string_view::npos ? rest_.size() : end + 1);
      if (line_.ends_with('\r')) line_.remove_suffix(1);
      ++number_;
    } while (line_.empty());
    cut();
    return true;
  }
  string_view line() const { return line_; }
  size_t columns() const { return fields_.size(); }
  string_view field(size_t i) const { return fields_[i]; }

  void expect_columns(size_t count, string_view what) const {
    if (fields_.size() != count) {
      wrong(fmt::format("expected {} columns ({}), found {}", count, what, fields_.size()));
    }
  }
  /// Column `i` as a number within these limits.
  double number(size_t i, string_view what, double least, double most) const {
    double value = 0;
    const string_view text = fields_[i];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value >= least) ||
        !(value <= most)) {
      wrong(fmt::format("column {}: expected {}, a number from {} to {}; found '{}'", i + 1, what,
                        least, most, text));
    }
    return value;
  }
  [[noreturn]] void wrong(const std::string& what) const {
    refuse("{}:{}: {}", file_, number_, what);
  }

 private:
  void cut() {
    fields_.clear();
    string_view rest = line_;
    for (;;) {
      const size_t end = rest.find(separator_);
      string_view field = rest.substr(0, end);
      while (field.starts_with(' ') || field.starts_with('\t')) field.remove_prefix(1);
      while (field.ends_with(' ') || field.ends_with('\t')) field.remove_suffix(1);
      fields_.push_back(field);
      if (end == string_view::npos) return;
      rest.remove_prefix(end + 1);
    }
  }

  const std::string& file_;
  string_view rest_;
  char separator_;
  string_view line_;
  std::vector<string_view> fields_;
  int64_t number_ = 0;
};

constexpr double kMostTime = 1e15;

std::vector<WorkerTrace> read_minibatches(const std::string& file, string_view text) {
  constexpr string_view kColumns = "number,worker,gpu,time,batch_time_norm";
  struct Worker {
    double iteration = -1;
    std::vector<Observation> steps;
  };
  std::map<int64_t, Worker> by_number;
  Lines lines(file, text, ',');
  lines.next();  // the header
  double sum = 0;
  int64_t count = 0;
  while (lines.next()) {
    lines.expect_columns(5, kColumns);
    Worker& worker = by_number[static_cast<int64_t>(lines.number(1, "worker", 0, 1e6))];
    const double iteration = lines.number(3, "the iteration (time)", 0, kMostTime);
    if (iteration < worker.iteration) {
      lines.wrong(
          fmt::format("column 4: expected an iteration not before {}, the last of this "
                      "worker; found {}",
                      worker.iteration, iteration));
    }
    worker.iteration = iteration;
    const double speed = 1 / lines.number(4, "batch_time_norm", 1e-9, kMostTime);
    worker.steps.push_back({speed, {}});
    sum += speed;
    ++count;
  }
  std::vector<WorkerTrace> workers;
  for (auto& [number, worker] : by_number) {
    // Times are normalised to no unit of this world, so speeds are in units of their mean.
    for (Observation& step : worker.steps) step.speed *= static_cast<double>(count) / sum;
    workers.push_back({fmt::format("worker {}", number), std::move(worker.steps)});
  }
  return workers;
}

/// Builds the steps of one machine from what was free in each sample.
class LoadSteps {
 public:
  /// False if the clock did not advance.
  bool add(double time, const Load& free) {
    if (last_time_ && time < *last_time_) return false;
    if (last_time_) steps_.push_back({std::max(free.cpu, kLeastFree), before_});
    last_time_ = time;
    before_ = free;
    return true;
  }
  double last_time() const { return last_time_.value_or(0); }
  std::vector<Observation> take() { return std::move(steps_); }

 private:
  std::optional<double> last_time_;
  Load before_;
  std::vector<Observation> steps_;
};

// Virtual machines may use a little more than they were given, if only by the clocks.
constexpr double kMostPercent = 200;

std::vector<WorkerTrace> read_usage(const std::string& file, string_view text) {
  std::map<std::string, LoadSteps, std::less<>> by_machine;
  Lines lines(file, text, ',');
  while (lines.next()) {
    lines.expect_columns(kUsageColumns,
                         "machine_id,time_stamp,cpu,mem,mem_gps,mkpi,net_in,net_out,disk_io");
    if (lines.field(0).empty()) lines.wrong("column 1: expected a machine's name, found none");
    auto at = by_machine.find(lines.field(0));
    if (at == by_machine.end()) at = by_machine.emplace(lines.field(0), LoadSteps{}).first;
    const double time = lines.number(1, "seconds (time_stamp)", 0, kMostTime);
    const double cpu = lines.number(2, "CPU in use in percent", 0, kMostPercent);
    const double memory = lines.number(3, "memory in use in percent", 0, kMostPercent);
    if (!at->second.add(time, sane_load({1 - cpu / 100, 1 - memory / 100}))) {
      lines.wrong(
          fmt::format("column 2: expected a time not before {}, the last one of {}; found "
                      "{}",
                      at->second.last_time(), at->first, time));
    }
  }
  std::vector<WorkerTrace> workers;
  workers.reserve(by_machine.size());
  for (auto& [name, steps] : by_machine) workers.push_back({name, steps.take()});
  return workers;
}

WorkerTrace read_bitbrains(const std::string& file, const std::string& name, string_view text) {
  Lines lines(file, text, ';');
  if (!lines.next() || !lines.line().starts_with(kBitbrainsStart) ||
      lines.columns() != kBitbrainsColumns) {
    refuse("{}:1: expected the header of a Bitbrains trace, {} columns that begin with '{}'", file,
           kBitbrainsColumns, kBitbrainsStart);
  }
  LoadSteps steps;
  while (lines.next()) {
    lines.expect_columns(kBitbrainsColumns, "as in the header, separated by ';'");
    const double time = lines.number(0, "a time stamp", 0, kMostTime);
    const double cpu = lines.number(4, "CPU usage in percent", 0, kMostPercent);
    const double all = lines.number(5, "memory provisioned in KB", 0, kMostTime);
    const double used = lines.number(6, "memory used in KB", 0, kMostTime);
    const double memory = all > 0 ? 1 - used / all : 1;
    if (!steps.add(time, sane_load({1 - cpu / 100, memory}))) {
      lines.wrong(fmt::format("column 1: expected a time not before {}, the last one; found {}",
                              steps.last_time(), time));
    }
  }
  return {name, steps.take()};
}

string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<WorkerTrace> read_archive(const std::string& file, std::span<const uint8_t> bytes) {
  std::vector<WorkerTrace> workers;
  for (const TarFile& member : read_tar(file, bytes)) {
    if (!member.name.ends_with(".csv")) continue;
    const std::string stem = std::filesystem::path(member.name).stem().string();
    workers.push_back(read_bitbrains(file + "/" + member.name, stem, as_text(member.bytes)));
  }
  if (workers.empty()) refuse("{}: expected .csv files of Bitbrains in it, found none", file);
  return workers;
}

bool looks_like_usage(string_view text) {
  const string_view line = text.substr(0, text.find('\n'));
  return line.starts_with("m_") && std::count(line.begin(), line.end(), ',') == kUsageColumns - 1;
}

}  // namespace

Trace parse_trace(const std::string& name, std::vector<uint8_t> bytes) {
  const string_view text = as_text(bytes);
  Trace trace;
  trace.name = std::filesystem::path(name).filename().string();
  if (looks_like_tar(bytes)) {
    trace.workers = read_archive(name, bytes);
    trace.stand_in = true;
  } else if (text.starts_with(kMinibatchHeader)) {
    trace.workers = read_minibatches(name, text);
  } else if (text.starts_with(kBitbrainsStart)) {
    trace.workers.push_back(
        read_bitbrains(name, std::filesystem::path(name).stem().string(), text));
    trace.stand_in = true;
  } else if (looks_like_usage(text)) {
    trace.workers = read_usage(name, text);
    trace.stand_in = true;
  } else {
    refuse(
        "{}:1: expected mini-batch times (a header '{}'), machine usage ({} columns that begin "
        "with a machine's name, m_…), or Bitbrains (a header '{}…', or a tar of such files)",
        name, kMinibatchHeader, kUsageColumns, kBitbrainsStart);
  }
  std::erase_if(trace.workers, [](const WorkerTrace& worker) { return worker.steps.size() < 2; });
  if (trace.workers.empty()) refuse("{}: expected two steps of a worker or more, found none", name);
  return trace;
}

Trace read_trace(const std::filesystem::path& path) {
  return parse_trace(path.string(), read_file(path));
}

Trace load_ahead_trace(int workers, int steps, uint64_t seed) {
  constexpr double kNoise = 0.03;
  Trace trace{.name = "load-ahead", .stand_in = false, .made_up = true, .workers = {}};
  for (int w = 0; w < workers; ++w) {
    Stream random(seed, Purpose::synthetic, 1, static_cast<uint64_t>(w));
    WorkerTrace worker{fmt::format("worker {}", w), {}};
    const double own = 0.5 + random.uniform();  // its speed on a free machine
    double free = 1;
    double memory = 1;
    uint32_t left = random.below(40);
    for (int t = 0; t < steps; ++t) {
      const double before = free;
      if (left-- == 0) {
        left = 20 + random.below(41);
        free = free < 1 ? 1 : 0.25 + 0.5 * random.uniform();
        memory = random.below(2) == 0 ? 1 : 0.5 + 0.5 * free;
      }
      // Shares the CPU of the step before: the other job has only just come.
      const double speed = own * before * (1 + kNoise * random.normal());
      worker.steps.push_back({speed, sane_load({free + kNoise * random.normal(), memory})});
    }
    trace.workers.push_back(std::move(worker));
  }
  return trace;
}

Trace noise_trace(int workers, int steps, uint64_t seed) {
  constexpr double kNoise = 0.05;
  Trace trace{.name = "noise", .stand_in = false, .made_up = true, .workers = {}};
  for (int w = 0; w < workers; ++w) {
    Stream random(seed, Purpose::synthetic, 2, static_cast<uint64_t>(w));
    WorkerTrace worker{fmt::format("worker {}", w), {}};
    const double own = 0.5 + random.uniform();
    for (int t = 0; t < steps; ++t) {
      worker.steps.push_back(
          {own * (1 + kNoise * random.normal()), {random.uniform(), random.uniform()}});
    }
    trace.workers.push_back(std::move(worker));
  }
  return trace;
}

}  // namespace convoy::sync
