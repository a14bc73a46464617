#include "convoy/sync/tickets.hpp"

#include <algorithm>
#include <limits>

#include "convoy/base/error.hpp"

namespace convoy::sync {

Tickets::Tickets(const ServerOptions& options, int workers)
    : scheme_(options.scheme),
      bound_(options.bound),
      backups_(options.backups),
      present_(static_cast<size_t>(workers)),
      clocks_(present_.size()),
      given_(present_.size()),
      reports_(present_.size()),
      fates_(present_.size()) {}

void Tickets::begin(int64_t first, int64_t last) {
  next_ = step_ = first;
  last_ = last;
  std::fill(present_.begin(), present_.end(), true);
  std::fill(clocks_.begin(), clocks_.end(), 0);
  std::fill(given_.begin(), given_.end(), first - 1);
  std::fill(reports_.begin(), reports_.end(), Report::none);
}

std::optional<int64_t> Tickets::next(int worker) {
  int64_t& given = given_[static_cast<size_t>(worker)];
  const int64_t number = scheme_ == Scheme::backup ? std::max(step_, given + 1) : next_;
  if (number >= last_) return std::nullopt;
  given = number;
  next_ = std::max(next_, number + 1);
  return number;
}

void Tickets::close() {
  last_ = std::min(last_, next_);
}

int64_t Tickets::least_clock() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < clocks_.size(); ++i) {
    if (present_[i]) least = std::min(least, clocks_[i]);
  }
  return least;
}

bool Tickets::may_start(int worker) const {
  return clocks_[static_cast<size_t>(worker)] - least_clock() <= bound_;
}

std::vector<int> Tickets::slowest() const {
  std::vector<int> workers;
  for (size_t i = 0; i < clocks_.size(); ++i) {
    if (present_[i] && clocks_[i] == least_clock()) workers.push_back(static_cast<int>(i));
  }
  return workers;
}

void Tickets::report(int worker, int64_t step, bool finite) {
  const auto own = static_cast<size_t>(worker);
  check(step <= step_, "nobody is ahead of the step that is under way");
  if (step < step_) {
    fates_[own] = Fate::late;
    given_[own] = step;  // what it may have asked for early is of no use any more
    return;
  }
  fates_[own].reset();
  reports_[own] = finite ? Report::finite : Report::refused;
  const auto needed = static_cast<std::ptrdiff_t>(reports_.size()) - backups_;
  const bool enough = std::count(reports_.begin(), reports_.end(), Report::finite) == needed;
  const bool hopeless = std::count(reports_.begin(), reports_.end(), Report::refused) > backups_;
  if (enough || hopeless) decide(enough);
}

void Tickets::decide(bool enough) {
  for (size_t i = 0; i < reports_.size(); ++i) {
    if (reports_[i] == Report::none) continue;
    fates_[i] = enough && reports_[i] == Report::finite ? Fate::applied : Fate::refused;
    reports_[i] = Report::none;
  }
  ++step_;
  if (enough) ++updates_;
}

}  // namespace convoy::sync
