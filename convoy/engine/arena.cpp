#include "convoy/engine/arena.hpp"

#include <algorithm>
#include <cmath>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/base/random.hpp"
#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::engine {
namespace {

constexpr int64_t kFloatsPerLine = 16;

int64_t stored_columns(const Tensor& t) {
  if (!t.source_blocked) return t.shape[1];
  return round_up(t.source.channels, kBlock) * t.source.height * t.source.width;
}

int64_t stored_size(const Tensor& t) {
  const auto& s = t.shape;
  switch (t.layout) {
    case Layout::channels:
      return round_up(s[0], kBlock);
    case Layout::conv:
      return t.groups * round_up(s[0] / t.groups, kBlock) * round_up(s[1], kBlock) * s[2] * s[3];
    case Layout::conv_input:
      return round_up(s[0], kBlock) * s[1] * s[2] * s[3];
    case Layout::depthwise:
      return round_up(s[0], kBlock) * s[2] * s[3];
    case Layout::conv_plain:
      return s[0] * s[1] * s[2] * s[3];
    case Layout::linear:
      return round_up(s[0], kBlock) * stored_columns(t);
  }
  return 0;
}

/// Calls visit(plain index, stored index) for every value of the tensor.
template <typename Visit>
void for_each_conv_value(const Tensor& t, Visit visit) {
  const int64_t out = t.shape[0];
  const int64_t in = t.shape[1];
  const int64_t taps = t.shape[2] * t.shape[3];
  const int64_t out_per_group = out / t.groups;
  const int64_t out_blocks = round_up(out_per_group, kBlock) / kBlock;
  const int64_t in_blocks = round_up(in, kBlock) / kBlock;
  int64_t plain = 0;
  for (int64_t o = 0; o < out; ++o) {
    const int64_t g = o / out_per_group;
    const int64_t og = o % out_per_group;
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t tap = 0; tap < taps; ++tap, ++plain) {
        int64_t stored = plain;
        if (t.layout == Layout::conv) {
          const int64_t block = (g * out_blocks + og / kBlock) * in_blocks + i / kBlock;
          stored = ((block * taps + tap) * kBlock + i % kBlock) * kBlock + og % kBlock;
        } else if (t.layout == Layout::conv_input) {
          stored = (((o / kBlock) * taps + tap) * in + i) * kBlock + o % kBlock;
        } else if (t.layout == Layout::depthwise) {
          stored = ((o / kBlock) * taps + tap) * kBlock + o % kBlock;
        }
        visit(plain, stored);
      }
    }
  }
}

template <typename Visit>
void for_each_linear_value(const Tensor& t, Visit visit) {
  const int64_t columns = stored_columns(t);
  const int64_t plane = t.source.height * t.source.width;
  int64_t plain = 0;
  for (int64_t o = 0; o < t.shape[0]; ++o) {
    if (!t.source_blocked) {
      for (int64_t i = 0; i < t.shape[1]; ++i, ++plain) visit(plain, o * columns + i);
      continue;
    }
    for (int64_t c = 0; c < t.source.channels; ++c) {
      const int64_t first = o * columns + (c / kBlock) * plane * kBlock + c % kBlock;
      for (int64_t p = 0; p < plane; ++p, ++plain) visit(plain, first + p * kBlock);
    }
  }
}

template <typename Visit>
void for_each_value(const Tensor& t, Visit visit) {
  switch (t.layout) {
    case Layout::channels:
      for (int64_t i = 0; i < t.shape[0]; ++i) visit(i, i);
      break;
    case Layout::linear:
      for_each_linear_value(t, visit);
      break;
    default:
      for_each_conv_value(t, visit);
  }
}

}  // namespace

int64_t Tensor::plain_size() const {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  return size;
}

void Arena::add(Tensor tensor) {
  tensor.offset = size_;
  tensor.stored = stored_size(tensor);
  size_ += round_up(tensor.stored, kFloatsPerLine);
  tensors_.push_back(std::move(tensor));
}

int64_t Arena::parameter_count() const {
  int64_t count = 0;
  for (const Tensor& t : tensors_) count += t.kind == Kind::parameter ? t.plain_size() : 0;
  return count;
}

void to_plain(const Tensor& tensor, std::span<const float> arena, std::span<float> plain) {
  check(static_cast<int64_t>(plain.size()) == tensor.plain_size(), "plain tensor has its size");
  const float* stored = arena.data() + tensor.offset;
  for_each_value(tensor, [&](int64_t p, int64_t s) { plain[static_cast<size_t>(p)] = stored[s]; });
}

void to_plain(const Tensor& tensor, std::span<const float> arena,
              const std::function<void(std::span<const float>)>& take) {
  constexpr size_t kPiece = 16 * 1024;
  std::vector<float> piece;
  piece.reserve(kPiece);
  const float* stored = arena.data() + tensor.offset;
  for_each_value(tensor, [&](int64_t /*plain: ascending*/, int64_t s) {
    piece.push_back(stored[s]);
    if (piece.size() < kPiece) return;
    take(piece);
    piece.clear();
  });
  if (!piece.empty()) take(piece);
}

void from_plain(const Tensor& tensor, std::span<const float> plain, std::span<float> arena) {
  check(static_cast<int64_t>(plain.size()) == tensor.plain_size(), "plain tensor has its size");
  float* stored = arena.data() + tensor.offset;
  std::fill_n(stored, tensor.stored, 0.0F);
  for_each_value(tensor, [&](int64_t p, int64_t s) { stored[s] = plain[static_cast<size_t>(p)]; });
}

void initialise(const Arena& arena, uint64_t seed, std::span<float> values) {
  std::vector<float> plain;
  for (const Tensor& t : arena.tensors()) {
    plain.assign(static_cast<size_t>(t.plain_size()), 0.0F);
    if (t.kind == Kind::running_variance || t.role == model::Role::scale) {
      std::fill(plain.begin(), plain.end(), t.kind == Kind::running_mean ? 0.0F : 1.0F);
    } else if (t.kind == Kind::parameter && t.role == model::Role::weight) {
      const std::span<const uint8_t> name(reinterpret_cast<const uint8_t*>(t.name.data()),
                                          t.name.size());
      Stream random(seed, Purpose::init, 0, checksum(name));
      const float bound = std::sqrt(6.0F / static_cast<float>(t.fan_in));
      for (float& value : plain) value = bound * (2 * random.uniform() - 1);
    }
    from_plain(t, plain, values);
  }
}

}  // namespace convoy::engine
