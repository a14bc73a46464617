#pragma once
// A model that is updated elsewhere: where an Exchange would update the strips that its worker
// owns, it hands their gradients over and gets new weights for them.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "convoy/comm/collectives.hpp"
#include "convoy/comm/comm_thread.hpp"
#include "convoy/comm/task.hpp"
#include "convoy/optim/optimizer.hpp"

namespace convoy::sync {

class RemoteModel {
 public:
  virtual ~RemoteModel() = default;

  /// The thread that the exchange uses, too, so that both are served by one.
  virtual comm::CommThread& thread() = 0;

  /// Before anything else: arena floats that this worker brings, each a bucket by itself. Returns
  /// the number of the first. What several add does not overlap.
  virtual size_t add_strips(const std::vector<comm::Strip>& strips) = 0;
  /// Where the gradient of strip `bucket` goes before a swap.
  virtual std::span<float> gradient(size_t bucket) = 0;
  /// Hands it over, unless it is `refused` (something of the step was NaN or infinite), and writes
  /// the newest weights of the strip into the arena `weights`. A task of thread().
  virtual comm::Task swap(size_t bucket, optim::StepContext context, bool refused,
                          std::span<float> weights) = 0;
  /// Waits until it holds; throws what the thread has failed with, if it has.
  virtual void await(const std::function<bool()>& holds) = 0;
};

}  // namespace convoy::sync
