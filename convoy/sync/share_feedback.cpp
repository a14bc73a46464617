#include "convoy/sync/share_feedback.hpp"

#include <algorithm>
#include <cmath>

#include "convoy/base/error.hpp"

namespace convoy::sync {

ShareFeedback::ShareFeedback(std::vector<int64_t> shares, std::vector<ShareBounds> bounds,
                             Options options)
    : options_(options),
      shares_(std::move(shares)),
      bounds_(std::move(bounds)),
      move_(options.move),
      window_(options.window),
      sums_(shares_.size()) {
  check(shares_.size() == bounds_.size() && move_ > 0 && window_ > 0,
        "every worker has bounds, and moves and windows are not empty");
}

bool ShareFeedback::took(std::span<const Seconds> times) {
  check(times.size() == shares_.size(), "every worker has a time");
  const bool sane = std::all_of(times.begin(), times.end(), [](Seconds time) {
    return std::isfinite(time.value) && time.value >= 0;
  });
  if (!sane) return false;
  for (size_t i = 0; i < times.size(); ++i) sums_[i] += times[i].value;
  if (++steps_ < window_) return false;
  const std::optional<Move> next = wanted();
  std::fill(sums_.begin(), sums_.end(), 0.0);
  steps_ = 0;
  if (!next) return false;
  adapt(*next);
  const int64_t grains = std::min({move_, shares_[next->from] - bounds_[next->from].least,
                                   bounds_[next->to].most - shares_[next->to]});
  shares_[next->from] -= grains;
  shares_[next->to] += grains;
  last_ = next;
  return true;
}

std::optional<ShareFeedback::Move> ShareFeedback::wanted() const {
  // Only the slowest of all is worth relieving. If it cannot give, nothing helps.
  const auto from =
      static_cast<size_t>(std::max_element(sums_.begin(), sums_.end()) - sums_.begin());
  if (shares_[from] <= bounds_[from].least) return std::nullopt;
  std::optional<size_t> to;
  for (size_t i = 0; i < sums_.size(); ++i) {
    const bool room = i != from && shares_[i] < bounds_[i].most;
    if (room && (!to || sums_[i] < sums_[*to])) to = i;
  }
  if (!to || sums_[*to] >= (1 - options_.even) * sums_[from]) return std::nullopt;
  return Move{from, *to};
}

void ShareFeedback::adapt(const Move& next) {
  constexpr int64_t kOnward = 3;
  const bool back = last_ && (next.from == last_->to || next.to == last_->from);
  if (back) {
    move_ = std::max<int64_t>(1, move_ / 2);
    window_ = std::min(options_.longest, 2 * window_);
    onward_ = 0;
  } else if (++onward_ >= kOnward) {
    move_ = std::min(options_.move, 2 * move_);
    window_ = options_.window;
    onward_ = 0;
  }
}

}  // namespace convoy::sync
