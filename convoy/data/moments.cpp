#include "convoy/data/moments.hpp"

#include <algorithm>
#include <cmath>

#include "convoy/base/error.hpp"

namespace convoy::data {
namespace {

// The most values whose squares fit 32 bits when added: 255² · 65536 < 2³². Such sums the compiler
// makes into vectors.
constexpr size_t kPiece = 65536;

template <size_t kStride>
Moments moments_of(const uint8_t* values, size_t count) {
  Moments moments{.count = count};
  for (size_t begin = 0; begin < count; begin += kPiece) {
    const size_t end = std::min(count, begin + kPiece);
    uint32_t sum = 0;
    uint32_t squares = 0;
    for (size_t i = begin; i < end; ++i) {
      const uint32_t value = values[i * kStride];
      sum += value;
      squares += value * value;
    }
    moments.sum += sum;
    moments.squares += squares;
  }
  return moments;
}

}  // namespace

Moments& Moments::operator+=(const Moments& other) {
  count += other.count;
  sum += other.sum;
  squares += other.squares;
  return *this;
}

double Moments::mean() const {
  return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count) / 255;
}

double Moments::deviation() const {
  if (count == 0) return 1;
  const double average = static_cast<double>(sum) / static_cast<double>(count);
  const double variance =
      static_cast<double>(squares) / static_cast<double>(count) - average * average;
  // Pixels are integers, so a smaller variance than this is rounding of a constant channel.
  return variance < 1e-9 ? 1 : std::sqrt(variance) / 255;
}

ImageMoments measure(const Pixels& pixels) {
  const auto count = static_cast<size_t>(int64_t{pixels.width} * pixels.height);
  const uint8_t* const values = pixels.bytes.data();
  if (pixels.channels == 1) return {moments_of<1>(values, count), {}, {}};
  return {moments_of<3>(values, count), moments_of<3>(values + 1, count),
          moments_of<3>(values + 2, count)};
}

Moments measure_plane(std::span<const uint8_t> plane) {
  return moments_of<1>(plane.data(), plane.size());
}

ImageMoments measure_planes(std::span<const uint8_t> planes, int channels) {
  check(channels == 1 || channels == 3, "images have one channel or three");
  ImageMoments moments;
  const size_t plane = planes.size() / static_cast<size_t>(channels);
  for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
    moments[c] = measure_plane(planes.subspan(c * plane, plane));
  }
  return moments;
}

}  // namespace convoy::data
