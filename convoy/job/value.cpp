#include "convoy/job/value.hpp"

#include <charconv>
#include <cmath>
#include <concepts>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::job {
namespace {

/// No count in a job needs more, and sums and products of a few of them still fit 64 bits.
constexpr int64_t kLargestCount = std::numeric_limits<int32_t>::max();

constexpr size_t kLongestShown = 60;
constexpr const char* kBytesUnits[] = {"", "KiB", "MiB", "GiB"};

/// `text` in quotes, short enough for a message and on one line.
std::string quoted(std::string_view text) {
  std::string shown(text.substr(0, kLongestShown));
  for (char& c : shown) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  return fmt::format("'{}{}'", shown, text.size() > kLongestShown ? "…" : "");
}

// ---- Text to value ------------------------------------------------------------------------------

template <typename T>
struct Parsed {
  T value{};
  std::string problem;
};

/// The whole of `text` as a number, independent of the locale.
template <typename T>
std::optional<T> exact(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> finite(std::string_view text) {
  const std::optional<double> value = exact<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

template <typename T>
std::string outside(T value, const Range& range) {
  const auto number = static_cast<double>(value);
  if (number < range.min || (range.above_min && number == range.min)) {
    return fmt::format("{} is too small", value);
  }
  if (number > range.max || (range.below_max && number == range.max)) {
    return fmt::format("{} is too large", value);
  }
  return "";
}

Parsed<int64_t> parse(const Field& field, const std::string& text, int64_t /*type*/) {
  if (const std::optional<int64_t> value = exact<int64_t>(text)) {
    if (*value > kLargestCount) {
      return {0, fmt::format("{} is too large (at most {})", *value, kLargestCount)};
    }
    return {*value, outside(*value, field.range)};
  }
  // 1e6 is a whole number, too.
  const std::optional<double> real = finite(text);
  if (real && std::trunc(*real) == *real) {
    if (std::abs(*real) > kLargestCount) {
      return {0, fmt::format("{} is too large (at most {})", quoted(text), kLargestCount)};
    }
    return {static_cast<int64_t>(*real), outside(*real, field.range)};
  }
  return {0, fmt::format("{} is not a whole number", quoted(text))};
}

Parsed<uint64_t> parse(const Field& /*field*/, const std::string& text, uint64_t /*type*/) {
  if (const std::optional<uint64_t> value = exact<uint64_t>(text)) return {*value, ""};
  return {0, fmt::format("{} is not a whole number of at most 64 bits", quoted(text))};
}

std::optional<double> parse_duration(std::string_view text) {
  if (const std::optional<double> seconds = finite(text)) return seconds;
  double total = 0;
  while (!text.empty()) {
    const size_t unit_at = text.find_first_not_of("0123456789.");
    if (unit_at == std::string_view::npos) return std::nullopt;
    const std::optional<double> number = finite(text.substr(0, unit_at));
    text.remove_prefix(unit_at);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    const size_t unit_end = std::min(text.find_first_of("0123456789. "), text.size());
    const std::string_view unit = text.substr(0, unit_end);
    text.remove_prefix(unit_end);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    const double factor = unit == "s"     ? 1
                          : unit == "min" ? 60
                          : unit == "h"   ? 3600
                          : unit == "d"   ? 86400
                                          : 0;
    if (!number || factor == 0) return std::nullopt;
    total += *number * factor;
  }
  return std::isfinite(total) ? std::optional(total) : std::nullopt;
}

Parsed<double> parse(const Field& field, const std::string& text, double /*type*/) {
  const bool duration = field.spelling == Spelling::duration;
  const std::optional<double> value = duration ? parse_duration(text) : finite(text);
  if (value) return {*value, outside(*value, field.range)};
  return {0, fmt::format("{} is not a {}", quoted(text), duration ? "time" : "number")};
}

Parsed<bool> parse(const Field& /*field*/, const std::string& text, bool /*type*/) {
  if (text == "true" || text == "yes" || text == "on") return {true, ""};
  if (text == "false" || text == "no" || text == "off") return {false, ""};
  return {false, fmt::format("{} is neither true nor false", quoted(text))};
}

Parsed<std::string> parse(const Field& field, const std::string& text,
                          const std::string& /*type*/) {
  if (field.choices.empty()) return {text, ""};
  for (const std::string& choice : field.choices) {
    if (choice == text) return {text, ""};
  }
  const std::string near = nearest(text, field.choices);
  return {"", near.empty() ? fmt::format("{} is not known", quoted(text))
                           : fmt::format("{} is not known; did you mean {}?", quoted(text), near)};
}

Parsed<Bytes> parse(const Field& /*field*/, const std::string& text, Bytes /*type*/) {
  if (const std::optional<int64_t> plain = exact<int64_t>(text); plain && *plain >= 0) {
    return {Bytes{*plain}, ""};
  }
  try {
    return {parse_bytes(text), ""};
  } catch (const InputError&) {
    return {Bytes{0}, fmt::format("{} is not an amount of memory", quoted(text))};
  }
}

// ---- Node to member -----------------------------------------------------------------------------

bool is_nothing(const YAML::Node& node) {
  return !node.IsDefined() || node.IsNull();
}

template <typename T>
std::string read(const Field& field, const YAML::Node& node, T& target) {
  if (is_nothing(node)) return "no value is given";
  if (!node.IsScalar()) return fmt::format("{} where one value belongs", describe(node));
  if (!field.zero.empty() && node.Scalar() == field.zero) {
    target = T{};
    return "";
  }
  Parsed<T> parsed = parse(field, node.Scalar(), T{});
  if (parsed.problem.empty()) target = std::move(parsed.value);
  return std::move(parsed.problem);
}

/// A single value is accepted as a list of one.
template <typename T>
std::string read(const Field& field, const YAML::Node& node, std::vector<T>& target) {
  if (is_nothing(node)) return "no value is given";
  if (node.IsMap()) return "a map where a list belongs";
  std::vector<T> values;
  const size_t count = node.IsSequence() ? node.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    T value{};
    std::string problem = read(field, node.IsSequence() ? node[i] : node, value);
    if (!problem.empty()) return problem;
    values.push_back(value);
  }
  if (field.count > 0 && count > 0 && count != field.count) {
    return fmt::format("{} values where {} belong", count, field.count);
  }
  target = std::move(values);
  return "";
}

std::string read(const Field& /*field*/, const YAML::Node& node, YAML::Node& target) {
  if (is_nothing(node)) return "no value is given";
  if (!node.IsScalar() && !node.IsMap()) return fmt::format("{} is no model", describe(node));
  target.reset(node);
  return "";
}

// ---- Value to text ------------------------------------------------------------------------------

template <std::integral T>
std::string print(const Field& /*field*/, T value) {
  return fmt::format("{}", value);
}

/// The largest unit in which a whole number says it exactly.
std::string print(const Field& field, double value) {
  if (field.spelling == Spelling::number) return fmt::format("{}", value);
  const auto whole = [&](double unit) { return std::fmod(value, unit) == 0 && value < 1e12; };
  if (whole(3600)) return fmt::format("{}h", value / 3600);
  if (whole(60)) return fmt::format("{}min", value / 60);
  // Exponents are only read in bare numbers.
  return whole(1) ? fmt::format("{}s", value) : fmt::format("{}", value);
}

std::string print(const Field& /*field*/, const std::string& value) {
  YAML::Emitter out;
  out << value;
  return out.c_str();
}

std::string print(const Field& /*field*/, Bytes bytes) {
  int64_t value = bytes.value;
  size_t unit = 0;
  while (value != 0 && value % 1024 == 0 && unit + 1 < std::size(kBytesUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", value, kBytesUnits[unit]);
}

template <typename T>
std::string print(const Field& field, const std::vector<T>& values) {
  std::vector<std::string> words;
  words.reserve(values.size());
  for (const T& value : values) words.push_back(print(field, value));
  return "[" + join(words) + "]";
}

std::string print(const Field& /*field*/, const YAML::Node& node) {
  check(node.IsScalar(), "only a model's name fits one line");
  return node.Scalar();
}

// ---- Values in words ----------------------------------------------------------------------------

std::string limits(const Range& range) {
  std::string words;
  if (std::isfinite(range.min)) {
    words += fmt::format(" {} {}", range.above_min ? "above" : "from", range.min);
  }
  if (std::isfinite(range.max)) {
    words += fmt::format(" {} {}", range.below_max ? "to below" : "to", range.max);
  }
  return words;
}

std::string in_words(const Field& /*field*/, bool /*type*/) {
  return "true, false";
}
std::string in_words(const Field& field, int64_t /*type*/) {
  Range range = field.range;
  if (!field.zero.empty()) range.min = 1;
  return "whole numbers" + limits(range);
}
std::string in_words(const Field& /*field*/, uint64_t /*type*/) {
  return "whole numbers from 0 to 2^64-1";
}
std::string in_words(const Field& field, double /*type*/) {
  if (field.spelling == Spelling::duration) return "times such as 90s, 10min or 1h 30min";
  Range range = field.range;
  if (!field.zero.empty()) range.above_min = true;
  return "numbers" + limits(range);
}
std::string in_words(const Field& field, const std::string& /*type*/) {
  return field.choices.empty() ? "text" : join(field.choices);
}
std::string in_words(const Field& /*field*/, Bytes /*type*/) {
  return "amounts such as 512MiB or 1.5GB";
}
template <typename T>
std::string in_words(const Field& field, const std::vector<T>& /*type*/) {
  const std::string count = field.count > 0 ? fmt::format("{} ", field.count) : "";
  return fmt::format("a list of {}{}", count, in_words(field, T{}));
}
std::string in_words(const Field& /*field*/, const YAML::Node& /*type*/) {
  return "a name or a map";
}

}  // namespace

std::string describe(const YAML::Node& node) {
  if (is_nothing(node)) return "nothing";
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a map";
  return quoted(node.Scalar());
}

std::string read_value(const Field& field, const YAML::Node& node, Job& job) {
  return std::visit([&](auto place) { return read(field, node, place(job)); }, field.place);
}

std::string print_value(const Field& field, const Job& job) {
  // The table's accessors serve reading and writing alike; nothing is written through them here.
  auto& source = const_cast<Job&>(job);
  std::string text =
      std::visit([&](auto place) { return print(field, place(source)); }, field.place);
  return !field.zero.empty() && (text == "0" || text == "0h") ? field.zero : text;
}

std::string accepted(const Field& field) {
  Job job;
  const std::string words =
      std::visit([&](auto place) { return in_words(field, place(job)); }, field.place);
  return field.zero.empty() ? words : fmt::format("{}, or {}", field.zero, words);
}

}  // namespace convoy::job
