// The weights' gradient over blocked activations.
//
// For one tap it is a matrix product over pixels, dw[i][8 o] += x[pixel][i]·dy[pixel][8 o], done in
// register tiles of V output blocks × M input channels. A tile runs over a strip of pixels small
// enough that the strip's dy (V blocks) stays in the first-level cache while all taps and input
// channels pass over it, and a chunk of input blocks of the strip stays in the second level.

#include "convoy/engine/kernels/isa/conv_weights.hpp"
#include "convoy/engine/kernels/isa/tile.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

constexpr int kMaxWidth = 3;  // output blocks of a tile
constexpr int64_t kStripPixels = 192;
constexpr int64_t kChunkFloats = 64 * 1024;  // 256 KiB of x: half a second-level cache

/// Where what is wanted next lies, seen from each pixel.
struct Ahead {
  int64_t x, dy;
};

/// The pixels a tile visits; all steps in floats.
struct Walk {
  int64_t images, rows, pixels;
  int64_t x_image, x_row, x_pixel;
  int64_t dy_image, dy_row;
  Ahead ahead;
};

struct Output {
  float* dw;
  int64_t block;  // floats between the dw of neighbouring output blocks
  bool first;     // the first strip: dw holds nothing yet
};

/// kFetch: a single tap uses a pixel so few times that the caches need to be told what comes next
/// (measured; with strides it does not pay).
template <int V, int M, bool kFetch>
[[gnu::noinline]] void tile(const Walk& walk, const float* x, const float* dy, int64_t dy_block,
                            const Output& out) {
  for (int v = 0; v < V; ++v) {
    for (int m = 0; m < M * kBlock; m += 16) __builtin_prefetch(out.dw + v * out.block + m);
  }
  Tile<V, M> sums;
  for (int64_t image = 0; image < walk.images; ++image) {
    const float* x_row = x + image * walk.x_image;
    const float* dy_row = dy + image * walk.dy_image;
    for (int64_t row = 0; row < walk.rows; ++row) {
      const float* xp = x_row;
      const float* dyp = dy_row;
#pragma GCC unroll 4
      for (int64_t pixel = walk.pixels; pixel > 0; --pixel) {
        sums.add_product([&](int v) { return load(dyp + v * dy_block); },
                         [&](int m) { return xp[m]; });
        if constexpr (kFetch) {
          __builtin_prefetch(xp + walk.ahead.x);
          __builtin_prefetch(dyp + walk.ahead.dy, 0, 2);
        }
        xp += walk.x_pixel;
        dyp += kBlock;
      }
      x_row += walk.x_row;
      dy_row += walk.dy_row;
    }
  }
  float* dw = out.dw;
  const int64_t block = out.block;
  if (out.first) {
    sums.each([&](int v, int m, Vec sum) { store(dw + v * block + m * kBlock, sum); });
  } else {
    sums.each([&](int v, int m, Vec sum) {
      float* to = dw + v * block + m * kBlock;
      store(to, load(to) + sum);
    });
  }
}

/// Both halves of an input block; the second one may be padding only.
template <int V, bool kFetch>
void block(const Walk& walk, const float* x, const float* dy, int64_t dy_block, Output out,
           int64_t channels) {
  constexpr int kHalf = 4;
  if constexpr (V == 1) {
    tile<1, kBlock, kFetch>(walk, x, dy, dy_block, out);
  } else {
    tile<V, kHalf, kFetch>(walk, x, dy, dy_block, out);
    out.dw += kHalf * kBlock;
    if (channels > kHalf) {
      tile<V, kHalf, kFetch>(walk, x + kHalf, dy, dy_block, out);
    } else if (out.first) {
      for (int v = 0; v < V; ++v) std::fill_n(out.dw + v * out.block, kHalf * kBlock, 0.0F);
    }
  }
}

/// How the output pixels are cut into strips: whole images if they are small, else rows of one
/// image, and parts of rows if those are long.
struct Strips {
  int64_t images, rows, columns;  // counts of parts

  explicit Strips(const ConvShape& s) : images(s.n), rows(1), columns(1) {
    const int64_t plane = s.oh * s.ow;
    if (plane <= kStripPixels * 5 / 4) {
      images = ceil_div(s.n, std::max<int64_t>(1, kStripPixels / plane));
    } else {
      columns = ceil_div(s.ow, 2 * kStripPixels);
      rows = ceil_div(s.oh, std::max<int64_t>(1, kStripPixels / ceil_div(s.ow, columns)));
    }
  }
  int64_t size() const { return images * rows * columns; }
};

struct Strip {
  Range images, rows, columns;

  Strip(const ConvShape& s, const Strips& strips, int64_t index)
      : images(part(s.n, strips.images, index / (strips.rows * strips.columns))),
        rows(part(s.oh, strips.rows, index / strips.columns % strips.rows)),
        columns(part(s.ow, strips.columns, index % strips.columns)) {}
};

/// One group: `x`, `dy` and `dw` begin at the group's first block.
class Group {
 public:
  Group(const ConvShape& s, const float* x, const float* dy, float* dw)
      : s_(s),
        in_blocks_(ceil_div(s.ic / s.groups, kBlock)),
        x_plane_(s.ih * s.iw * kBlock),
        dy_plane_(s.oh * s.ow * kBlock),
        x_image_(ceil_div(s.ic, kBlock) * x_plane_),
        dy_image_(ceil_div(s.oc, kBlock) * dy_plane_),
        dw_block_(in_blocks_ * s.kh * s.kw * kBlock * kBlock),
        x_(x),
        dy_(dy),
        dw_(dw) {
    for (int64_t k = 0; k < s.kh; ++k) {
      rows_[k] = valid_outputs(s.oh, s.ih, s.stride_h, k * s.dilation_h - s.pad_h);
    }
    for (int64_t k = 0; k < s.kw; ++k) {
      columns_[k] = valid_outputs(s.ow, s.iw, s.stride_w, k * s.dilation_w - s.pad_w);
    }
  }

  /// Output blocks [b0, b1) of the group.
  void run(int64_t b0, int64_t b1) const {
    const Strips strips(s_);
    const int64_t x_strip = x_image_ * s_.n / strips.size() / ceil_div(s_.ic, kBlock);
    const int64_t chunk = std::max<int64_t>(1, kChunkFloats / std::max<int64_t>(1, x_strip));
    for (int64_t i = 0; i < in_blocks_; i += chunk) {
      const Range inputs{i, std::min(in_blocks_, i + chunk)};
      for (int64_t index = 0; index < strips.size(); ++index) {
        const Strip strip(s_, strips, index);
        for (int64_t b = b0; b < b1;) {
          const int64_t left = b1 - b;
          const int64_t width = left == 4 ? 2 : std::min<int64_t>(left, kMaxWidth);
          outputs(strip, inputs, b, width, {b0, b1}, index == 0);
          b += width;
        }
      }
    }
  }

 private:
  void outputs(const Strip& strip, Range inputs, int64_t b, int64_t width, Range all,
               bool first) const {
    for (int64_t i = inputs.begin; i < inputs.end; ++i) {
      const int64_t channels = s_.ic / s_.groups - i * kBlock;
      const Ahead ahead = b + width < all.end
                              ? Ahead{i + 1 < inputs.end ? x_plane_ : 0, width * dy_plane_}
                              : next_strip(strip, all.begin - b);
      const int64_t nth = i - inputs.begin;
      const int64_t dy_ahead = nth < kMaxWidth ? ahead.dy + nth * dy_plane_ : 0;
      Output out{dw_ + b * dw_block_ + i * s_.kh * s_.kw * kBlock * kBlock, dw_block_, first};
      for (int64_t kh = 0; kh < s_.kh; ++kh) {
        for (int64_t kw = 0; kw < s_.kw; ++kw, out.dw += kBlock * kBlock) {
          tap(strip, kh, kw, i, b, width, {ahead.x, dy_ahead}, out, channels);
        }
      }
    }
  }

  /// The same place in the next strip, `blocks` further.
  Ahead next_strip(const Strip& strip, int64_t blocks) const {
    if (strip.rows.size() == s_.oh) {
      return {strip.images.size() * x_image_, strip.images.size() * dy_image_ + blocks * dy_plane_};
    }
    return {strip.rows.size() * s_.stride_h * s_.iw * kBlock,
            strip.rows.size() * s_.ow * kBlock + blocks * dy_plane_};
  }

  void tap(const Strip& strip, int64_t kh, int64_t kw, int64_t i, int64_t b, int64_t width,
           Ahead ahead, const Output& out, int64_t channels) const {
    const Range rows = intersect(rows_[kh], strip.rows);
    const Range columns = intersect(columns_[kw], strip.columns);
    Walk walk{strip.images.size(),
              columns.size() > 0 ? rows.size() : 0,
              columns.size(),
              x_image_,
              s_.stride_h * s_.iw * kBlock,
              s_.stride_w * kBlock,
              dy_image_,
              s_.ow * kBlock,
              ahead};
    if (walk.pixels * walk.x_pixel == walk.x_row && walk.pixels * kBlock == walk.dy_row) {
      walk.pixels *= walk.rows;
      walk.rows = std::min<int64_t>(walk.rows, 1);
    }
    const float* x = x_;
    const float* dy = dy_;
    if (walk.rows > 0) {
      const int64_t ih = rows.begin * s_.stride_h + kh * s_.dilation_h - s_.pad_h;
      const int64_t iw = columns.begin * s_.stride_w + kw * s_.dilation_w - s_.pad_w;
      x += strip.images.begin * x_image_ + i * x_plane_ + (ih * s_.iw + iw) * kBlock;
      dy += strip.images.begin * dy_image_ + b * dy_plane_ +
            (rows.begin * s_.ow + columns.begin) * kBlock;
    }
    if (s_.kh * s_.kw == 1 && s_.stride_h * s_.stride_w == 1) {
      blocks<true>(width, walk, x, dy, out, channels);
    } else {
      blocks<false>(width, walk, x, dy, out, channels);
    }
  }

  template <bool kFetch>
  void blocks(int64_t width, const Walk& walk, const float* x, const float* dy, const Output& out,
              int64_t channels) const {
    switch (width) {
      case 1:
        return block<1, kFetch>(walk, x, dy, dy_plane_, out, channels);
      case 2:
        return block<2, kFetch>(walk, x, dy, dy_plane_, out, channels);
      default:
        return block<kMaxWidth, kFetch>(walk, x, dy, dy_plane_, out, channels);
    }
  }

  const ConvShape& s_;
  int64_t in_blocks_;
  int64_t x_plane_, dy_plane_, x_image_, dy_image_, dw_block_;
  const float* x_;
  const float* dy_;
  float* dw_;
  Range rows_[kMaxKernel];
  Range columns_[kMaxKernel];
};

}  // namespace

void conv_weights_blocked(const ConvShape& s, int64_t b0, int64_t b1, const float* x,
                          const float* dy, float* dw) {
  const int64_t in_blocks = ceil_div(s.ic / s.groups, kBlock);
  const int64_t out_blocks = ceil_div(s.oc / s.groups, kBlock);
  for (int64_t g = b0 / out_blocks; g * out_blocks < b1; ++g) {
    const int64_t base = g * out_blocks;
    const Group group(s, x + g * in_blocks * s.ih * s.iw * kBlock, dy + base * s.oh * s.ow * kBlock,
                      dw + base * in_blocks * s.kh * s.kw * kBlock * kBlock);
    group.run(std::max<int64_t>(b0 - base, 0), std::min(b1 - base, out_blocks));
  }
}

}  // namespace convoy::engine::CONVOY_ISA
