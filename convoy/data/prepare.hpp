#pragma once
// From stored samples to the floats a network sees: decoding, augmentation, normalisation.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "convoy/data/dataset.hpp"
#include "convoy/data/image.hpp"
#include "convoy/data/resample.hpp"

namespace convoy::data {

/// The endless training stream: epoch permutations one after the other. Position p of the stream
/// is sample `sample` in epoch `epoch`; a pure function of (size, seed, p), so every batch is full
/// and any worker can compute any part of it.
struct StreamSample {
  int64_t sample = 0;
  int64_t epoch = 0;
  bool operator==(const StreamSample&) const = default;
};
StreamSample stream_at(int64_t position, int64_t size, uint64_t seed);

/// What each of the 256 pixel values becomes, per channel: (pixel/255 − mean[c]) / std[c].
/// A table, because it costs no more than the arithmetic and rounds once, the same everywhere.
class Normaliser {
 public:
  explicit Normaliser(const Source& source);
  int64_t channels() const { return static_cast<int64_t>(tables_.size()); }
  const std::array<float, 256>& table(int64_t channel) const {
    return tables_[static_cast<size_t>(channel)];
  }

 private:
  std::vector<std::array<float, 256>> tables_;
};

/// The random choices of one sample.
///
/// Samples that have the size the network reads: output pixel (y, x) shows input pixel
/// (y + down, x' + right) with x' = x, or width − 1 − x when mirrored; outside the input that is a
/// zero pixel (black, as in the CIFAR recipes of the literature, which pad before they normalise).
/// Others: the part `region` of the image is scaled to the input, mirrored, and its colours
/// changed. Then the square of side `cut` around (cut_y, cut_x), clipped at the border, is set to
/// the mean, which is 0.
struct Choices {
  bool mirror = false;
  int64_t down = 0;   ///< −pad_crop … pad_crop
  int64_t right = 0;  ///< −pad_crop … pad_crop
  int64_t cut = 0;    ///< side; the square starts at centre − side/2
  int64_t cut_y = 0;  ///< any pixel of the image
  int64_t cut_x = 0;
  std::optional<Region> region = std::nullopt;  ///< drawn, if augmentation asks for it
  Jitter jitter = {};
};

/// What augmentation decides for one sample of the stream; depends only on the arguments. Only a
/// random region needs to know the size of the image.
Choices choose(const job::Augment& augment, model::Shape shape, StreamSample which, uint64_t seed,
               const ImageInfo& image = {});

/// True if an image has the size that the network reads.
bool fits(const ImageInfo& image, model::Shape shape);

/// The largest region in the middle of an image that has the shape of the input, reduced to `part`
/// of its sides.
Region center_region(const ImageInfo& image, model::Shape shape, double part);

/// Writes pixels with these choices applied, normalised, as floats in channel-major order.
void transform(const Normaliser& normaliser, model::Shape shape, std::span<const uint8_t> pixels,
               const Choices& choices, std::span<float> out);

/// Prepares samples one after the other; keeps what decoding needs. One per thread.
class Preparer {
 public:
  /// `augment` null: only normalise. It must outlive the preparer.
  Preparer(const Source& source, model::Shape shape, const job::Augment* augment);

  /// Writes one sample, augmented and normalised, as floats in channel-major order. The random
  /// choices depend only on (seed, epoch, sample). Throws ImageError for one that is damaged.
  void prepare(const Stored& stored, StreamSample which, uint64_t seed, std::span<float> out);

 private:
  Decoded decode(const Stored& stored, Region region);
  std::span<const uint8_t> planes_of(const Stored& stored);
  void scale(const Stored& stored, const Choices& choices, std::span<float> out);

  model::Shape shape_;
  const job::Augment* augment_;
  double center_crop_;
  bool scales_;  // also what has the right size already
  Normaliser normaliser_;
  Affine affine_;
  Decoder decoder_;
  Resampler resampler_;
  std::vector<uint8_t> planes_;
};

/// The same for a caller with a single sample.
void prepare(const Source& source, const Dataset& set, StreamSample which, uint64_t seed,
             const job::Augment* augment, std::span<float> out);

}  // namespace convoy::data
