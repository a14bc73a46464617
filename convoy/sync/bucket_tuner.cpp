#include "convoy/sync/bucket_tuner.hpp"

#include <algorithm>

#include "convoy/base/error.hpp"

namespace convoy::sync {

BucketTuner::BucketTuner(std::vector<Bytes> sizes)
    : sizes_(std::move(sizes)), now_(sizes_.size() / 2), best_(now_), done_(sizes_.size() == 1) {
  check(!sizes_.empty(), "there are sizes to choose from");
}

void BucketTuner::took(Seconds step) {
  if (done_) return;
  times_.push_back(step);
  if (times_.size() == kSettling + kCounting) go_on();
}

void BucketTuner::go_on() {
  times_.erase(times_.begin(), times_.begin() + kSettling);
  std::ranges::sort(times_);
  const Seconds typical = times_[times_.size() / 2];
  times_.clear();
  tried_.push_back({sizes_[now_], typical});
  const bool better = typical.value < kFaster * best_step_.value;
  if (better) {
    best_ = now_;
    best_step_ = typical;
  }
  if (better && advance()) return;
  // The other way is only worth a look if this one did not help.
  if (direction_ < 0 && best_ == sizes_.size() / 2) {
    direction_ = 1;
    if (advance()) return;
  }
  done_ = true;
  now_ = best_;
}

bool BucketTuner::advance() {
  if (direction_ < 0 ? best_ == 0 : best_ + 1 == sizes_.size()) return false;
  now_ = direction_ < 0 ? best_ - 1 : best_ + 1;
  return true;
}

}  // namespace convoy::sync
