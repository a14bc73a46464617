#pragma once
// Our own kernels: everything oneDNN does not do, or does slowly for training.
//
// Activations are "blocked": nChw8c, that is [n][⌈c/8⌉][h][w][8], 64-byte aligned. Channels beyond
// the last real one (padding of the last block) are zero in every activation and gradient, and
// every kernel keeps them zero. A feature vector is the same with h = w = 1, hence [n][padded c].
// Per-channel arrays (scale, mean, bias, …) are padded to a multiple of 8 too, with zeros.
//
// A kernel works on a range of channel blocks [b0, b1), of images [n0, n1) or of rows; the results
// do not depend on how the range is cut, so lanes of several threads get the same bits.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace convoy::engine {

inline constexpr int64_t kBlock = 8;
constexpr int64_t round_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

/// Extent of a blocked activation.
struct Blocked {
  int64_t n = 0;
  int64_t channels = 0;
  int64_t height = 1;
  int64_t width = 1;
  int64_t blocks() const { return (channels + kBlock - 1) / kBlock; }
  int64_t plane() const { return height * width * kBlock; }  ///< floats of one channel block
  int64_t image() const { return blocks() * plane(); }       ///< floats of one sample
  int64_t size() const { return n * image(); }
};

/// How a ReLU that followed batch norm is undone in the backward pass.
enum class Mask {
  none,       ///< there was no ReLU
  recompute,  ///< zero where scale·x + shift ≤ 0: nothing but x has to be kept
  output,     ///< zero where the kept output y ≤ 0 (a residual was added before the ReLU)
};

struct PoolShape {
  Blocked in;
  int64_t out_height = 0;
  int64_t out_width = 0;
  int64_t kernel_h = 0, kernel_w = 0;
  int64_t stride_h = 0, stride_w = 0;
  int64_t pad_h = 0, pad_w = 0;
  bool count_padding = true;
};

/// A convolution over one grain. ic and oc are real channel counts over all groups.
struct ConvShape {
  int64_t n = 0;
  int64_t ic = 0, ih = 0, iw = 0;
  int64_t oc = 0, oh = 0, ow = 0;
  int64_t kh = 1, kw = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_h = 0, pad_w = 0;
  int64_t dilation_h = 1, dilation_w = 1;
  int64_t groups = 1;
  bool plain_input = false;  ///< x is NCHW (the network's input) instead of nChw8c
  /// Where the channels are those of one group: channel blocks of the whole images, else 0.
  int64_t all_in_blocks = 0, all_out_blocks = 0;
};

/// Convolution of tiles in a transformed space, where it takes fewer multiplications: Winograd's
/// F(M×M, 3×3) (winograd.cpp) and Fourier's (fft.cpp). Stride 1, one group (group_shape) at a time,
/// blocked input, padding less than the kernel. Backward-data is `forward` of backward_shape(s)
/// with the turned kernel.
struct TiledConv {
  bool (*supported)(const ConvShape& s);
  /// Output tiles of the grain; `forward` works on a range of them.
  int64_t (*tiles)(const ConvShape& s);
  /// Floats of the transformed kernel.
  int64_t (*kernel_size)(const ConvShape& s);
  /// Transforms w (OIhw8i8o) for output blocks [b0, b1) of `forward`, or, turned, for input blocks
  /// [b0, b1) of backward-data.
  void (*kernel)(const ConvShape& s, bool turned, int64_t b0, int64_t b1, const float* w, float* u);
  /// Floats of scratch per thread.
  int64_t (*forward_scratch)(const ConvShape& s);
  /// y = relu?(x ∗ w + bias?) for tiles [t0, t1), from the transformed kernel u.
  void (*forward)(const ConvShape& s, int64_t t0, int64_t t1, const float* x, const float* u,
                  const float* bias, bool relu, float* y, float* scratch);
  /// Floats of scratch for so many output blocks.
  int64_t (*backward_weights_scratch)(const ConvShape& s, int64_t out_blocks);
  /// dw (OIhw8i8o) for output blocks [b0, b1).
  void (*backward_weights)(const ConvShape& s, int64_t b0, int64_t b1, const float* x,
                           const float* dy, float* dw, float* scratch);
};

/// Convolution by lowering (lowering.cpp): the windows of images copied into the rows of a matrix,
/// then one matrix product. Any kernel, stride, padding and dilation; groups 1.
struct Lowering {
  bool (*supported)(const ConvShape& s);
  /// Floats of one image's rows.
  int64_t (*image_floats)(const ConvShape& s);
  /// y of images [n0, n1), `together` of them lowered at once (scratch for so many images).
  void (*forward)(const ConvShape& s, int64_t n0, int64_t n1, int64_t together, const float* x,
                  const float* w, const float* bias, bool relu, float* y, float* scratch);
  /// dx of images [n0, n1) from dy and the weights as OIhw8o8i; scratch for one image.
  void (*backward_data)(const ConvShape& s, int64_t n0, int64_t n1, const float* dy, const float* w,
                        float* dx, float* scratch);
  /// dw for output blocks [b0, b1); scratch for one image.
  void (*backward_weights)(const ConvShape& s, int64_t b0, int64_t b1, const float* x,
                           const float* dy, float* dw, float* scratch);
};

/// The convolution of dy that gives dx, for stride 1: channels exchanged, padding complemented.
ConvShape backward_shape(const ConvShape& s);

/// The convolution that each group of `s` is, in images that have the channels of all groups.
ConvShape group_shape(const ConvShape& s);

/// One table per instruction set; see select_kernels().
struct Kernels {
  const char* isa;

  // ---- measuring (peak.cpp)
  // ----------------------------------------------------------------------
  /// Independent multiply-adds in registers only; returns something that depends on all of them.
  double (*fma_loop)(int64_t iterations);
  double fma_loop_flops;  ///< per iteration

  // ---- batch norm (norm.cpp): all per channel block -------------------------------------------
  /// Mean and biased variance over n, h, w. Accurate also when |mean| ≫ deviation.
  void (*bn_statistics)(const Blocked& s, int64_t b0, int64_t b1, const float* x, float* mean,
                        float* variance);
  /// y = relu?(scale·x + shift + residual?). residual may be null; y may be x.
  void (*bn_forward)(const Blocked& s, int64_t b0, int64_t b1, const float* x, const float* scale,
                     const float* shift, const float* residual, bool relu, float* y);
  /// With dz = dy masked: d_shift = Σ dz, d_scale = Σ dz·(x − mean)·inv_std. With Mask::output, dy
  /// is overwritten by dz (the residual's gradient); y is read only then.
  void (*bn_backward_sums)(const Blocked& s, int64_t b0, int64_t b1, const float* x,
                           const float* mean, const float* inv_std, const float* scale,
                           const float* shift, Mask mask, const float* y, float* dy, float* d_scale,
                           float* d_shift);
  /// dx = a·dz + b·x + c per channel, where dz is dy masked as above (Mask::none or recompute).
  /// dx may be dy.
  void (*bn_backward)(const Blocked& s, int64_t b0, int64_t b1, const float* x, const float* dy,
                      Mask mask, const float* scale, const float* shift, const float* a,
                      const float* b, const float* c, float* dx);

  // ---- element-wise (pointwise.cpp): n is a count of floats, a multiple of 8 -------------------
  void (*relu)(int64_t n, const float* x, float* y);
  /// dx = dy where y > 0, else 0. dx may be dy.
  void (*relu_backward)(int64_t n, const float* y, const float* dy, float* dx);
  /// y = relu?(a + b); y may be a or b.
  void (*add)(int64_t n, const float* a, const float* b, bool relu, float* y);
  /// y += x
  void (*accumulate)(int64_t n, const float* x, float* y);
  /// y = x·m, with m = 1/(1−rate) where the random word of the element is ≥ rate·2³², else 0. The
  /// word of element e of sample i is word e%4 of Philox block (counter low = e/4, high = i) with
  /// `key`: forward and backward call it alike and nothing is kept. `image` floats per sample;
  /// the samples are number first, first+1, … of the batch.
  void (*dropout)(int64_t samples, int64_t image, int64_t first, uint64_t key, float rate,
                  const float* x, float* y);
  /// d_bias = Σ over n, h, w of dy, for channel blocks [b0, b1). With y not null, dy is first
  /// masked in place where y ≤ 0 (a fused ReLU).
  void (*bias_backward)(const Blocked& s, int64_t b0, int64_t b1, const float* y, float* dy,
                        float* d_bias);
  /// Copies channels [from, from+count) of `x` to channels [to, to+count) of `y`, images [n0, n1);
  /// any offsets. With accumulate, adds instead. Padding channels of y are left alone.
  void (*copy_channels)(const Blocked& sx, const float* x, int64_t from, const Blocked& sy,
                        float* y, int64_t to, int64_t count, int64_t n0, int64_t n1,
                        bool accumulate);
  /// NCHW → nChw8c (padding zeroed) and back.
  void (*block)(const Blocked& s, int64_t n0, int64_t n1, const float* plain, float* blocked);
  void (*unblock)(const Blocked& s, int64_t n0, int64_t n1, const float* blocked, float* plain);

  // ---- pooling (pool.cpp): images [n0, n1) ------------------------------------------------------
  /// argmax (one byte per output value: position in the window, row-major) may be null.
  void (*max_pool)(const PoolShape& s, int64_t n0, int64_t n1, const float* x, float* y,
                   uint8_t* argmax);
  /// dx from dy and argmax. With relu_y (the pooled output) not null, dy counts as 0 where
  /// relu_y ≤ 0: undoes a ReLU in front of the pooling without keeping its output.
  void (*max_pool_backward)(const PoolShape& s, int64_t n0, int64_t n1, const float* dy,
                            const uint8_t* argmax, const float* relu_y, float* dx);
  void (*average_pool)(const PoolShape& s, int64_t n0, int64_t n1, const float* x, float* y);
  void (*average_pool_backward)(const PoolShape& s, int64_t n0, int64_t n1, const float* dy,
                                float* dx);
  /// y[n][c] = mean over h, w.
  void (*global_pool)(const Blocked& s, int64_t n0, int64_t n1, const float* x, float* y);
  void (*global_pool_backward)(const Blocked& s, int64_t n0, int64_t n1, const float* dy,
                               float* dx);
  /// y = x / d^beta with d = k + alpha/size·Σx² over `size` neighbouring channels.
  void (*lrn)(const Blocked& s, int64_t n0, int64_t n1, int64_t size, float alpha, float beta,
              float k, const float* x, float* y);
  void (*lrn_backward)(const Blocked& s, int64_t n0, int64_t n1, int64_t size, float alpha,
                       float beta, float k, const float* x, const float* dy, float* dx);

  // ---- losses (loss.cpp): rows [0, n) of round_up(classes, 8) floats ---------------------------
  /// For each row with label ≥ 0: loss += −Σ target·log softmax; correct += (argmax == label).
  /// If dx is not null: dx = gradient_scale·(softmax − target); rows with label < 0 get zeros.
  void (*softmax_cross_entropy)(int64_t n, int64_t classes, float smoothing, float gradient_scale,
                                const float* x, const int32_t* labels, float* dx, double* loss,
                                int64_t* correct);
  /// loss += Σ (x − target)²/classes, target one-hot; correct by argmax. dx as above.
  void (*mean_squared_error)(int64_t n, int64_t classes, float gradient_scale, const float* x,
                             const int32_t* labels, float* dx, double* loss, int64_t* correct);

  // ---- linear (linear.cpp): x [n][k], w [f][k], y [n][f], all row-major, k and f multiples of 8 -
  // (k need not be: the first layer reads plain features). Ranges cut the output only.
  /// y[:, f0:f1) = relu?(x·wᵀ + bias?)
  void (*linear_forward)(int64_t n, int64_t k, int64_t f, int64_t f0, int64_t f1, const float* x,
                         const float* w, const float* bias, bool relu, float* y);
  /// dx[:, k0:k1) = dy·w
  void (*linear_backward_data)(int64_t n, int64_t k, int64_t f, int64_t k0, int64_t k1,
                               const float* dy, const float* w, float* dx);
  /// dw[f0:f1, :) = dyᵀ·x
  void (*linear_backward_weights)(int64_t n, int64_t k, int64_t f, int64_t f0, int64_t f1,
                                  const float* x, const float* dy, float* dw);

  // ---- convolution (conv_weights.cpp): gradient of the weights ---------------------------------
  /// True if conv_backward_weights handles the shape (else oneDNN does).
  bool (*conv_backward_weights_supported)(const ConvShape& s);
  /// Floats of scratch it needs per thread.
  int64_t (*conv_backward_weights_scratch)(const ConvShape& s);
  /// dw for output-channel blocks [b0, b1), in the layout of oneDNN's forward weights:
  /// gOIhw8i8o: [g][oc/8][ic/8][kh][kw][8i][8o]; plain_input: Ohwi8o: [oc/8][kh][kw][ic][8o].
  void (*conv_backward_weights)(const ConvShape& s, int64_t b0, int64_t b1, const float* x,
                                const float* dy, float* dw, float* scratch);
  /// y of images [n0, n1) for a first layer that reads plain input: weights Ohwi8o, groups 1. The
  /// bias (or null) is padded with zeros, and so are the weights: padding channels come out zero.
  void (*conv_forward_plain)(const ConvShape& s, int64_t n0, int64_t n1, const float* x,
                             const float* w, const float* bias, bool relu, float* y);
  /// True if conv_backward_data handles the shape and oneDNN would be slower.
  bool (*conv_backward_data_supported)(const ConvShape& s);
  /// dx of images [n0, n1) from dy and the weights as OIhw8o8i, depthwise as Goihw8g.
  void (*conv_backward_data)(const ConvShape& s, int64_t n0, int64_t n1, const float* dy,
                             const float* w, float* dx);
  /// Swaps the inner 8×8 of `blocks` weight blocks: OIhw8i8o[o][i][kh][kw] → OIhw8o8i, the layout
  /// that backward-data reads. Same outer order.
  void (*transpose_blocks)(int64_t blocks, const float* from, float* to);

  Lowering lowering;
  TiledConv winograd2, winograd4, fft;
};

/// The tables that this CPU can run, the best last.
std::vector<const char*> usable_kernels();

/// The best table for this CPU, or the named one ("generic", "avx2", "avx512"); throws InputError
/// if the CPU cannot run it.
const Kernels& select_kernels(const char* isa = nullptr);

}  // namespace convoy::engine
