#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.hpp"

// libFuzzer's own name.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  convoy::fuzz::trace({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
