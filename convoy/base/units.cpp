#include "convoy/base/units.hpp"

#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "convoy/base/error.hpp"

namespace convoy {

std::string to_string(Bytes bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes.value);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes.value);
  const int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

std::string to_string(Seconds seconds) {
  const double s = seconds.value;
  if (s < 0) return "-" + to_string(Seconds{-s});
  if (s < 1e-3) return fmt::format("{:.0f} µs", s * 1e6);
  if (s < 1) return fmt::format("{:.0f} ms", s * 1e3);
  if (s < 60) return fmt::format("{:.1f} s", s);
  const auto whole = static_cast<int64_t>(std::llround(s));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

Bytes parse_bytes(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  std::string letters;
  for (const char c : unit) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  double factor = 0;
  if (letters.empty() || letters == "b") factor = 1;
  if (letters == "k" || letters == "kib") factor = 1024;
  if (letters == "m" || letters == "mib") factor = 1024.0 * 1024;
  if (letters == "g" || letters == "gib") factor = 1024.0 * 1024 * 1024;
  if (letters == "t" || letters == "tib") factor = 1024.0 * 1024 * 1024 * 1024;
  if (letters == "kb") factor = 1e3;
  if (letters == "mb") factor = 1e6;
  if (letters == "gb") factor = 1e9;
  if (letters == "tb") factor = 1e12;
  const double value = number * factor;
  if (end == text.c_str() || factor == 0 || !(value >= 0) || value > 9e18) {
    refuse("'{}' is not an amount of memory; write 4096, 512MiB or 1.5GB", text);
  }
  return {static_cast<int64_t>(value)};
}

Seconds now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration<double>(since).count()};
}

}  // namespace convoy
