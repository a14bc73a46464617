#pragma once
// How far packing is, for people.

#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "convoy/base/units.hpp"
#include "convoy/data/pack.hpp"
#include "convoy/train/progress.hpp"

namespace convoy::app {

/// One live line on a terminal, a plain line every ten seconds elsewhere; on stderr.
class PackProgress {
 public:
  explicit PackProgress(std::string verb) : verb_(std::move(verb)) {}
  ~PackProgress() {
    if (open_) fmt::print(stderr, "\r\033[K");
  }
  PackProgress(const PackProgress&) = delete;
  PackProgress& operator=(const PackProgress&) = delete;

  void operator()(const data::PackStanding& s) {
    const Seconds at = now();
    if (first_ < 0) {
      first_ = s.done;
      begin_ = shown_ = at;
    }
    const Seconds interval{live_ ? 0.1 : 10.0};
    if (at - shown_ < interval) return;
    shown_ = at;
    const double rate = static_cast<double>(s.done - first_) / (at - begin_).value;
    std::string line = fmt::format("{} {}/{} ({} %)  {:.0f} images/s", verb_, s.done, s.total,
                                   100 * s.done / s.total, rate);
    if (rate > 0) {
      line += fmt::format("  {} left",
                          to_string(Seconds{static_cast<double>(s.total - s.done) / rate}));
    }
    if (s.bad > 0) line += fmt::format("  {} bad", s.bad);
    fmt::print(stderr, "{}{}{}", live_ ? "\r\033[K" : "", line, live_ ? "" : "\n");
    std::fflush(stderr);
    open_ = live_;
  }

 private:
  std::string verb_;
  bool live_ = train::progress_mode(stderr, false) == train::ProgressMode::live;
  bool open_ = false;
  int64_t first_ = -1;  // done in earlier sittings, which took no time in this one
  Seconds begin_;
  Seconds shown_;
};

}  // namespace convoy::app
