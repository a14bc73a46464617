#pragma once
// The outputs of a convolution, cut into tiles.

#include "convoy/engine/kernels/isa/vec.hpp"
#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::engine::CONVOY_ISA {

struct Extent {
  int64_t height, width;
};

/// Channel blocks [begin, end) of images that have `all` of them.
struct Channels {
  int64_t begin, end, all;
};

inline Channels input_channels(const ConvShape& s) {
  const int64_t own = Blocked{.channels = s.ic}.blocks();
  return {0, own, s.all_in_blocks > 0 ? s.all_in_blocks : own};
}
inline Channels output_channels(const ConvShape& s) {
  const int64_t own = Blocked{.channels = s.oc}.blocks();
  return {0, own, s.all_out_blocks > 0 ? s.all_out_blocks : own};
}

/// The tiles of a grain's outputs, numbered row by row, image by image.
struct Tiles {
  Extent size;  ///< outputs of a tile; those at the right and lower edge may have fewer
  int64_t rows, columns, per_image, all;
  Tiles(const ConvShape& s, const Extent& tile)
      : size(tile),
        rows((s.oh + tile.height - 1) / tile.height),
        columns((s.ow + tile.width - 1) / tile.width),
        per_image(rows * columns),
        all(s.n * per_image) {}
};

/// Walks over tiles in their order.
class TileWalk {
 public:
  TileWalk(const Tiles& tiles, int64_t first)
      : tiles_(tiles),
        image(first / tiles.per_image),
        row(first % tiles.per_image / tiles.columns * tiles.size.height),
        column(first % tiles.columns * tiles.size.width) {}

  void next() {
    column += tiles_.size.width;
    if (column < tiles_.columns * tiles_.size.width) return;
    column = 0;
    row += tiles_.size.height;
    if (row < tiles_.rows * tiles_.size.height) return;
    row = 0;
    ++image;
  }

 private:
  const Tiles& tiles_;

 public:
  int64_t image, row, column;  ///< of the tile's first output
};

}  // namespace convoy::engine::CONVOY_ISA
