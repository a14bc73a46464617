#pragma once
// A data set is "index → sample". Samples are 8-bit images, channel-major and held in memory, with
// an integer label each. docs/data.md describes the kinds, their files and the normalisation.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "convoy/data/image.hpp"
#include "convoy/job/job.hpp"
#include "convoy/model/graph.hpp"

namespace convoy::data {

/// A sample as it is stored: pixels, or an image that is still encoded.
struct Stored {
  std::span<const std::byte> bytes;
  ImageInfo image;
  int32_t label = 0;
};

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
  /// Sample i ≥ distinct() repeats sample i mod distinct(). Lets a synthetic set be longer than the
  /// memory it takes; every other set holds size() samples of its own.
  virtual int64_t distinct() const { return size(); }
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
/// truncated or corrupt. Where the job gives no mean or no std, that one is measured over the
/// training samples in use (exactly, in integers); a channel that never varies gets std 1.
Source open(const job::Data& options);

}  // namespace convoy::data
