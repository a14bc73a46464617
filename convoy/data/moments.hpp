#pragma once
// Sums over 8-bit pixels, from which mean and standard deviation follow. They are integers, hence
// exact, and do not depend on the order in which they were added.

#include <array>
#include <cstdint>
#include <span>

#include "convoy/data/image.hpp"

namespace convoy::data {

struct Moments {
  uint64_t count = 0;
  uint64_t sum = 0;
  uint64_t squares = 0;

  Moments& operator+=(const Moments& other);
  bool operator==(const Moments&) const = default;
  /// Of pixels as 0 … 1; 0 if there are none.
  double mean() const;
  /// Likewise; 1 if they never vary, so that one can divide by it.
  double deviation() const;
};

/// Of the channels of one image, or of many; of gray images only the first is used.
using ImageMoments = std::array<Moments, 3>;

/// Of pixels whose channels lie side by side.
ImageMoments measure(const Pixels& pixels);
/// Of one plane, or a part of one.
Moments measure_plane(std::span<const uint8_t> plane);
/// Of planes that lie one after the other.
ImageMoments measure_planes(std::span<const uint8_t> planes, int channels);

}  // namespace convoy::data
