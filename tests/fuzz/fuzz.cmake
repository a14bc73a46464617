# Only the fuzzers (CONVOY_FUZZ): what reads files, and no more, compiled by clang with libFuzzer,
# AddressSanitizer and UndefinedBehaviorSanitizer. scripts/fuzz builds and runs them.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "CONVOY_FUZZ needs clang, which brings libFuzzer; the compiler is "
    "${CMAKE_CXX_COMPILER_ID}. `scripts/fuzz` sets it up")
endif()
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PNG REQUIRED)
find_package(JPEG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)

set(sanitizers -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
  -fno-omit-frame-pointer)
add_library(convoy_fuzzed STATIC convoy/base/file.cpp convoy/base/text.cpp convoy/data/cifar.cpp
  convoy/data/dataset.cpp convoy/data/idx.cpp convoy/data/image.cpp convoy/data/image_jpeg.cpp convoy/data/image_png.cpp
  convoy/data/packed.cpp convoy/data/resample.cpp
  convoy/base/random.cpp convoy/sync/predict/tar.cpp convoy/sync/predict/traces.cpp tests/fuzz/targets.cpp)
target_include_directories(convoy_fuzzed PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_options(convoy_fuzzed PUBLIC ${sanitizers} -O1 -g -Wall -Wextra -Wno-psabi)
target_link_libraries(convoy_fuzzed PUBLIC fmt::fmt yaml-cpp ZLIB::ZLIB PNG::PNG JPEG::JPEG
  PkgConfig::xxhash Threads::Threads)
foreach(target jpeg png packed idx cifar trace)
  add_executable(fuzz_${target} tests/fuzz/${target}_fuzz.cpp)
  target_link_libraries(fuzz_${target} PRIVATE convoy_fuzzed)
  target_link_options(fuzz_${target} PRIVATE -fsanitize=fuzzer,address,undefined)
endforeach()
