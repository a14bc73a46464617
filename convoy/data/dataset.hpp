#pragma once
// A data set is "index → sample". Samples are 8-bit images (channel-major) or float vectors held in
// memory, with an integer label each.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convoy/job/job.hpp"
#include "convoy/model/graph.hpp"

namespace convoy::data {

/// Samples of one kind and shape. Thread-safe to read.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual model::Shape shape() const = 0;
  virtual int64_t classes() const = 0;
  /// The pixels of sample `index`, channel-major, 0…255.
  virtual std::span<const uint8_t> pixels(int64_t index) const = 0;
  virtual int32_t label(int64_t index) const = 0;
};

/// A training and a test set that belong together, and how to normalise their pixels:
/// value = (pixel/255 − mean[c]) / std[c].
struct Source {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
  std::vector<float> mean;
  std::vector<float> std;
  uint64_t fingerprint = 0;  ///< changes when files change; part of the checkpoint
};

/// Opens what the job names. Throws InputError naming file and expectation when a file is missing,
/// truncated or corrupt.
Source open(const job::Data& options);

}  // namespace convoy::data
