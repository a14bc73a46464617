#pragma once
// Strong units, for places where seconds, bytes and operations could be confused.

#include <compare>
#include <cstdint>
#include <string>

namespace convoy {

/// A duration, in seconds.
struct Seconds {
  double value = 0;
  auto operator<=>(const Seconds&) const = default;
  Seconds& operator+=(Seconds other) {
    value += other.value;
    return *this;
  }
  friend Seconds operator+(Seconds a, Seconds b) { return {a.value + b.value}; }
  friend Seconds operator-(Seconds a, Seconds b) { return {a.value - b.value}; }
};

/// An amount of memory or of data moved.
struct Bytes {
  int64_t value = 0;
  auto operator<=>(const Bytes&) const = default;
  Bytes& operator+=(Bytes other) {
    value += other.value;
    return *this;
  }
  friend Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }
  friend Bytes operator-(Bytes a, Bytes b) { return {a.value - b.value}; }
  friend Bytes operator*(int64_t n, Bytes b) { return {n * b.value}; }
};

/// An amount of arithmetic: a multiplication and an addition are two.
struct Flops {
  double value = 0;
  auto operator<=>(const Flops&) const = default;
  Flops& operator+=(Flops other) {
    value += other.value;
    return *this;
  }
  friend Flops operator+(Flops a, Flops b) { return {a.value + b.value}; }
};

/// "1.5 GiB", "312 KiB", "17 B".
std::string to_string(Bytes bytes);

/// "1 h 02 min", "3 min 20 s", "4.2 s", "12 ms".
std::string to_string(Seconds seconds);

/// Reads "512MiB", "1.5 GB", "2g", "4096"; throws InputError otherwise.
Bytes parse_bytes(const std::string& text);

/// Seconds of a monotonic clock; only differences mean something.
Seconds now();

}  // namespace convoy
