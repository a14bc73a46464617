#include "convoy/data/prepared_grains.hpp"

#include <algorithm>
#include <utility>

#include "convoy/base/error.hpp"

namespace convoy::data {
namespace {

/// Of `grains` grains, those that `lanes` lanes ask for first stand first: each lane has an equal
/// part, and takes it in order.
std::vector<int64_t> in_order_of_use(int64_t grains, int64_t lanes) {
  const auto begin = [&](int64_t lane) { return grains * lane / lanes; };
  std::vector<int64_t> order;
  for (int64_t k = 0; std::ssize(order) < grains; ++k) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      if (begin(lane) + k < begin(lane + 1)) order.push_back(begin(lane) + k);
    }
  }
  return order;
}

}  // namespace

PreparedGrains::PreparedGrains(const Options& options)
    : options_(options),
      range_(options.range),
      named_(options.first_step - (options.announced ? 1 : 0)),
      oldest_(options.first_step) {
  check(options.grains > 0 && options.ahead >= 1 && options.lanes >= 1,
        "there are grains, lanes, and a batch ahead");
  check(!options.announced || options.range.empty(),
        "no grain is wanted before its step is announced");
  check(range_.is_within(options.grains), "wanted grains are grains of the batch");
  if (!options.announced) steps_.push_back(make_step(range_));
}

// ---- ranges

PreparedGrains::Step PreparedGrains::make_step(GrainRange range) const {
  Step step;
  step.range = range;
  step.entries.resize(static_cast<size_t>(range.size()));
  step.order = in_order_of_use(range.size(), options_.lanes);
  step.missing = range.size();
  step.unreleased = range.size();
  return step;
}

void PreparedGrains::set_range(int64_t step, GrainRange range) {
  check(range.is_within(options_.grains), "wanted grains are grains of the batch");
  check(!options_.announced || step == named_ + 1,
        "the grains of steps are said in the order of the steps");
  check(step >= oldest_, "which grains are wanted changes for steps that no lane has begun");
  while (end() < step) steps_.push_back(make_step(range_));
  for (int64_t s = step; s < end(); ++s) change_range(at(s), range);
  if (end() == step) steps_.push_back(make_step(range));
  range_ = range;
  named_ = step;
  close_steps();
  free_surplus();
}

void PreparedGrains::change_range(Step& step, GrainRange range) {
  Step changed = make_step(range);
  for (size_t i = 0; i < step.entries.size(); ++i) {
    Entry& entry = step.entries[i];
    check(entry.state != State::held && entry.state != State::released,
          "which grains are wanted changes for steps that no lane has begun");
    const int64_t grain = step.range.first + static_cast<int64_t>(i);
    if (range.has(grain)) {
      changed.missing -= entry.state == State::missing ? 0 : 1;
      changed.entries[static_cast<size_t>(grain - range.first)] = std::move(entry);
    } else if (entry.state == State::ready) {
      give_back(std::move(entry.slot));
    }
  }
  step = std::move(changed);
}

// A step without grains is over when its range cannot change any more.
void PreparedGrains::close_steps() {
  while (!steps_.empty() && steps_.front().unreleased == 0 &&
         (!steps_.front().range.empty() || oldest_ < named_)) {
    steps_.pop_front();
    ++oldest_;
  }
}

// ---- slots

int64_t PreparedGrains::limit() const {
  int64_t share = range_.size();
  for (const Step& step : steps_) share = std::max(share, step.range.size());
  return batches() * share;
}

void PreparedGrains::give_back(std::unique_ptr<GrainSlot> slot) {
  --used_;
  free_.push_back(std::move(slot));
}

void PreparedGrains::free_surplus() {
  const int64_t most = limit() + std::max(batches(), limit() / 4);
  while (!free_.empty() && slots() > most) free_.pop_back();
}

// ---- who fills them

std::optional<PreparedGrains::Claim> PreparedGrains::claim() {
  // While a batch is used up, its slots take grains of the batch behind those that are ready. Steps
  // of which nothing is wanted here are passed over.
  int64_t looked_at = 0;
  for (int64_t s = oldest_; looked_at <= batches(); ++s) {
    if (s == end()) {
      if (options_.announced || range_.empty()) break;
      steps_.push_back(make_step(range_));
    }
    Step& step = at(s);
    if (!step.range.empty()) ++looked_at;
    // Lanes may wait for the first step, so nothing holds it up.
    if (looked_at > 1 && used_ >= limit()) break;
    if (step.missing == 0) continue;
    const int64_t index = *std::ranges::find(step.order, State::missing, [&](int64_t i) {
      return step.entries[static_cast<size_t>(i)].state;
    });
    Entry& entry = step.entries[static_cast<size_t>(index)];
    entry.state = State::filling;
    entry.claim = ++claims_;
    --step.missing;
    ++used_;
    Claim claim;
    claim.place = {.step = s, .grain = step.range.first + index};
    claim.number = entry.claim;
    if (!free_.empty()) {
      claim.slot = std::move(free_.back());
      free_.pop_back();
    }
    return claim;
  }
  return std::nullopt;
}

void PreparedGrains::filled(Claim claim) {
  Entry* const entry = find(claim.place);
  // One that became unwanted and was wanted again meanwhile has been left to somebody else.
  if (entry != nullptr && entry->state == State::filling && entry->claim == claim.number) {
    entry->state = State::ready;
    entry->slot = std::move(claim.slot);
  } else {
    give_back(std::move(claim.slot));
    free_surplus();
  }
}

// ---- lanes

PreparedGrains::Entry* PreparedGrains::find(GrainPlace place) {
  if (place.step < oldest_ || place.step >= end()) return nullptr;
  Step& step = at(place.step);
  if (!step.range.has(place.grain)) return nullptr;
  return &step.entries[static_cast<size_t>(place.grain - step.range.first)];
}

const GrainSlot* PreparedGrains::get(GrainPlace place) {
  if (place.step >= end()) {
    check(!options_.announced && range_.has(place.grain),
          "a lane asks for a grain that is wanted here");
    return nullptr;
  }
  Entry* const entry = find(place);
  check(entry != nullptr, "a lane asks for a grain that is wanted here");
  check(entry->state != State::held && entry->state != State::released,
        "a grain is got once, before its release");
  if (entry->state != State::ready) return nullptr;
  entry->state = State::held;
  return entry->slot.get();
}

void PreparedGrains::release(GrainPlace place) {
  Entry* const entry = find(place);
  check(entry != nullptr && entry->state == State::held, "a grain is got once, released once");
  entry->state = State::released;
  give_back(std::move(entry->slot));
  --at(place.step).unreleased;
  close_steps();
  free_surplus();
}

std::optional<GrainPlace> PreparedGrains::what_holds_up(GrainPlace place) {
  const Entry* const wanted = find(place);
  if (wanted != nullptr && wanted->state == State::filling) return std::nullopt;
  if (steps_.empty()) return std::nullopt;
  const Step& step = steps_.front();
  const auto oldest = std::ranges::find_if(
      step.entries, [](const Entry& entry) { return entry.state != State::released; });
  if (oldest == step.entries.end()) return std::nullopt;
  if (oldest->state != State::ready && oldest->state != State::held) return std::nullopt;
  return GrainPlace{.step = oldest_, .grain = step.range.first + (oldest - step.entries.begin())};
}

}  // namespace convoy::data
