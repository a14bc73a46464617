#pragma once
// Each instruction set's table of kernels, filled in isa/table.cpp.

#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::engine {
namespace generic {
Kernels table();
}
namespace avx2 {
Kernels table();
}
namespace avx512 {
Kernels table();
}
}  // namespace convoy::engine
