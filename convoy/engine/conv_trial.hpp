#pragma once
// One convolution by itself, in all three directions: to measure algorithms and to check them.

#include <memory>
#include <span>
#include <string>

#include "convoy/base/units.hpp"
#include "convoy/engine/algorithm.hpp"

namespace convoy::engine {

/// Holds operands and workspace of one convolution. Made by the thread that runs it.
class ConvTrial {
 public:
  /// Throws InputError if an algorithm cannot do it. A plain input has no backward-data.
  ConvTrial(const ConvShape& shape, const ConvAlgorithms& algorithms, int threads = 1,
            int64_t lowered_together = 0);
  ~ConvTrial();
  ConvTrial(const ConvTrial&) = delete;
  ConvTrial& operator=(const ConvTrial&) = delete;

  /// Fills x, w and dy with reproducible random values and prepares the weights.
  void fill(uint64_t seed);
  /// Makes the prepared copies of the weights again.
  void prepare();
  void run(Direction direction);

  /// What `direction` was computed by; empty if it is not computed.
  std::string kernel(Direction direction) const;

  /// Operands and results in plain layouts: NCHW and OIHW.
  enum class Operand { x, w, y, dx, dw, dy };
  std::vector<float> plain(Operand operand) const;

  /// The largest |difference| between the direction's result and the definition in double
  /// precision, over the largest |value|, and the mean |difference| over the mean |value|. Looks at
  /// `samples` values spread over the result; 0: all.
  struct Error {
    double largest = 0;
    double mean = 0;
  };
  Error error(Direction direction, int64_t samples = 0) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convoy::engine
