#pragma once
// How a convolution is computed. Every algorithm gives the same result up to rounding; they differ
// in time and in the workspace they take.

#include <cstdint>
#include <map>
#include <string>

#include "convoy/base/units.hpp"
#include "convoy/engine/kernels/kernels.hpp"
#include "convoy/model/graph.hpp"

namespace convoy::engine {

enum class Algorithm {
  direct,     ///< the definition, over blocked layouts
  lowering,   ///< windows copied into the rows of a matrix, one tall matrix product
  winograd2,  ///< F(2×2, 3×3): 2.25 times fewer multiplications
  winograd4,  ///< F(4×4, 3×3): 4 times fewer, at some cost in accuracy
  fft,        ///< spectra of 16×16 tiles: for large kernels
};
enum class Direction { forward, backward_data, backward_weights };

inline constexpr Algorithm kAlgorithms[] = {Algorithm::direct, Algorithm::lowering,
                                            Algorithm::winograd2, Algorithm::winograd4,
                                            Algorithm::fft};
inline constexpr Direction kDirections[] = {Direction::forward, Direction::backward_data,
                                            Direction::backward_weights};

/// One of those with transformed kernels: see TiledConv.
bool is_tiled(Algorithm algorithm);

const char* to_string(Algorithm algorithm);
const char* to_string(Direction direction);
/// The algorithm of that name; throws InputError listing the names.
Algorithm parse_algorithm(const std::string& name);

/// The algorithms of one layer.
struct ConvAlgorithms {
  Algorithm forward = Algorithm::direct;
  Algorithm backward_data = Algorithm::direct;
  Algorithm backward_weights = Algorithm::direct;

  Algorithm of(Direction direction) const;
  Algorithm& of(Direction direction);
  bool operator==(const ConvAlgorithms&) const = default;
};

/// The convolution that layer `id` does on one grain.
ConvShape conv_shape(const model::Graph& graph, model::LayerId id, int64_t grain);

/// The algorithm for every layer and direction that it can do; the rest is direct.
std::map<model::LayerId, ConvAlgorithms> wherever_possible(const model::Graph& graph, int64_t grain,
                                                           const Kernels& kernels,
                                                           Algorithm algorithm);

/// Why the algorithm cannot do this direction of this convolution; empty if it can.
std::string obstacle(const Kernels& kernels, const ConvShape& shape, Algorithm algorithm,
                     Direction direction);

/// Operations of the definition, in any direction.
Flops conv_work(const ConvShape& shape);

/// What one direction of a convolution costs by an algorithm, on one grain.
struct ConvCost {
  Flops work;         ///< multiplications and additions really done, transforms included
  Bytes traffic;      ///< read and written once each: operands, result and workspace
  Bytes workspace;    ///< of each lane, while it runs
  Bytes kept;         ///< prepared weights, once for all lanes
  Flops preparation;  ///< of the prepared weights, once per step
};
ConvCost conv_cost(const Kernels& kernels, const ConvShape& shape, Algorithm algorithm,
                   Direction direction, int threads_per_lane);

}  // namespace convoy::engine
