#pragma once
// Internal to the engine: what the layer emitters (emit_*.cpp) share while a Program is compiled.
//
// Forward: each emitter reads the Value of its inputs and defines the Value of its output.
// Backward: walks the nodes in reverse; an emitter takes its output's gradient buffer and gives
// gradients to its inputs. Buffers are numbers until the memory plan gives them an offset.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convoy/engine/memory_plan.hpp"
#include "convoy/engine/program.hpp"

namespace convoy::engine {

using BufferId = int;
inline constexpr BufferId kNone = -1;

/// What a bound instruction finds when it runs.
struct RunState {
  const GrainRun* grain = nullptr;
  GrainResult result;

  /// Where the gradient of the tensor at `offset` goes; `layer_begin` is its layer's first tensor.
  float* gradient(int64_t offset, int64_t layer_begin) const {
    return grain->gradient + (grain->layer_by_layer ? offset - layer_begin : offset);
  }
};

/// A lane's memory, with buffer numbers resolved.
struct LaneMemory {
  std::byte* base = nullptr;
  const std::vector<int64_t>* offsets = nullptr;
  Weights weights;

  float* floats(BufferId id) const { return reinterpret_cast<float*>(bytes(id)); }
  std::byte* bytes(BufferId id) const {
    return id == kNone ? nullptr : base + (*offsets)[static_cast<size_t>(id)];
  }
};

using Bound = std::function<void(RunState&)>;

struct Instruction {
  InstructionInfo info;
  bool training_only = false;
  /// Arena floats whose gradients are complete after this instruction; empty if none.
  int64_t complete_begin = 0;
  int64_t complete_end = 0;
  /// Arena floats that nobody has read before this instruction of the forward pass; empty if none.
  int64_t needs_begin = 0;
  int64_t needs_end = 0;
  std::function<Bound(const LaneMemory&)> bind;
};

/// The output of a layer: how it is stored, and where.
struct Value {
  Blocked stored;              ///< extents as stored (a flattened map keeps its 4-D extents)
  BufferId buffer = kNone;     ///< the network's input: its blocked copy, if one is needed
  BufferId gradient = kNone;   ///< set during the backward walk
  bool wants_gradient = true;  ///< false: nothing learned comes before it
  /// Set if the buffer's content is dropped after the forward pass and made again when
  /// the backward pass needs it: returns the buffer that holds it then.
  std::function<BufferId()> rematerialise;
};

/// Cuts [0, n) over the threads of a lane; f(thread, begin, end) must not depend on the cut.
template <typename F>
void for_range_numbered(int threads, int64_t n, const F& f) {
  if (threads <= 1) {
    f(0, int64_t{0}, n);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t) {
    const int64_t begin = n * t / threads;
    const int64_t end = n * (t + 1) / threads;
    if (begin < end) f(t, begin, end);
  }
}

/// The same for an f(begin, end) that needs nothing of its thread's own.
template <typename F>
void for_range(int threads, int64_t n, const F& f) {
  for_range_numbered(threads, n, [&](int, int64_t begin, int64_t end) { f(begin, end); });
}

class Builder {
 public:
  Builder(const model::Graph& graph, const CompileOptions& options);

  const model::Graph& graph;
  const Kernels& kernels;
  const int64_t grain;
  const int threads;
  const bool recompute_norm;
  const std::map<model::LayerId, ConvAlgorithms> algorithms;
  const int64_t lowered_together;

  Arena arena;
  std::vector<Instruction> instructions;
  std::vector<Lifetime> lifetimes;
  std::vector<Value> values;  ///< by layer
  int64_t prepared_size = 0;
  /// A prepared copy of some weights, cut into units for the lanes that rewrite it together.
  struct Preparation {
    model::LayerId layer;
    int64_t offset, units;
    std::function<void(const float* arena, float* to, int64_t begin, int64_t end)> rewrite;
  };
  std::vector<Preparation> preparations;

  Value& value(model::LayerId id) { return values[static_cast<size_t>(id)]; }
  /// The extents in which a layer of this shape is stored when nothing special applies.
  Blocked stored(const model::Shape& shape) const {
    return {grain, shape.channels, shape.height, shape.width};
  }

  /// A new buffer; it lives from its first to its last mention in emit().
  BufferId new_floats(int64_t count) { return new_bytes(count * 4); }
  BufferId new_bytes(int64_t count);

  /// Appends an instruction that uses these buffers (kNone is ignored).
  Instruction& emit(model::LayerId layer, Phase phase, std::string kernel,
                    const std::vector<BufferId>& buffers,
                    std::function<Bound(const LaneMemory&)> bind);

  /// The buffer of a layer's output for the backward pass, made again if it was dropped.
  BufferId available(model::LayerId id);
  /// The buffer of a layer's output for the forward pass. For the network's input, which lies
  /// plain in the loader's memory, a border conversion makes a blocked copy, once.
  BufferId blocked(model::LayerId id);

  /// Room for `floats` of prepared weights of a layer that `rewrite` makes from the arena; returns
  /// its offset.
  int64_t prepare(
      model::LayerId layer, int64_t floats, int64_t units,
      std::function<void(const float* arena, float* to, int64_t begin, int64_t end)> rewrite);

  /// Emissions from now on belong to the backward pass.
  void start_backward() { backward_ = true; }

  /// Gives `gradient` (owned from now on by the layer's value) to a layer's output, adding it to
  /// what is there already.
  void add_gradient(model::LayerId id, BufferId gradient);

  /// The arena tensor of a layer's parameter with this role; null if it has none.
  const Tensor* tensor(model::LayerId layer, model::Role role, Kind kind = Kind::parameter) const;
  /// First and one-past-last arena float of a layer's tensors.
  std::pair<int64_t, int64_t> span(model::LayerId layer) const;
  /// Marks the last instruction as the one that completes the layer's gradients.
  void completes(model::LayerId layer);
  /// Marks each layer's first instruction as the one that needs its weights; after the forward
  /// walk.
  void mark_needs();

 private:
  bool backward_ = false;
};

/// One or more layers computed together.
struct Node {
  model::LayerId head = 0;       ///< the layer that does the work
  model::LayerId result = 0;     ///< the last layer of the chain: whose value the node defines
  model::LayerId residual = -1;  ///< batch norm: the other input of a fused addition
  bool relu = false;             ///< a ReLU is part of the chain
  /// The max pooling that alone reads this node undoes its ReLU (for the node: no mask in the
  /// backward pass, its output need not be kept; for the pooling: it applies the mask).
  bool pool_undoes_relu = false;
};

/// Groups the layers of a graph into nodes, in an order in which they can be computed:
///   convolution or linear + ReLU;  batch norm [+ add] [+ ReLU];  add + ReLU;  max pooling with the
///   ReLU before it.
std::vector<Node> plan_nodes(const model::Graph& graph);

// Emitters: each appends the forward half of a node and returns a function that appends its
// backward half.
using Backward = std::function<void()>;

Backward emit_conv(Builder& b, const Node& node);
const TiledConv& tiled_of(const Kernels& kernels, Algorithm algorithm);
void emit_tiled_forward(Builder& b, const Node& node, const ConvShape& s, Algorithm algorithm,
                        BufferId x, BufferId y);
void emit_tiled_data(Builder& b, model::LayerId id, const ConvShape& s, Algorithm algorithm,
                     BufferId dy, BufferId dx);
void emit_lowering_forward(Builder& b, const Node& node, const ConvShape& s, BufferId x,
                           BufferId y);
/// `transposed`: where the prepared weights hold them as OIhw8o8i.
void emit_lowering_data(Builder& b, model::LayerId id, const ConvShape& s, int64_t transposed,
                        BufferId dy, BufferId dx);
void emit_lowering_weights(Builder& b, model::LayerId id, const ConvShape& s, BufferId x,
                           BufferId dy);
void emit_tiled_weights(Builder& b, model::LayerId id, const ConvShape& s, Algorithm algorithm,
                        BufferId x, BufferId dy);
Backward emit_norm(Builder& b, const Node& node);
Backward emit_linear(Builder& b, const Node& node);
Backward emit_activation(Builder& b, const Node& node);
Backward emit_pool(Builder& b, const Node& node);
Backward emit_global_pool(Builder& b, const Node& node);
Backward emit_lrn(Builder& b, const Node& node);
Backward emit_dropout(Builder& b, const Node& node);
Backward emit_add(Builder& b, const Node& node);
Backward emit_concat(Builder& b, const Node& node);
Backward emit_flatten(Builder& b, const Node& node);
Backward emit_loss(Builder& b, const Node& node);

/// Between nChw8c with extents and a vector in the plain order, through a plain scratch buffer.
void emit_repack(Builder& b, model::LayerId id, Phase phase, const Blocked& from_shape,
                 BufferId from, const Blocked& to_shape, BufferId to);

/// True if a flattening layer costs nothing: all its readers take the map as it lies (linear layers
/// order their weights for it; element-wise layers do not care).
bool flatten_is_free(const model::Graph& graph, model::LayerId id);

/// The layout of a convolution's weights.
Layout conv_layout(const model::Graph& graph, const model::Layer& layer);

/// Declares the arena tensors of every node (last node first, as the backward pass completes them),
/// layouts as the emitters expect.
void declare_tensors(Builder& b, const std::vector<Node>& nodes);

}  // namespace convoy::engine
