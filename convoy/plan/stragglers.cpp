#include "convoy/plan/stragglers.hpp"

#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/random.hpp"
#include "convoy/sync/replay.hpp"

namespace convoy::plan {
namespace {

std::optional<double> number_in(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Stream draw(uint64_t seed, int worker, int64_t step) {
  return {seed, Purpose::synthetic, static_cast<uint64_t>(step), static_cast<uint64_t>(worker)};
}

Stragglers varied(double spread, uint64_t seed) {
  Stragglers s;
  s.slowdown = [=](int worker, int64_t step) { return random_factor(spread, seed, worker, step); };
  s.description = fmt::format("times vary by {:g} % from step to step", 100 * spread);
  return s;
}

Stragglers by_chance(double chance, double times, uint64_t seed) {
  Stragglers s;
  s.slowdown = [=](int worker, int64_t step) {
    Stream random = draw(seed, worker, step);
    return static_cast<double>(random.uniform()) < chance ? times : 1.0;
  };
  s.description =
      fmt::format("{:g} % of workers take {:g} times as long in a step", 100 * chance, times);
  return s;
}

}  // namespace

double random_factor(double spread, uint64_t seed, int worker, int64_t step) {
  Stream random = draw(seed, worker, step);
  return std::exp(spread * static_cast<double>(random.normal()) - spread * spread / 2);
}

Stragglers read_stragglers(const std::string& text, int workers, uint64_t seed) {
  if (text.empty()) return {};
  const size_t colon = text.find(':');
  const std::optional<double> first = number_in(std::string_view(text).substr(0, colon));
  if (!first) {
    const auto replay = std::make_shared<const sync::Replay>(sync::Replay::read(text, workers));
    Stragglers s;
    s.slowdown = [replay](int worker, int64_t step) { return 1 / replay->speed(worker, step); };
    s.load = [replay](int worker, int64_t step) { return replay->load(worker, step); };
    s.description = replay->describe();
    return s;
  }
  const bool spread = colon == std::string::npos;
  const std::optional<double> times =
      spread ? 1 : number_in(std::string_view(text).substr(colon + 1));
  if (!(*first >= 0) || !times || !(*times > 0) || (!spread && *first > 1)) {
    refuse(
        "stragglers '{}': expected a spread such as 0.2, a chance and a factor such as 0.05:10, or "
        "a trace (constant:1,0.5, steps:20-60, load-ahead, or a file)",
        text);
  }
  return spread ? varied(*first, seed) : by_chance(*first, *times, seed);
}

}  // namespace convoy::plan
