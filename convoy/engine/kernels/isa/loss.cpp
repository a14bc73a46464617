#include "convoy/engine/kernels/isa/parts.hpp"

namespace convoy::engine::CONVOY_ISA {

void fill_loss(Kernels&) {}

}  // namespace convoy::engine::CONVOY_ISA
