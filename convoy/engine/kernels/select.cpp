#include <algorithm>
#include <string_view>

#include <fmt/ranges.h>

#include "convoy/base/error.hpp"
#include "convoy/engine/kernels/kernels.hpp"
#include "convoy/engine/kernels/table.hpp"

namespace convoy::engine {

ConvShape backward_shape(const ConvShape& s) {
  ConvShape t = s;
  t.ic = s.oc, t.ih = s.oh, t.iw = s.ow;
  t.oc = s.ic, t.oh = s.ih, t.ow = s.iw;
  t.all_in_blocks = s.all_out_blocks, t.all_out_blocks = s.all_in_blocks;
  t.pad_h = s.dilation_h * (s.kh - 1) - s.pad_h;
  t.pad_w = s.dilation_w * (s.kw - 1) - s.pad_w;
  return t;
}

ConvShape group_shape(const ConvShape& s) {
  ConvShape t = s;
  t.all_in_blocks = Blocked{.channels = s.ic}.blocks();
  t.all_out_blocks = Blocked{.channels = s.oc}.blocks();
  t.ic = s.ic / s.groups;
  t.oc = s.oc / s.groups;
  t.groups = 1;
  return t;
}

std::vector<const char*> usable_kernels() {
  std::vector<const char*> names = {"generic"};
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (avx2) names.push_back("avx2");
#ifdef CONVOY_HAS_AVX512
  if (avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0) {
    names.push_back("avx512");
  }
#endif
  return names;
}

const Kernels& select_kernels(const char* isa) {
  const std::vector<const char*> usable = usable_kernels();
  const std::string_view wanted = isa != nullptr ? isa : usable.back();
  constexpr std::string_view kNames[] = {"generic", "avx2", "avx512"};
  if (std::ranges::find(kNames, wanted) == std::end(kNames)) {
    refuse("no kernels for '{}'; there are {}", wanted, fmt::join(kNames, ", "));
  }
  if (std::ranges::find(usable, wanted) == usable.end()) {
    refuse("kernels for {} were asked for, but this CPU cannot run them or they were not built",
           wanted);
  }
  // A table is filled by its own code, so only where the CPU can run it.
#ifdef CONVOY_HAS_AVX512
  if (wanted == "avx512") {
    static const Kernels table = avx512::table();
    return table;
  }
#endif
  if (wanted == "avx2") {
    static const Kernels table = avx2::table();
    return table;
  }
  static const Kernels table = generic::table();
  return table;
}

}  // namespace convoy::engine
