#pragma once
// A data set is "index → sample". A sample is an 8-bit image with an integer label: pixels of the
// size the network reads, channel-major and held in memory, or an image of any size, still encoded.
// docs/data.md describes the kinds, their files and the normalisation.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "convoy/data/image.hpp"
#include "convoy/data/packed.hpp"
#include "convoy/job/job.hpp"
#include "convoy/model/graph.hpp"

namespace convoy::data {

/// A sample as it is stored: pixels, or an image that is still encoded.
struct Stored {
  std::span<const std::byte> bytes;
  ImageInfo image;
  int32_t label = 0;
};

/// Samples of one kind. Thread-safe to read.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// What the network reads.
  virtual model::Shape shape() const = 0;
  virtual int64_t classes() const = 0;
  virtual int32_t label(int64_t index) const = 0;
  /// The pixels of sample `index`, channel-major, 0…255. Only of sets that store nothing else.
  virtual std::span<const uint8_t> pixels(int64_t index) const = 0;
  /// Sample `index` as it is stored; here, pixels of shape().
  virtual Stored sample(int64_t index) const;
  /// Throws InputError if these are not the bytes that sample `index` was stored with.
  virtual void verify(int64_t /*index*/, std::span<const std::byte> /*bytes*/) const {}
  /// Says that sample `index` will be wanted soon, so that it can be brought from disk.
  virtual void will_need(int64_t /*index*/) const {}
  /// For messages: "sample 7", "photos.pack: record 7 (train/cat/7.jpg)".
  virtual std::string name(int64_t index) const;
  /// Sample i ≥ distinct() repeats sample i mod distinct(). Lets a synthetic set be longer than the
  /// memory it takes; every other set holds size() samples of its own.
  virtual int64_t distinct() const { return size(); }
};

/// Where the training samples lie if they come from a packed file: records
/// [first, first + train->size()).
struct PackedTrain {
  std::shared_ptr<const PackedFile> file;
  int64_t first = 0;
};

/// Samples that turned out to be damaged, each named once. Thread-safe.
class BadSamples {
 public:
  void add(const std::string& name, const std::string& problem);
  /// Those that were added since the last call: "photos.pack: record 7 (train/cat/7.jpg): damaged".
  std::vector<std::string> take();
  /// How many there have been.
  int64_t count() const;
  /// Name → what take() says of it.
  std::map<std::string, std::string> all() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> all_;
  std::vector<std::string> fresh_;
};

/// A training and a test set that belong together, and how to normalise their pixels:
/// value = (pixel/255 − mean[c]) / std[c].
struct Source {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
  std::vector<float> mean;
  std::vector<float> std;
  double center_crop = 0.875;  ///< job::Data::center_crop
  uint64_t fingerprint = 0;    ///< changes when files change; part of the checkpoint
  PackedTrain packed = {};     ///< no file: `train` has everything in memory
  /// Where damaged samples are noted that are left out; null: they are errors.
  std::shared_ptr<BadSamples> bad = nullptr;
};

/// Opens what the job names. Throws InputError naming file and expectation when a file is missing,
/// truncated or corrupt. Where the job gives no mean or no std, that one is measured over the
/// training samples in use (exactly, in integers); a channel that never varies gets std 1. Of
/// packed files those stand in the file, for the whole training set. Packed samples are not
/// read yet, but mapped: a Store (store.hpp) brings them into memory.
Source open(const job::Data& options);

}  // namespace convoy::data
