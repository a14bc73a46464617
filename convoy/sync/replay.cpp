#include "convoy/sync/replay.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convoy/base/error.hpp"
#include "convoy/base/random.hpp"
#include "convoy/base/text.hpp"

namespace convoy::sync {
namespace {

using std::string_view;

constexpr string_view kConstant = "constant:";
constexpr string_view kSteps = "steps:";
constexpr string_view kMemoryless = "memoryless:";
constexpr string_view kChoices =
    "expected constant:1,0.5 (parts of full speed by worker), steps:20-60, steps:20-60:0.25,1, "
    "memoryless:8, load-ahead, noise, or a trace file";
// Made-up traces are this long, as those of `convoy bench predictors`; changes of speed have more
// to tell, as a short list of them would soon repeat.
constexpr int kMadeUpSteps = 1000;
constexpr int64_t kChangingSteps = 8192;
constexpr uint64_t kSeed = 1;

std::vector<string_view> split(string_view text, char separator) {
  std::vector<string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename Number>
std::optional<Number> number_in(string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<double> read_speeds(string_view what, string_view text) {
  std::vector<double> speeds;
  for (const string_view part : split(text, ',')) {
    const auto speed = number_in<double>(part);
    if (!speed || !(*speed > 0) || !(*speed <= 1)) {
      refuse("replay '{}': expected speeds above 0 and up to 1, as parts of full speed; found '{}'",
             what, part);
    }
    speeds.push_back(*speed);
  }
  return speeds;
}

/// "20-60"
std::pair<uint32_t, uint32_t> read_span(string_view what, string_view text) {
  const auto ends = split(text, '-');
  constexpr uint32_t kMost = 1000000;
  const auto least = number_in<uint32_t>(ends.front());
  const auto most = number_in<uint32_t>(ends.back());
  if (ends.size() > 2 || !least || !most || *least < 1 || *most < *least || *most > kMost) {
    refuse(
        "replay '{}': expected from how many to how many steps a speed lasts, such as 20-60, "
        "both from 1 to {}; found '{}'",
        what, kMost, text);
  }
  return {*least, *most};
}

uint64_t read_seed(string_view what, string_view text) {
  const auto seed = number_in<uint64_t>(text);
  if (!seed) refuse("replay '{}': expected a whole number as seed, found '{}'", what, text);
  return *seed;
}

WorkerTrace change_at_random(int worker, std::pair<uint32_t, uint32_t> span,
                             const std::vector<double>& levels, uint64_t seed) {
  Stream random(seed, Purpose::synthetic, 3, static_cast<uint64_t>(worker));
  WorkerTrace trace{fmt::format("worker {}", worker), {}};
  const auto count = static_cast<uint32_t>(levels.size());
  uint32_t level = random.below(count);
  // Somewhere within a span, or all workers would change at about the same step at first.
  uint32_t left = 1 + random.below(span.second);
  for (int64_t step = 0; step < kChangingSteps; ++step) {
    if (left-- == 0) {
      left = span.first + random.below(span.second - span.first + 1) - 1;
      level = (level + 1 + random.below(count - 1)) % count;  // any but the present one
    }
    const double speed = levels[level];
    trace.steps.push_back({speed, {.cpu = speed, .memory = 1}});
  }
  return trace;
}

Trace find_trace(const std::string& what, int workers) {
  if (what == "load-ahead") return load_ahead_trace(workers, kMadeUpSteps, kSeed);
  if (what == "noise") return noise_trace(workers, kMadeUpSteps, kSeed);
  std::error_code unreadable;
  if (!std::filesystem::exists(what, unreadable)) {
    const std::string meant = nearest(what.substr(0, what.find(':')),
                                      {"constant", "steps", "memoryless", "load-ahead", "noise"});
    refuse("replay '{}': there is no such file; {}{}", what, kChoices,
           meant.empty() ? "" : fmt::format(" (did you mean {}?)", meant));
  }
  return read_trace(what);
}

void make_relative(const std::string& what, std::vector<WorkerTrace>& workers) {
  double fastest = 0;
  for (const WorkerTrace& worker : workers) {
    for (const Observation& step : worker.steps) {
      if (!sane_speed(step.speed)) {
        refuse("replay '{}': expected speeds above 0; {} has {}", what, worker.name, step.speed);
      }
      fastest = std::max(fastest, step.speed);
    }
  }
  for (WorkerTrace& worker : workers) {
    for (Observation& step : worker.steps) step.speed /= fastest;
  }
}

}  // namespace

Replay::Replay(std::vector<WorkerTrace> workers, std::string description)
    : workers_(std::move(workers)), description_(std::move(description)) {}

Replay Replay::read(const std::string& what, int workers) {
  check(workers > 0, "a replay is for a worker or more");
  if (what.empty()) refuse("replay: {}", kChoices);
  if (what.starts_with(kConstant)) return constant(what, workers);
  if (what.starts_with(kSteps)) return changing(what, workers);
  if (what.starts_with(kMemoryless)) return memoryless(what, workers);
  return recorded(what, workers);
}

Replay Replay::constant(const std::string& what, int workers) {
  const auto speeds = read_speeds(what, string_view(what).substr(kConstant.size()));
  if (speeds.size() > static_cast<size_t>(workers)) {
    refuse("replay '{}': {} are given, but there {}; fewer are taken in turn", what,
           plural(static_cast<int64_t>(speeds.size()), "speed"),
           workers == 1 ? "is 1 worker" : fmt::format("are {} workers", workers));
  }
  std::vector<WorkerTrace> traces;
  traces.reserve(speeds.size());
  for (const double speed : speeds) traces.push_back({"", {{speed, {}}}});
  return {std::move(traces),
          fmt::format("emulated: workers at {} of full speed", fmt::join(speeds, ", "))};
}

Replay Replay::changing(const std::string& what, int workers) {
  const auto parts = split(string_view(what).substr(kSteps.size()), ':');
  if (parts.size() > 3) {
    refuse("replay '{}': expected steps:LEAST-MOST, with :LEVELS and :SEED if you like", what);
  }
  const auto span = read_span(what, parts[0]);
  const auto levels =
      parts.size() > 1 ? read_speeds(what, parts[1]) : std::vector<double>{0.25, 0.5, 0.75, 1};
  if (levels.size() < 2) {
    refuse("replay '{}': expected two speeds or more to change between; for one, use constant:{}",
           what, levels[0]);
  }
  const uint64_t seed = parts.size() > 2 ? read_seed(what, parts[2]) : kSeed;
  std::vector<WorkerTrace> traces;
  traces.reserve(static_cast<size_t>(workers));
  for (int w = 0; w < workers; ++w) traces.push_back(change_at_random(w, span, levels, seed));
  return {std::move(traces),
          fmt::format("emulated: each worker's speed changes every {} to {} steps between {} of "
                      "full speed, by seed {}",
                      span.first, span.second, fmt::join(levels, ", "), seed)};
}

Replay Replay::memoryless(const std::string& what, int workers) {
  constexpr double kMost = 1000;
  const auto parts = split(string_view(what).substr(kMemoryless.size()), ':');
  const auto mean = number_in<double>(parts[0]);
  if (parts.size() > 2 || !mean || !(*mean > 1) || !(*mean <= kMost)) {
    refuse(
        "replay '{}': expected how many times as long a step takes on average, above 1 and up to "
        "{}, and :SEED if you like",
        what, kMost);
  }
  const uint64_t seed = parts.size() > 1 ? read_seed(what, parts[1]) : kSeed;
  std::vector<WorkerTrace> traces;
  for (int w = 0; w < workers; ++w) {
    Stream random(seed, Purpose::synthetic, 4, static_cast<uint64_t>(w));
    WorkerTrace trace{fmt::format("worker {}", w), {}};
    for (int64_t step = 0; step < kChangingSteps; ++step) {
      const double times = 1 - (*mean - 1) * std::log(1 - random.uniform());
      trace.steps.push_back({1 / times, {}});
    }
    traces.push_back(std::move(trace));
  }
  return {std::move(traces),
          fmt::format("emulated: steps of each worker take {} times as long on average, without "
                      "memory, by seed {}",
                      *mean, seed)};
}

Replay Replay::recorded(const std::string& what, int workers) {
  Trace trace = find_trace(what, workers);
  make_relative(what, trace.workers);
  const string_view kind = trace.made_up    ? "made up"
                           : trace.stand_in ? "free CPU stands in for speed"
                                            : "measured speeds";
  std::string description =
      fmt::format("emulated: replays {} ({}; {})", trace.name, kind,
                  plural(static_cast<int64_t>(trace.workers.size()), "worker"));
  return {std::move(trace.workers), std::move(description)};
}

const Observation& Replay::at(int worker, int64_t step) const {
  check(worker >= 0 && step >= 0, "workers and steps of a replay count from 0");
  const auto& steps = workers_[static_cast<size_t>(worker) % workers_.size()].steps;
  return steps[static_cast<size_t>(step) % steps.size()];
}

Seconds pause(Seconds cpu, Seconds took, double speed) {
  return {cpu.value / speed - took.value};
}

void Brake::hold_back(Seconds pause) {
  constexpr Seconds kWorthSleeping{50e-6};
  constexpr Seconds kMostMadeUpFor{10e-3};
  if (!std::isfinite(pause.value)) return;
  owed_ = std::max(owed_ + pause, Seconds{-kMostMadeUpFor.value});
  if (owed_ < kWorthSleeping) return;
  const Seconds begin = now();
  timespec left{};
  left.tv_sec = static_cast<time_t>(owed_.value);
  left.tv_nsec = static_cast<long>(1e9 * (owed_.value - static_cast<double>(left.tv_sec)));
  // A signal interrupts the sleep, and `left` is then what is left of it.
  while (::clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
  }
  owed_ = std::max(owed_ - (now() - begin), Seconds{-kMostMadeUpFor.value});
}

}  // namespace convoy::sync
