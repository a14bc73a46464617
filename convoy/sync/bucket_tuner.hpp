#pragma once
// Which size of bucket makes steps shortest: small buckets start early and overlap more, large ones
// cost fewer messages. It is found by trying, while training goes on.

#include <cstddef>
#include <vector>

#include "convoy/base/units.hpp"

namespace convoy::sync {

/// Told how long each step took, and says which size to use for the next one. Workers that are told
/// the same times decide alike.
class BucketTuner {
 public:
  struct Tried {
    Bytes size;
    Seconds step;  ///< the median
  };

  /// Starts in the middle of these ascending sizes, and goes down or up for as long as it helps.
  explicit BucketTuner(std::vector<Bytes> sizes);

  /// Of the next step.
  Bytes size() const { return sizes_[now_]; }
  bool done() const { return done_; }
  /// In the order of the trials.
  const std::vector<Tried>& tried() const { return tried_; }

  /// Another step took so long; in its own time, or somewhat later.
  void took(Seconds step);

  /// Steps whose times do not count after another size was chosen: the one before it, which was
  /// still told, and the first one, which found everything at rest.
  static constexpr size_t kSettling = 2;
  /// Steps that count, for each size: the median is not moved by an evaluation now and then.
  static constexpr size_t kCounting = 5;
  /// What is not faster by this much is not faster.
  static constexpr double kFaster = 0.98;

 private:
  void go_on();
  /// To the size next to the best one, if there is one in this direction.
  bool advance();

  std::vector<Bytes> sizes_;
  size_t now_;
  size_t best_;
  Seconds best_step_{1e30};
  std::vector<Seconds> times_;  // with this size
  int direction_ = -1;          // −1: smaller, 1: larger
  bool done_;
  std::vector<Tried> tried_;
};

}  // namespace convoy::sync
