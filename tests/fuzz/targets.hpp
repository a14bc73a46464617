#pragma once
// What is fuzzed: each function reads made-up bytes as one kind of file. It returns whether they
// were refused (InputError) or accepted; anything else (another exception, a crash, a sanitizer's
// complaint) is a finding. The *_fuzz.cpp beside this hand them to libFuzzer, corpus_test.cpp runs
// them over all that was ever found.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace convoy::fuzz {

void jpeg(std::span<const std::byte> bytes);
/// These make the checksums right first: else nearly everything would end there.
void png(std::span<const std::byte> bytes);
void packed(std::span<const std::byte> bytes);
/// The first byte says which of the set's files the others are.
void idx(std::span<const std::byte> bytes);
void cifar(std::span<const std::byte> bytes);
/// Of speeds and loads, any kind; the headers of a tar are made right.
void trace(std::span<const std::byte> bytes);

struct Target {
  std::string name;
  void (*run)(std::span<const std::byte> bytes);
};
std::vector<Target> targets();

}  // namespace convoy::fuzz
