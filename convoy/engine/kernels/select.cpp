#include <cstring>

#include "convoy/base/error.hpp"
#include "convoy/engine/kernels/kernels.hpp"
#include "convoy/engine/kernels/table.hpp"

namespace convoy::engine {

ConvShape backward_shape(const ConvShape& s) {
  ConvShape t = s;
  t.ic = s.oc, t.ih = s.oh, t.iw = s.ow;
  t.oc = s.ic, t.oh = s.ih, t.ow = s.iw;
  t.pad_h = s.dilation_h * (s.kh - 1) - s.pad_h;
  t.pad_w = s.dilation_w * (s.kw - 1) - s.pad_w;
  return t;
}

const Kernels& select_kernels(const char* isa) {
  const bool has_avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (isa == nullptr) isa = has_avx2 ? "avx2" : "generic";
  static const Kernels generic_table = generic::table();
  static const Kernels avx2_table = avx2::table();
  if (std::strcmp(isa, "generic") == 0) return generic_table;
  if (std::strcmp(isa, "avx2") == 0) {
    if (!has_avx2) refuse("kernels for avx2 were asked for, but this CPU has no AVX2 and FMA");
    return avx2_table;
  }
  refuse("no kernels for '{}'; there are generic and avx2", isa);
}

}  // namespace convoy::engine
