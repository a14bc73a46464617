#include "convoy/sync/tail_part.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "convoy/base/error.hpp"

namespace convoy::sync {

/// A product, cut into parts that whoever has time takes.
struct TailPart::Work {
  const std::function<void(int64_t begin, int64_t end)>* work = nullptr;
  int64_t count = 0;
  int64_t parts = 0;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};

  void help() {
    for (int64_t part = next.fetch_add(1); part < parts; part = next.fetch_add(1)) {
      (*work)(count * part / parts, count * (part + 1) / parts);
      done.fetch_add(1, std::memory_order_release);
    }
  }
};

TailPart::~TailPart() = default;

void TailPart::begin(int64_t step, double learning_rate,
                     std::vector<std::vector<GrainRange>> lanes) {
  step_ = step;
  learning_rate_ = learning_rate;
  lanes_ = std::move(lanes);
  round_ = 0;
  rounds_ = 0;
  for (const int worker : members_) {
    for (const GrainRange& r : lanes_[static_cast<size_t>(worker)]) {
      rounds_ = std::max(rounds_, r.size());
    }
  }
  begin_step();
  waiting_.clear();
  error_ = nullptr;
  expected_ = own_lanes(0);
}

size_t TailPart::own_lanes(int64_t round) const {
  const std::vector<Place> all = places(round);
  return static_cast<size_t>(
      std::ranges::count_if(all, [this](const Place& p) { return p.worker == own_; }));
}

const TailPart::Brought& TailPart::brought(int64_t grain) const {
  const auto found =
      std::ranges::find_if(waiting_, [&](const Brought& b) { return b.grain == grain; });
  check(found != waiting_.end(), "lanes bring the grains of their round");
  return *found;
}

/// The grains of a round: by member of the team, then by lane.
std::vector<TailPart::Place> TailPart::places(int64_t round) const {
  std::vector<Place> all;
  for (int m = 0; m < members(); ++m) {
    const auto& lanes = lanes_[static_cast<size_t>(members_[static_cast<size_t>(m)])];
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      if (round < lanes[lane].size()) {
        all.push_back({lanes[lane].first + round, m, static_cast<int>(lane)});
      }
    }
  }
  return all;
}

void TailPart::handover(const float* rows, const int32_t* labels, int64_t grain,
                        engine::GrainResult& result, float* gradient) {
  std::unique_lock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  const uint64_t mine = done_rounds_;
  waiting_.push_back({rows, labels, &result, gradient, grain});
  if (waiting_.size() == expected_) {
    lock.unlock();
    drive();
    lock.lock();
  }
  std::shared_ptr<Work> helped;
  while (done_rounds_ == mine) {
    if (work_ == nullptr || work_ == helped) {
      changed_.wait(lock);
      continue;
    }
    helped = work_;
    lock.unlock();
    helped->help();
    lock.lock();
  }
  if (error_) std::rethrow_exception(error_);
}

void TailPart::give_up(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  round_ = rounds_;
  ++done_rounds_;
  changed_.notify_all();
}

void TailPart::finish() {
  settle();  // also where no round of this step has done it
  while (round_ < rounds_) {
    check(expected_ == 0, "lanes hand their grains over themselves");
    drive();
    if (error_) std::rethrow_exception(error_);
  }
}

/// A round, with everything that lanes of this worker have brought; then they go on.
void TailPart::drive() {
  std::exception_ptr error;
  try {
    run_round(places(round_));
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
  ++round_;
  ++done_rounds_;
  waiting_.clear();
  if (error_) round_ = rounds_;
  expected_ = round_ < rounds_ ? own_lanes(round_) : 0;
  changed_.notify_all();
}

/// Cuts [0, count) among the driver and the lanes that wait. Nothing depends on the cut.
void TailPart::in_parallel(int64_t count,
                           const std::function<void(int64_t begin, int64_t end)>& work) {
  if (waiting_.size() <= 1 || count < 2) {
    if (count > 0) work(0, count);
    return;
  }
  const auto shared = std::make_shared<Work>();
  shared->work = &work;
  shared->count = count;
  shared->parts = std::min<int64_t>(count, 4 * static_cast<int64_t>(waiting_.size()));
  {
    const std::lock_guard lock(mutex_);
    work_ = shared;
  }
  changed_.notify_all();
  shared->help();
  while (shared->done.load(std::memory_order_acquire) < shared->parts) std::this_thread::yield();
  const std::lock_guard lock(mutex_);
  work_ = nullptr;
}

}  // namespace convoy::sync
