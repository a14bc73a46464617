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
  ++steps_;
  if (steps_ > kSettling) shortest_ = std::min(shortest_, step);
  if (steps_ == kSettling + kCounting) go_on();
}

void BucketTuner::go_on() {
  tried_.push_back({sizes_[now_], shortest_});
  const bool better = shortest_.value < kFaster * best_step_.value;
  if (better) {
    best_ = now_;
    best_step_ = shortest_;
  }
  steps_ = 0;
  shortest_ = {1e30};
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
