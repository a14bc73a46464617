// Moving values between layouts: channel slices of blocked activations, plain to blocked and back.

#include "convoy/engine/kernels/isa/loops.hpp"
#include "convoy/engine/kernels/isa/parts.hpp"

namespace convoy::engine::CONVOY_ISA {
namespace {

const IVec kLanes = {0, 1, 2, 3, 4, 5, 6, 7};

IVec splat_int(int64_t x) {
  return IVec{} + static_cast<int32_t>(x);
}

/// One destination block: its eight channels are consecutive source channels, which straddle two
/// blocks of the source, `low` from lane kShift on and then `high`.
template <int kShift>
void copy_plane(int64_t plane, const float* low, const float* high, IVec valid, bool accumulate,
                float* to) {
  for (int64_t i = 0; i < plane; i += kBlock) {
    const Vec moved =
        __builtin_shufflevector(load(low + i), load(high + i), kShift, kShift + 1, kShift + 2,
                                kShift + 3, kShift + 4, kShift + 5, kShift + 6, kShift + 7);
    const Vec old = load(to + i);
    store(to + i, accumulate ? old + keep(valid, moved) : (valid ? moved : old));
  }
}

using CopyPlane = void (*)(int64_t, const float*, const float*, IVec, bool, float*);
constexpr CopyPlane kCopyPlane[kBlock] = {copy_plane<0>, copy_plane<1>, copy_plane<2>,
                                          copy_plane<3>, copy_plane<4>, copy_plane<5>,
                                          copy_plane<6>, copy_plane<7>};

void copy_channels(const Blocked& sx, const float* x, int64_t from, const Blocked& sy, float* y,
                   int64_t to, int64_t count, int64_t n0, int64_t n1, bool accumulate) {
  const int64_t plane = sy.plane();
  for (int64_t n = n0; n < n1; ++n) {
    for (int64_t b = to / kBlock; b * kBlock < to + count; ++b) {
      // The source channel of lane 0 may be negative by less than a block: that lane is not copied.
      const int64_t source = from + b * kBlock - to + kBlock;
      const int64_t block = source / kBlock - 1;
      const float* image = x + n * sx.image();
      const float* low = image + larger(block, 0) * plane;
      const float* high = image + smaller(block + 1, sx.blocks() - 1) * plane;
      const IVec channel = kLanes + splat_int(b * kBlock);
      const IVec valid = (channel >= splat_int(to)) & (channel < splat_int(to + count));
      float* target = y + n * sy.image() + b * plane;
      kCopyPlane[source % kBlock](plane, low, high, valid, accumulate, target);
    }
  }
}

/// Transposes 8×8 floats in registers: pairs, then quadruples, then halves.
[[gnu::always_inline]] inline void transpose(Vec* rows) {
  Vec t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    t[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  Vec u[8];
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      u[i + j] = __builtin_shufflevector(t[i + j], t[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      u[i + j + 2] = __builtin_shufflevector(t[i + j], t[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = __builtin_shufflevector(u[i], u[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + 4] = __builtin_shufflevector(u[i], u[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

void block(const Blocked& s, int64_t n0, int64_t n1, const float* plain, float* blocked) {
  const int64_t pixels = s.height * s.width;
  for (int64_t n = n0; n < n1; ++n) {
    for (int64_t b = 0; b < s.blocks(); ++b) {
      const float* from = plain + (n * s.channels + b * kBlock) * pixels;
      float* to = blocked + n * s.image() + b * s.plane();
      const int64_t channels = smaller(kBlock, s.channels - b * kBlock);
      int64_t p = 0;
      for (; p + kBlock <= pixels; p += kBlock) {
        Vec rows[8] = {};
        for (int64_t c = 0; c < channels; ++c) rows[c] = load(from + c * pixels + p);
        transpose(rows);
        for (int64_t i = 0; i < kBlock; ++i) store(to + (p + i) * kBlock, rows[i]);
      }
      for (; p < pixels; ++p) {
        for (int64_t c = 0; c < kBlock; ++c) {
          to[p * kBlock + c] = c < channels ? from[c * pixels + p] : 0.0F;
        }
      }
    }
  }
}

void unblock(const Blocked& s, int64_t n0, int64_t n1, const float* blocked, float* plain) {
  const int64_t pixels = s.height * s.width;
  for (int64_t n = n0; n < n1; ++n) {
    for (int64_t b = 0; b < s.blocks(); ++b) {
      const float* from = blocked + n * s.image() + b * s.plane();
      float* to = plain + (n * s.channels + b * kBlock) * pixels;
      const int64_t channels = smaller(kBlock, s.channels - b * kBlock);
      int64_t p = 0;
      for (; p + kBlock <= pixels; p += kBlock) {
        Vec rows[8];
        for (int64_t i = 0; i < kBlock; ++i) rows[i] = load(from + (p + i) * kBlock);
        transpose(rows);
        for (int64_t c = 0; c < channels; ++c) store(to + c * pixels + p, rows[c]);
      }
      for (; p < pixels; ++p) {
        for (int64_t c = 0; c < channels; ++c) to[c * pixels + p] = from[p * kBlock + c];
      }
    }
  }
}

}  // namespace

void fill_layout(Kernels& kernels) {
  kernels.copy_channels = copy_channels;
  kernels.block = block;
  kernels.unblock = unblock;
}

}  // namespace convoy::engine::CONVOY_ISA
