#pragma once
// Each file of this folder puts its kernels into the table.

#include "convoy/engine/kernels/isa/vec.hpp"
#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::engine::CONVOY_ISA {

void fill_norm(Kernels& kernels);
void fill_pointwise(Kernels& kernels);
void fill_layout(Kernels& kernels);
void fill_pool(Kernels& kernels);
void fill_pool_backward(Kernels& kernels);
void fill_lrn(Kernels& kernels);
void fill_loss(Kernels& kernels);
void fill_linear(Kernels& kernels);
void fill_conv_weights(Kernels& kernels);
void fill_conv_data(Kernels& kernels);
void fill_conv_plain(Kernels& kernels);
void fill_lowering(Kernels& kernels);
void fill_fft(Kernels& kernels);
void fill_fft_weights(Kernels& kernels);
void fill_winograd(Kernels& kernels);
void fill_winograd_weights(Kernels& kernels);
void fill_peak(Kernels& kernels);

}  // namespace convoy::engine::CONVOY_ISA
