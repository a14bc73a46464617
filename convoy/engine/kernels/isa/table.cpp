#include "convoy/engine/kernels/table.hpp"

#include "convoy/engine/kernels/isa/parts.hpp"

#define CONVOY_NAME_(x) #x
#define CONVOY_NAME(x) CONVOY_NAME_(x)

namespace convoy::engine::CONVOY_ISA {

Kernels table() {
  Kernels kernels{};
  kernels.isa = CONVOY_NAME(CONVOY_ISA);
  fill_norm(kernels);
  fill_pointwise(kernels);
  fill_layout(kernels);
  fill_pool(kernels);
  fill_pool_backward(kernels);
  fill_lrn(kernels);
  fill_loss(kernels);
  fill_linear(kernels);
  fill_conv_weights(kernels);
  fill_conv_data(kernels);
  fill_conv_plain(kernels);
  fill_lowering(kernels);
  fill_fft(kernels);
  fill_fft_weights(kernels);
  fill_winograd(kernels);
  fill_winograd_weights(kernels);
  fill_peak(kernels);
  return kernels;
}

}  // namespace convoy::engine::CONVOY_ISA
