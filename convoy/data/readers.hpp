#pragma once
// One function per kind of data set, each in a file of its own; open() (dataset.hpp) picks one.
// They throw InputError naming the file, what was expected there and what was found.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "convoy/base/error.hpp"
#include "convoy/data/dataset.hpp"

namespace convoy::data {

/// What every reader returns.
struct TrainTest {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
};

/// Samples that lie one after the other in memory, the first one `offset` bytes in (so that a file
/// with a header can be kept as it was read).
class MemoryDataset final : public Dataset {
 public:
  MemoryDataset(model::Shape shape, int64_t classes, std::vector<uint8_t> bytes, size_t offset,
                std::vector<uint8_t> labels)
      : shape_(shape),
        classes_(classes),
        bytes_(std::move(bytes)),
        offset_(offset),
        labels_(std::move(labels)) {
    check(bytes_.size() == offset_ + labels_.size() * static_cast<size_t>(shape_.size()),
          "a data set has as many images as labels");
  }

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  model::Shape shape() const override { return shape_; }
  int64_t classes() const override { return classes_; }
  std::span<const uint8_t> pixels(int64_t index) const override {
    const auto size = static_cast<size_t>(shape_.size());
    return std::span(bytes_).subspan(offset_ + static_cast<size_t>(index) * size, size);
  }
  int32_t label(int64_t index) const override { return labels_.at(static_cast<size_t>(index)); }

 private:
  model::Shape shape_;
  int64_t classes_;
  std::vector<uint8_t> bytes_;
  size_t offset_;
  std::vector<uint8_t> labels_;
};

/// The format of MNIST and its kin: {train,t10k}-{images-idx3,labels-idx1}-ubyte in `folder`, with
/// '-' or '.' before "idx", plain or with .gz. The number of classes is the largest training label
/// plus one.
TrainTest read_idx(const std::filesystem::path& folder);

/// data_batch_1.bin … data_batch_5.bin and test_batch.bin, in `folder` or in its sub-folder
/// cifar-10-batches-bin.
TrainTest read_cifar10(const std::filesystem::path& folder);

/// train.bin and test.bin, in `folder` or in its sub-folder cifar-100-binary. The fine label (100
/// classes) is used.
TrainTest read_cifar100(const std::filesystem::path& folder);

/// Images made up from data.shape, data.classes and data.size: each class has a coarse pattern of
/// its own under strong noise, so a network can learn them. The test set has a quarter of the
/// size, and noise of its own. Takes at most about 80 MiB: a longer set repeats its first samples.
TrainTest make_synthetic(const job::Data& options);

/// A packed file (kind packed), or the one that a folder of images was packed into (kind folder).
/// Mean and deviation are those of the file.
Source open_packed(const job::Data& options);

}  // namespace convoy::data
