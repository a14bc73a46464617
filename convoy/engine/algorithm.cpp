#include "convoy/engine/algorithm.hpp"

#include <vector>

#include <fmt/ranges.h>

#include "convoy/base/error.hpp"
#include "convoy/engine/builder.hpp"

namespace convoy::engine {
namespace {

constexpr int64_t kFloat = sizeof(float);

double channels(int64_t real) {
  return static_cast<double>(round_up(real, kBlock));
}

/// Floats of operands and result.
double operands(const ConvShape& s) {
  const double images = static_cast<double>(s.n);
  const double x = images * channels(s.ic) * static_cast<double>(s.ih * s.iw);
  const double y = images * channels(s.oc) * static_cast<double>(s.oh * s.ow);
  return x + y +
         channels(s.ic) * channels(s.oc) * static_cast<double>(s.kh * s.kw) /
             static_cast<double>(s.groups);
}

double direct_flops(const ConvShape& s) {
  return 2.0 * static_cast<double>(s.n * s.oh * s.ow * s.kh * s.kw) * channels(s.ic) *
         channels(s.oc) / static_cast<double>(s.groups);
}

Bytes bytes(double floats) {
  return {static_cast<int64_t>(floats) * kFloat};
}

bool needs_transposed(const ConvShape& s, Direction direction) {
  return direction == Direction::backward_data && !s.plain_input;
}

double transposed_floats(const ConvShape& s) {
  return channels(s.ic) * channels(s.oc) * static_cast<double>(s.kh * s.kw) /
         static_cast<double>(s.groups);
}

ConvCost direct_cost(const Kernels& kernels, const ConvShape& s, Direction direction, int threads) {
  ConvCost cost;
  cost.work = {direct_flops(s)};
  if (direction == Direction::backward_weights && kernels.conv_backward_weights_supported(s)) {
    cost.workspace = {kernels.conv_backward_weights_scratch(s) * threads * kFloat};
  }
  cost.traffic = bytes(operands(s)) + cost.workspace;
  if (needs_transposed(s, direction)) cost.kept = bytes(transposed_floats(s));
  return cost;
}

ConvCost lowering_cost(const Kernels& kernels, const ConvShape& s, Direction direction,
                       int threads) {
  const int64_t image = kernels.lowering.image_floats(s) * kFloat;
  ConvCost cost;
  cost.work = {direct_flops(s)};
  cost.workspace = {image * threads * (direction == Direction::forward ? s.n : 1)};
  cost.traffic = bytes(operands(s)) + Bytes{2 * image * s.n};
  if (needs_transposed(s, direction)) cost.kept = bytes(transposed_floats(s));
  return cost;
}

/// `elements` values of a transformed tile, with one of a kernel multiplied by one of the data
/// (`products` multiplications for all of them).
ConvCost tiled_cost(const TiledConv& w, int64_t elements, int64_t products, const ConvShape& s,
                    Direction direction, int threads) {
  const ConvShape group = group_shape(s);
  const ConvShape shape = direction == Direction::backward_data ? backward_shape(group) : group;
  const double weights = channels(s.ic) * channels(s.oc) / static_cast<double>(s.groups);
  const auto tiles = static_cast<double>(w.tiles(shape));
  const double both = channels(s.ic) + channels(s.oc);
  // A transform takes a few operations per element for its rows and as many for its columns.
  const double transforms = tiles * both * 4.0 * static_cast<double>(elements);
  ConvCost cost;
  cost.work = {2.0 * static_cast<double>(products) * tiles * weights + transforms};
  const int64_t out_blocks = Blocked{.channels = group.oc}.blocks();
  cost.workspace = {kFloat * threads *
                    (direction == Direction::backward_weights
                         ? w.backward_weights_scratch(group, (out_blocks + threads - 1) / threads)
                         : w.forward_scratch(shape))};
  cost.traffic = bytes(operands(s)) + bytes(2.0 * static_cast<double>(elements) * tiles * both);
  if (direction != Direction::backward_weights) {
    cost.kept = {w.kernel_size(shape) * s.groups * kFloat};
    cost.preparation = {weights * 4.0 * static_cast<double>(elements)};
  }
  return cost;
}

}  // namespace

bool is_tiled(Algorithm algorithm) {
  return algorithm == Algorithm::winograd2 || algorithm == Algorithm::winograd4 ||
         algorithm == Algorithm::fft;
}

const char* to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::direct:
      return "direct";
    case Algorithm::lowering:
      return "lowering";
    case Algorithm::winograd2:
      return "winograd-2x2";
    case Algorithm::winograd4:
      return "winograd-4x4";
    case Algorithm::fft:
      return "fft";
  }
  return "?";
}

const char* to_string(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return "forward";
    case Direction::backward_data:
      return "backward-data";
    case Direction::backward_weights:
      return "backward-weights";
  }
  return "?";
}

Algorithm parse_algorithm(const std::string& name) {
  std::vector<std::string> names;
  for (const Algorithm algorithm : kAlgorithms) {
    names.emplace_back(to_string(algorithm));
    if (name == names.back()) return algorithm;
  }
  refuse("no algorithm '{}'; there are {}", name, fmt::join(names, ", "));
}

Algorithm ConvAlgorithms::of(Direction direction) const {
  ConvAlgorithms copy = *this;
  return copy.of(direction);
}

Algorithm& ConvAlgorithms::of(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return forward;
    case Direction::backward_data:
      return backward_data;
    case Direction::backward_weights:
      break;
  }
  return backward_weights;
}

ConvShape conv_shape(const model::Graph& graph, model::LayerId id, int64_t grain) {
  const model::Layer& layer = graph.layer(id);
  const auto& conv = std::get<model::Conv>(layer.kind);
  const model::Shape in = graph.layer(layer.inputs[0]).out;
  ConvShape s;
  s.n = grain;
  s.ic = in.channels, s.ih = in.height, s.iw = in.width;
  s.oc = layer.out.channels, s.oh = layer.out.height, s.ow = layer.out.width;
  s.kh = conv.kernel[0], s.kw = conv.kernel[1];
  s.stride_h = conv.stride[0], s.stride_w = conv.stride[1];
  s.pad_h = conv.pad[0], s.pad_w = conv.pad[1];
  s.dilation_h = conv.dilation[0], s.dilation_w = conv.dilation[1];
  s.groups = conv.groups;
  s.plain_input = conv_layout(graph, layer) == Layout::conv_input;
  return s;
}

std::map<model::LayerId, ConvAlgorithms> wherever_possible(const model::Graph& graph, int64_t grain,
                                                           const Kernels& kernels,
                                                           Algorithm algorithm) {
  std::map<model::LayerId, ConvAlgorithms> all;
  for (model::LayerId id = 0; id < static_cast<model::LayerId>(graph.layers().size()); ++id) {
    if (!std::holds_alternative<model::Conv>(graph.layer(id).kind)) continue;
    const ConvShape shape = conv_shape(graph, id, grain);
    for (const Direction direction : kDirections) {
      if (obstacle(kernels, shape, algorithm, direction).empty()) {
        all[id].of(direction) = algorithm;
      }
    }
  }
  return all;
}

std::string obstacle(const Kernels& kernels, const ConvShape& s, Algorithm algorithm,
                     Direction direction) {
  switch (algorithm) {
    case Algorithm::direct:
      return "";
    case Algorithm::winograd2:
    case Algorithm::winograd4:
      if (s.kh != 3 || s.kw != 3) return fmt::format("its kernel is {}×{}, not 3×3", s.kh, s.kw);
      [[fallthrough]];
    case Algorithm::fft:
      if (s.kh < 3 || s.kw < 3) {
        return fmt::format("its kernel is {}×{}, too small to gain", s.kh, s.kw);
      }
      if (s.stride_h != 1 || s.stride_w != 1) return "its stride is not 1";
      if (s.dilation_h != 1 || s.dilation_w != 1) return "it is dilated";
      if (s.groups != 1 && (s.ic % (s.groups * kBlock) != 0 || s.oc % (s.groups * kBlock) != 0)) {
        return fmt::format("its groups are not whole blocks of {} channels", kBlock);
      }
      if (s.plain_input) return "it reads the network's input, which is not blocked";
      if (s.pad_h >= s.kh || s.pad_w >= s.kw) return "its padding is as large as its kernel";
      if (!tiled_of(kernels, algorithm).supported(group_shape(s))) {
        return fmt::format("its kernel is {}×{}, larger than a tile allows", s.kh, s.kw);
      }
      return "";
    case Algorithm::lowering:
      if (!kernels.lowering.supported(s)) return "it has groups";
      if (s.plain_input && direction == Direction::backward_data) {
        return "the network's input has no gradient";
      }
      return "";
  }
  return "";
}

Flops conv_work(const ConvShape& s) {
  const int64_t inputs = s.ic / s.groups;
  return {2.0 * static_cast<double>(s.n * s.oc * s.oh * s.ow) *
          static_cast<double>(inputs * s.kh * s.kw)};
}

ConvCost conv_cost(const Kernels& kernels, const ConvShape& s, Algorithm algorithm,
                   Direction direction, int threads_per_lane) {
  switch (algorithm) {
    case Algorithm::lowering:
      return lowering_cost(kernels, s, direction, threads_per_lane);
    case Algorithm::winograd2:
      return tiled_cost(kernels.winograd2, 16, 16, s, direction, threads_per_lane);
    case Algorithm::winograd4:
      return tiled_cost(kernels.winograd4, 36, 36, s, direction, threads_per_lane);
    case Algorithm::fft:
      return tiled_cost(kernels.fft, 260, 520, s, direction, threads_per_lane);
    default:
      return direct_cost(kernels, s, direction, threads_per_lane);
  }
}

}  // namespace convoy::engine
