#pragma once
// A model that is updated elsewhere: where an Exchange would update the strips that its worker
// owns, it hands their gradients over and gets new weights for them.

#include <cstdint>
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

  /// Once, before anything else: the arena floats that this worker brings of each bucket.
  virtual void set_strips(const std::vector<comm::Strip>& strips) = 0;
  /// Where the gradient of strip `bucket` goes before a swap.
  virtual std::span<float> gradient(size_t bucket) = 0;
  /// Hands it over, unless it is `refused` (something of the step was NaN or infinite), and writes
  /// the newest weights of the strip into the arena `weights`. A task of thread().
  virtual comm::Task swap(size_t bucket, optim::StepContext context, bool refused,
                          std::span<float> weights) = 0;
};

}  // namespace convoy::sync
